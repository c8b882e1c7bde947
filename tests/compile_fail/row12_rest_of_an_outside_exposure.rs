use tidegate::Cells;
use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = RangeWindow::<f64>::new("w", 4);
    let face = Layout::subarray(&[2, 2], &[0..2, 0..1])?;
    let face = window.layout_to(0, &face);
    let (inbox, outbox) = window.open(&s)?;
    let src = Region::from_slice(&world, &[1.0; 2])?.on(&s)?;
    let exposed = inbox.post(&s)?;
    let (_graph, ()) = s.capture((), |s, ()| { // wrong
    // right: let (_graph, exposed) = s.capture(exposed, |s, exposed| {
        s.launch(|_: Cells<'_, f64>| (), exposed.rest()?)?;
        Ok(()) // wrong
        // right: Ok(exposed)
    })?;
    let mut epoch = outbox.start();
    epoch.put(&src, face)?;
    epoch.complete(&s)?;
    exposed.wait(&s)?;
    Ok(())
}
