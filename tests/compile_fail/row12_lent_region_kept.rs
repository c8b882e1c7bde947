use tidegate::host::prelude::*;

fn increment(x: &mut [f64]) {
    x.iter_mut().for_each(|x| *x += 1.0);
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let mut kept = Vec::new();
    let (_graph, src) = s.capture(vec![src], |s, mut src| {
        s.launch(increment, &mut src[0])?;
        kept.append(&mut src); // wrong
        Ok(src)
    })?;
    kept.extend(src);
    Ok(())
}
