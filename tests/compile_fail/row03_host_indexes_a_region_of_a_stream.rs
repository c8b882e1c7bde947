use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let src = src; // wrong
    // right: let src = src.into_host(&s)?;
    assert_eq!(src[0], 1.0);
    Ok(())
}
