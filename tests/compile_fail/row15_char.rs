use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    Region::<char>::zeroed(&world, 4)?; // wrong
    // right: Region::<u32>::zeroed(&world, 4)?;
    Ok(())
}
