use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut src = Region::from_slice(&world, &[1.0f64; 4])?.on(&s)?;
    let by = 2.0;
    s.launch(|x: &mut [f64]| x[0] = by, &mut src)?; // wrong
    // right: s.launch(move |x: &mut [f64]| x[0] = by, &mut src)?;
    Ok(())
}
