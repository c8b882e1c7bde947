use tidegate::prelude::*;

fn look(slots: Slots<'_, f64>, x: &[f64]) {
    assert_eq!(slots.slot(0).len(), x.len());
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let src = Region::from_slice(&world, &[1.0f64; 4])?.on(&s)?;
    let window = Window::<f64, _>::by_slot("w")
        .slot_from(0, 0, 4)
        .slot_to(0, 0);
    let (inbox, _outbox) = window.open(&s)?;
    s.launch(look, (inbox.view(), &src))?;
    Ok(())
}
