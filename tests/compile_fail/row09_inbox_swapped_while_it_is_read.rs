use std::mem::swap;
use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let open = |name| {
        let mut window = SlotWindow::<f64>::new(name);
        window.slot_from(0, 0, 4);
        window.slot_to(0, 0);
        window.open(&s)
    };
    let ((mut inbox, _outbox), (mut other, _other_outbox)) = (open("w")?, open("other")?);
    let slots = inbox.read(&s)?;
    swap(&mut inbox, &mut other); // wrong
    assert!(slots.iter().all(|slot| slot == [0.0; 4]));
    // right: swap(&mut inbox, &mut other);
    Ok(())
}
