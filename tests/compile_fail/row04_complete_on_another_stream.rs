use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let a = world.stream()?);
    stream!(let b = world.stream()?);
    let mut window = SlotWindow::<f64>::new("w");
    window.slot_from(0, 0, 4);
    window.slot_to(0, 0);
    let (inbox, outbox) = window.open(&a)?;
    let exposed = inbox.post(&a)?;
    let epoch = outbox.start();
    epoch.complete(&b)?; // wrong
    // right: epoch.complete(&a)?;
    exposed.wait(&a)?;
    Ok(())
}
