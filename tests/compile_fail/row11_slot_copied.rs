use tidegate::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let window = Window::<f64, _>::by_slot("w")
        .slot_from(0, 0, 4)
        .slot_from(0, 1, 4)
        .slot_to(0, 0)
        .slot_to(0, 1);
    let (inbox, outbox) = window.open(&s)?;
    let src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let exposed = inbox.post(&s)?;
    let mut epoch = outbox.start();
    let [left, _right] = epoch.slots()?;
    epoch.put(&src, left.clone())?;
    epoch.put(&src, left)?;
    epoch.complete(&s)?;
    exposed.wait(&s)?;
    Ok(())
}
