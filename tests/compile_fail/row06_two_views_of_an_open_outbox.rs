use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::<f64>::new("w");
    window.slot_from(0, 0, 4);
    let to = window.slot_to(0, 0);
    let (inbox, outbox) = window.open(&s)?;
    let exposed = inbox.post(&s)?;
    let mut opened = outbox.open(&s)?;
    let two = move |mut a: OutSlots<'_, f64>, mut b: OutSlots<'_, f64>| { // wrong
    // right: let two = move |mut a: OutSlots<'_, f64>| {
        a.put_one(to, 0, 1.0);
        b.put_one(to, 0, 2.0); // wrong
    };
    s.launch(two, (opened.slots(), opened.slots()))?; // wrong
    // right: s.launch(two, opened.slots())?;
    opened.complete(&s)?;
    exposed.wait(&s)?;
    s.synchronize()
}
