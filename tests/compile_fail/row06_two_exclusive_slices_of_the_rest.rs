use tidegate::CellsMut;
use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = RangeWindow::<f64>::new("w", 4);
    let face = Layout::subarray(&[2, 2], &[0..2, 0..1])?;
    let face = window.layout_to(0, &face);
    let (inbox, outbox) = window.open(&s)?;
    let mut exposed = inbox.post(&s)?;
    let src = Region::from_slice(&world, &[1.0; 2])?.on(&s)?;
    let mut epoch = outbox.start();
    epoch.put(&src, face)?;
    let _outbox = epoch.complete(&s)?;
    let copy = |mut rest: CellsMut<'_, f64>| {
        let (a, b) = (rest.slice_mut(1..2), rest.slice_mut(3..4)); // wrong
        a.copy_from_slice(b); // wrong
        // right: let b = rest.get(3);
        // right: rest.slice_mut(1..2).fill(b);
    };
    s.launch(copy, exposed.rest_mut()?)?;
    exposed.wait(&s)?;
    Ok(())
}
