use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = RangeWindow::<f64>::new("w", 4);
    let range = window.range_to(0, 0..4);
    let (inbox, outbox) = window.open(&s)?;
    let src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let mut inbox = inbox;
    let memory = inbox.host_mut(&s)?;
    let exposed = inbox.post(&s)?; // wrong
    memory[0] = 2.0;
    // right: let exposed = inbox.post(&s)?;
    let mut epoch = outbox.start();
    epoch.put(&src, range)?;
    epoch.complete(&s)?;
    exposed.wait(&s)?;
    Ok(())
}
