use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let a = world.stream()?);
    stream!(let b = world.stream()?);
    std::mem::swap(&mut a, &mut b);
    Ok(())
}
