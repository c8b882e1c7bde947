use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = AtomicWindow::<f64>::new("w", 4);
    let at = window.target(0);
    let (inbox, outbox) = window.open(&s)?;
    let src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let exposed = inbox.post(&s)?;
    let mut outbox = outbox; // wrong
    outbox.accumulate(&src, at, Op::Sum)?; // wrong
    // right: let mut epoch = outbox.start();
    // right: epoch.accumulate(&src, at, Op::Sum)?;
    // right: epoch.complete(&s)?;
    exposed.wait(&s)?;
    Ok(())
}
