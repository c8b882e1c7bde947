use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let look = |x: &mut Region<f64>| assert_eq!(x.len(), 4); // wrong
    // right: let look = |x: &mut [f64]| assert_eq!(x.len(), 4);
    s.launch(look, &mut src)?;
    Ok(())
}
