use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let a = world.stream()?);
    stream!(let b = world.stream()?);
    let src = Region::from_slice(&world, &[1.0; 4])?.on(&a)?;
    let src = src.into_host(&b)?; // wrong
    // right: let src = src.into_host(&a)?;
    assert_eq!(src[0], 1.0);
    Ok(())
}
