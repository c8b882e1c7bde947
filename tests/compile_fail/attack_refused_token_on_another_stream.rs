use tidegate::prelude::*;

fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    stream!(let t = world.stream()?);
    let (inbox, _outbox) = Window::<f64, _>::by_slot("w").slot_from(0, 0, 1).open(&s)?;
    if let Err(refused) = inbox.try_post(&s) {
        refused.value.post(&t)?;
    }
    Ok(())
}
