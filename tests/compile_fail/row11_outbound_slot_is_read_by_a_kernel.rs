use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::<f64>::new("w");
    window.slot_from(0, 0, 4);
    let to = window.slot_to(0, 0);
    let (inbox, outbox) = window.open(&s)?;
    let exposed = inbox.post(&s)?;
    let look = move |out: OutSlots<'_, f64>| assert_eq!(out.slot(to), [0.0; 4]); // wrong
    // right: let look = move |out: OutSlots<'_, f64>| assert_eq!(out.len_of(to), 4);
    let mut opened = outbox.open(&s)?;
    s.launch(look, opened.slots())?;
    opened.complete(&s)?;
    exposed.wait(&s)?;
    s.synchronize()
}
