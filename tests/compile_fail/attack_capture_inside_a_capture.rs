use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    s.capture((), |s, ()| {
        s.capture((), |_, ()| Ok(()))?;
        Ok(())
    })?;
    Ok(())
}
