use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    Region::<Option<f64>>::zeroed(&world, 4)?; // wrong
    // right: Region::<f64>::zeroed(&world, 4)?;
    Ok(())
}
