// right: use std::sync::Arc;
use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut src = Region::from_slice(&world, &[1.0f64; 4])?.on(&s)?;
    let here = Region::from_slice(&world, &[2.0; 4])?; // wrong
    // right: let here = Arc::new(Region::from_slice(&world, &[2.0; 4])?);
    s.launch(move |x: &mut [f64]| x.copy_from_slice(&here), &mut src)?;
    Ok(())
}
