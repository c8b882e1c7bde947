use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::<f64>::new("w");
    window.slot_from(0, 0, 4);
    window.slot_from(0, 1, 4);
    let to_left = window.slot_to(0, 0);
    let to_right = window.slot_to(0, 1);
    let (inbox, outbox) = window.open(&s)?;
    let src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let exposed = inbox.post(&s)?;
    let mut epoch = outbox.start();
    let [left, _right] = epoch.take([to_left, to_right])?; // wrong
    // right: let [left, right] = epoch.take([to_left, to_right])?;
    epoch.put(&src, left)?;
    epoch.put(&src, left)?; // wrong
    // right: epoch.put(&src, right)?;
    epoch.complete(&s)?;
    exposed.wait(&s)?;
    Ok(())
}
