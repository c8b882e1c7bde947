use tidegate::IndexSet;
use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let [part] = src.partition([IndexSet::from_ranges([0..4])?])?;
    let again = part.clone();
    Region::reunite([part])?;
    drop(again);
    Ok(())
}
