use tidegate::host::prelude::*;
use tidegate::{Cells, CellsMut}; // wrong
// right: use tidegate::Cells;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = RangeWindow::<f64>::new("w", 4);
    let face = Layout::subarray(&[2, 2], &[0..2, 0..1])?;
    let face = window.layout_to(0, &face);
    let (inbox, outbox) = window.open(&s)?;
    let mut exposed = inbox.post(&s)?; // wrong
    // right: let exposed = inbox.post(&s)?;
    let src = Region::from_slice(&world, &[1.0; 2])?.on(&s)?;
    let mut epoch = outbox.start();
    epoch.put(&src, face)?;
    let _outbox = epoch.complete(&s)?;
    let copy = |mut a: CellsMut<'_, f64>, b: Cells<'_, f64>| a.set(1, b.get(3)); // wrong
    s.launch(copy, (exposed.rest_mut()?, exposed.rest()?))?; // wrong
    // right: let copy = |a: Cells<'_, f64>, b: Cells<'_, f64>| assert_eq!(a.get(1), b.get(3));
    // right: s.launch(copy, (exposed.rest()?, exposed.rest()?))?;
    exposed.wait(&s)?;
    Ok(())
}
