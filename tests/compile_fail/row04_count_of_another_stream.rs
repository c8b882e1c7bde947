use tidegate::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let a = world.stream()?);
    stream!(let b = world.stream()?);
    let window = Window::<f64, _>::by_slot("w")
        .slot_from(0, 0, 4)
        .slot_to(0, 0);
    let (inbox, outbox) = window.open(&a)?;
    let src = Region::from_slice(&world, &[1.0; 4])?.on(&a)?;
    let count = Region::from_slice(&world, &[3u64])?.on(&b)?;
    let exposed = inbox.post(&a)?;
    let mut epoch = outbox.start();
    epoch.put_counted(&src, &count, Slot(0))?;
    epoch.complete(&a)?;
    exposed.wait(&a)?;
    Ok(())
}
