use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    s.capture_with(&mut s, ((), ()), |_, _, lent| Ok(lent))?;
    Ok(())
}
