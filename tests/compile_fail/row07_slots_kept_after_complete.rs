use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::<f64>::new("w");
    window.slot_from(0, 0, 4);
    let to = window.slot_to(0, 0);
    let (inbox, outbox) = window.open(&s)?;
    let exposed = inbox.post(&s)?;
    let put = move |mut out: OutSlots<'_, f64>| out.put_one(to, 0, 1.0);
    let mut opened = outbox.open(&s)?;
    let slots = opened.slots();
    opened.complete(&s)?; // wrong
    s.launch(put, slots)?;
    // right: opened.complete(&s)?;
    exposed.wait(&s)?;
    s.synchronize()
}
