use tidegate::host::prelude::*;

fn look(slots: Slots<'_, f64>) {
    slots.iter().for_each(|slot| assert_eq!(slot.len(), 4));
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let a = world.stream()?);
    stream!(let b = world.stream()?);
    let mut window = SlotWindow::<f64>::new("w");
    window.slot_from(0, 0, 4);
    window.slot_to(0, 0);
    let (inbox, _outbox) = window.open(&a)?;
    let inbox = inbox; // wrong
    // right: let inbox = a.hand_off(inbox, &b)?;
    b.launch(look, inbox.view())?;
    Ok(())
}
