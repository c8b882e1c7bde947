use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let mut src = src; // wrong
    // right: let mut src = src.into_host(&s)?;
    src.write(0, &[2.0])?;
    Ok(())
}
