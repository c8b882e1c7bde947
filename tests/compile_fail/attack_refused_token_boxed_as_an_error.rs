use tidegate::host::prelude::*;

fn post(world: &World) -> std::result::Result<(), Box<dyn std::error::Error>> {
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::<f64>::new("w");
    window.slot_from(0, 0, 1);
    let (inbox, _outbox) = window.open(&s)?;
    inbox.try_post(&s)?;
    Ok(())
}

fn main() {
    drop(post);
}
