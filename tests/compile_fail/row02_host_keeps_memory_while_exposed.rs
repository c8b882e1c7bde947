use tidegate::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let window = Window::<f64, _>::by_range("w", 4).range_to(0, 0..4);
    let (inbox, outbox) = window.open(&s)?;
    let src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let mut inbox = inbox;
    let memory = inbox.host_mut(&s)?;
    let exposed = inbox.post(&s)?;
    memory[0] = 2.0;
    let mut epoch = outbox.start();
    epoch.put(&src, Slot(0))?;
    epoch.complete(&s)?;
    exposed.wait(&s)?;
    Ok(())
}
