use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let a = world.stream()?);
    stream!(let b = world.stream()?);
    let mut window = SlotWindow::<f64>::new("w");
    window.slot_from(0, 0, 4);
    let to = window.slot_to(0, 0);
    let (inbox, outbox) = window.open(&a)?;
    let src = Region::from_slice(&world, &[1.0; 4])?.on(&a)?;
    let count = Region::from_slice(&world, &[3u64])?.on(&b)?;
    // right: let count = b.hand_off(count, &a)?;
    let exposed = inbox.post(&a)?;
    let mut epoch = outbox.start();
    epoch.put_counted(&src, &count, to)?;
    epoch.complete(&a)?;
    exposed.wait(&a)?;
    Ok(())
}
