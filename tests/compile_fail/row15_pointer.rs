use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    Region::<*const f64>::zeroed(&world, 4)?; // wrong
    // right: Region::<u64>::zeroed(&world, 4)?;
    Ok(())
}
