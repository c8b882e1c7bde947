use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    Region::<[&'static f64; 2]>::zeroed(&world, 4)?; // wrong
    // right: Region::<[f64; 2]>::zeroed(&world, 4)?;
    Ok(())
}
