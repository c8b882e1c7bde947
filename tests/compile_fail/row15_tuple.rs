use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    Region::<(f64, f64)>::zeroed(&world, 4)?; // wrong
    // right: Region::<[f64; 2]>::zeroed(&world, 4)?;
    Ok(())
}
