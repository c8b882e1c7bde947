use tidegate::host::prelude::*;

fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    stream!(let t = world.stream()?);
    let mut window = SlotWindow::<f64>::new("w");
    window.slot_from(0, 0, 1);
    let (inbox, _outbox) = window.open(&s)?;
    if let Err(refused) = inbox.try_post(&s) {
        refused.value.post(&t)?;
    }
    Ok(())
}
