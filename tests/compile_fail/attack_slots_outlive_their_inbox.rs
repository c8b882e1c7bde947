use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::<f64>::new("w");
    let from = window.slot_from(0, 0, 4);
    window.slot_to(0, 0);
    let (inbox, outbox) = window.open(&s)?;
    let mut inbox = inbox;
    let slots = inbox.read(&s)?;
    drop((inbox, outbox));
    assert_eq!(slots.slot(from), [0.0; 4]);
    Ok(())
}
