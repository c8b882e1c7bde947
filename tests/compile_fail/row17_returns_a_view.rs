use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut src = Region::from_slice(&world, &[1.0f64; 4])?.on(&s)?;
    s.launch(|x: &mut [f64]| x.first().copied(), &mut src)?; // wrong
    // right: s.launch(|x: &mut [f64]| x[0] = 2.0, &mut src)?;
    Ok(())
}
