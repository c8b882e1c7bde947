use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = RangeWindow::<f64>::new("w", 4);
    let range = window.range_to(0, 0..4);
    let (inbox, outbox) = window.open(&s)?;
    let mut dst = Region::<f64>::zeroed(&world, 4)?.on(&s)?;
    let exposed = inbox.post(&s)?;
    let mut outbox = outbox; // wrong
    outbox.get(&mut dst, range)?; // wrong
    // right: let mut epoch = outbox.start();
    // right: epoch.get(&mut dst, range)?;
    // right: epoch.complete(&s)?;
    exposed.wait(&s)?;
    Ok(())
}
