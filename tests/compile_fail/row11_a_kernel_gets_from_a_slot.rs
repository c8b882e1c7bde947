use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::<f64>::new("w"); // wrong
    window.slot_from(0, 0, 4); // wrong
    let to = window.slot_to(0, 0); // wrong
    // right: let mut window = RangeWindow::<f64>::new("w", 4);
    // right: let to = window.range_to(0, 0..4);
    let (inbox, outbox) = window.open(&s)?;
    let exposed = inbox.post(&s)?;
    let look = move |out: OutSlots<'_, f64>| assert_eq!(out.get_one(to, 0), 0.0); // wrong
    // right: let look = move |out: OutRanges<'_, f64>| assert_eq!(out.get_one(to, 0), 0.0);
    let mut opened = outbox.open(&s)?;
    s.launch(look, opened.slots())?; // wrong
    // right: s.launch(look, opened.ranges())?;
    opened.complete(&s)?;
    exposed.wait(&s)?;
    s.synchronize()
}
