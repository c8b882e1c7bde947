use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    Region::<String>::zeroed(&world, 4)?; // wrong
    // right: Region::<[u8; 16]>::zeroed(&world, 4)?;
    Ok(())
}
