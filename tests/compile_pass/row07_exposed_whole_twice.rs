use tidegate::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let window = Window::<f64, _>::by_slot("w")
        .slot_from(0, 0, 4)
        .slot_to(0, 0);
    let (inbox, outbox) = window.open(&s)?;
    let outbox = outbox.start().complete(&s)?;
    let inbox = inbox.expose(&s)?;
    outbox.start().complete(&s)?;
    inbox.expose(&s)?;
    Ok(())
}
