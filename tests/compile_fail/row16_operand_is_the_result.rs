use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = AtomicWindow::<f64>::new("w", 4);
    let at = window.target(0);
    let (inbox, outbox) = window.open(&s)?;
    let one = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let mut old = Region::<f64>::zeroed(&world, 4)?.on(&s)?;
    let exposed = inbox.post(&s)?;
    let mut epoch = outbox.start();
    epoch.fetch_and_op(&old, &mut old, at, Op::Sum)?; // wrong
    let _ = &one; // wrong
    // right: epoch.fetch_and_op(&one, &mut old, at, Op::Sum)?;
    epoch.complete(&s)?;
    exposed.wait(&s)?;
    Ok(())
}
