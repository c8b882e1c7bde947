use tidegate::host::prelude::*;
use tidegate::{Cells, CellsMut, IndexSet};

fn copy(mut a: CellsMut<'_, f64>, b: Cells<'_, f64>) {
    (0..a.whole_len() / 2).for_each(|i| a.set(i, b.get(i + 2)));
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let sets = [0..2, 2..4].map(|range| IndexSet::from_ranges([range]));
    let [low, high] = sets;
    let [mut low, high] = src.partition([low?, high?])?;
    s.launch(copy, (&mut low, &low))?; // wrong
    // right: s.launch(copy, (&mut low, &high))?;
    Region::reunite([low, high])?;
    Ok(())
}
