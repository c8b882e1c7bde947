use tidegate::host::prelude::*;

fn increment(x: &mut [f64]) {
    x.iter_mut().for_each(|x| *x += 1.0);
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?; // wrong
    let (_graph, _lent) = s.capture((), |s, lent| { // wrong
    // right: let src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    // right: let (_graph, _src) = s.capture(src, |s, mut src| {
        s.launch(increment, &mut src)?;
        Ok(lent) // wrong
        // right: Ok(src)
    })?;
    Ok(())
}
