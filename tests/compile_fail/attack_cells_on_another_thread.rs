use tidegate::host::prelude::*;
use tidegate::{Cells, IndexSet};

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let [part] = src.partition([IndexSet::from_ranges([0..4])?])?;
    let kernel = |x: Cells<'_, f64>| {
        std::thread::scope(|scope| drop(scope.spawn(move || x.get(0)).join()));
    };
    s.launch(kernel, &part)?;
    Ok(())
}
