use tidegate::prelude::*;

fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let (inbox, _outbox) = Window::<f64, _>::by_slot("w").slot_from(0, 0, 1).open(&s)?;
    let exposed = match inbox.post(&s) {
        Ok(exposed) => exposed,
        Err(_) => inbox.post(&s)?,
    };
    drop(exposed);
    Ok(())
}
