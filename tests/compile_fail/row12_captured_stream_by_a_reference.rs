use tidegate::host::prelude::*;

fn increment(x: &mut [f64]) {
    x.iter_mut().for_each(|x| *x += 1.0);
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let mut other = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let again = &s; // wrong
    let (_graph, _src) = s.capture(src, |s, mut src| {
        s.launch(increment, &mut src)?;
        Ok(src)
    })?;
    again.launch(increment, &mut other)?; // wrong
    // right: s.launch(increment, &mut other)?;
    Ok(())
}
