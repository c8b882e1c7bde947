use tidegate::host::prelude::*;

fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::<f64>::new("w");
    window.slot_from(0, 0, 1);
    let (inbox, _outbox) = window.open(&s)?;
    let exposed = match inbox.post(&s) {
        Ok(exposed) => exposed,
        Err(_) => inbox.post(&s)?,
    };
    drop(exposed);
    Ok(())
}
