use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::<f64>::new("w");
    window.slot_from(0, 0, 4);
    window.slot_to(0, 0);
    let (inbox, outbox) = window.open(&s)?;
    let exposed = inbox.post(&s)?;
    let opened = outbox.open(&s)?;
    outbox.open(&s)?; // wrong
    opened.complete(&s)?;
    exposed.wait(&s)?;
    s.synchronize()
}
