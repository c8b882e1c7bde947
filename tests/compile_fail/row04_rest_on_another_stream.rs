use tidegate::Cells;
use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    stream!(let t = world.stream()?);
    let mut window = RangeWindow::<f64>::new("w", 4);
    let face = Layout::subarray(&[2, 2], &[0..2, 0..1])?;
    let face = window.layout_to(0, &face);
    let (inbox, outbox) = window.open(&s)?;
    let exposed = inbox.post(&s)?;
    let src = Region::from_slice(&world, &[1.0; 2])?.on(&s)?;
    let mut epoch = outbox.start();
    epoch.put(&src, face)?;
    let _outbox = epoch.complete(&s)?;
    t.launch(|_: Cells<'_, f64>| (), exposed.rest()?)?; // wrong
    // right: s.launch(|_: Cells<'_, f64>| (), exposed.rest()?)?;
    // right: t.synchronize()?;
    exposed.wait(&s)?;
    Ok(())
}
