use tidegate::host::prelude::*;

fn increment(x: &mut [f64]) {
    x.iter_mut().for_each(|x| *x += 1.0);
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let src = Region::from_slice(&world, &[1.0f64; 4])?.on(&s)?;
    let mut src = src.into_host(&s)?; // wrong
    // right: let mut src = src.into_host(&s)?.on(&s)?;
    s.launch(increment, &mut src)?;
    Ok(())
}
