use std::mem::swap;
use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::<f64>::new("w");
    window.slot_from(0, 0, 4);
    let to = window.slot_to(0, 0);
    let (inbox, outbox) = window.open(&s)?;
    let mut src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let mut other = Region::from_slice(&world, &[2.0; 4])?.on(&s)?;
    let exposed = inbox.post(&s)?;
    let mut epoch = outbox.start();
    epoch.put(&src, to)?;
    swap(&mut src, &mut other); // wrong
    epoch.complete(&s)?;
    // right: swap(&mut src, &mut other);
    exposed.wait(&s)?;
    Ok(())
}
