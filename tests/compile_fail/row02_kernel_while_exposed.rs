use tidegate::host::prelude::*;

fn look(slots: Slots<'_, f64>) {
    slots.iter().for_each(|slot| assert_eq!(slot.len(), 4));
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::<f64>::new("w");
    window.slot_from(0, 0, 4);
    let to = window.slot_to(0, 0);
    let (inbox, outbox) = window.open(&s)?;
    let src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let exposed = inbox.post(&s)?;
    let mut epoch = outbox.start();
    epoch.put(&src, to)?;
    epoch.complete(&s)?;
    s.launch(look, exposed.view())?; // wrong
    exposed.wait(&s)?; // wrong
    // right: let inbox = exposed.wait(&s)?;
    // right: s.launch(look, inbox.view())?;
    Ok(())
}
