use tidegate::host::prelude::*;

fn look(slots: Slots<'_, f64>, x: &[f64]) {
    slots.iter().for_each(|slot| assert_eq!(slot, x));
}

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let src = Region::from_slice(&world, &[1.0f64; 4])?.on(&s)?;
    let mut window = SlotWindow::<f64>::new("w");
    window.slot_from(0, 0, 4);
    window.slot_to(0, 0);
    let (inbox, _outbox) = window.open(&s)?;
    s.launch(look, (&inbox, &src))?; // wrong
    // right: s.launch(look, (inbox.view(), &src))?;
    Ok(())
}
