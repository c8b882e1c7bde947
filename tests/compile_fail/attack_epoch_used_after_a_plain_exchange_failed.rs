use tidegate::host::prelude::*;

fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::<f64>::new("w");
    window.slot_from(0, 0, 1);
    window.slot_to(0, 0);
    let (inbox, outbox) = window.open(&s)?;
    let epoch = outbox.start();
    if exchange(&s, inbox, epoch).is_err() {
        epoch.complete(&s)?;
        inbox.post(&s)?;
    }
    Ok(())
}
