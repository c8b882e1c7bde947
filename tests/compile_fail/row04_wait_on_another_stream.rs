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
    outbox.start().complete(&a)?;
    let exposed = exposed; // wrong
    // right: let exposed = a.hand_off(exposed, &b)?;
    exposed.wait(&b)?;
    Ok(())
}
