use tidegate::prelude::*;

fn post(world: &World) -> std::result::Result<(), Box<dyn std::error::Error>> {
    stream!(let s = world.stream()?);
    let (inbox, _outbox) = Window::<f64, _>::by_slot("w").slot_from(0, 0, 1).open(&s)?;
    inbox.try_post(&s)?;
    Ok(())
}

fn main() {
    drop(post);
}
