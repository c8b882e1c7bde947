use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut kept = None;
    s.capture((), |s, ()| {
        kept = Some(s);
        Ok(())
    })?;
    Ok(())
}
