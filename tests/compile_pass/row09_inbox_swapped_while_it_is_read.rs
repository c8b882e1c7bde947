use std::mem::swap;
use tidegate::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let open = |name| {
        Window::<f64, _>::by_slot(name)
            .slot_from(0, 0, 4)
            .slot_to(0, 0)
            .open(&s)
    };
    let ((mut inbox, _outbox), (mut other, _other_outbox)) = (open("w")?, open("other")?);
    let slots = inbox.read(&s)?;
    assert_eq!(slots.slot(0), [0.0; 4]);
    swap(&mut inbox, &mut other);
    Ok(())
}
