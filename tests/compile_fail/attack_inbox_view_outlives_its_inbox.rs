use tidegate::prelude::*;

fn look(slots: Slots<'_, f64>) {
    assert_eq!(slots.slot(0).len(), 4);
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let window = Window::<f64, _>::by_slot("w")
        .slot_from(0, 0, 4)
        .slot_to(0, 0);
    let (inbox, outbox) = window.open(&s)?;
    let view = inbox.view();
    drop((inbox, outbox));
    s.launch(look, view)?;
    Ok(())
}
