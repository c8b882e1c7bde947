use tidegate::prelude::*;

fn look(slots: Slots<'_, f64>) {
    assert_eq!(slots.slot(0).len(), 4);
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let a = world.stream()?);
    stream!(let b = world.stream()?);
    let window = Window::<f64, _>::by_slot("w")
        .slot_from(0, 0, 4)
        .slot_to(0, 0);
    let (inbox, _outbox) = window.open(&a)?;
    let inbox = inbox;
    b.launch(look, inbox.view())?;
    Ok(())
}
