use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    Region::<u32>::zeroed(&world, 4)?;
    Ok(())
}
