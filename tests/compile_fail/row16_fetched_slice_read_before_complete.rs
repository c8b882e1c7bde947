use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = AtomicWindow::<u64>::new("w", 4);
    let at = window.target(0);
    let (inbox, outbox) = window.open(&s)?;
    let numbers = Region::from_slice(&world, &[0, 1, 2, 3])?.on(&s)?;
    let mut old = Region::from_slice(&world, &[9; 4])?.on(&s)?;
    let exposed = inbox.post(&s)?;
    let mut epoch = outbox.start();
    epoch.fetch_and_op(numbers.slice(2..3)?, old.slice_mut(1..2)?, at.at(2), Op::Sum)?;
    assert_eq!(old.into_host(&s)?[..], [9, 0, 9, 9]); // wrong
    epoch.complete(&s)?;
    // right: assert_eq!(old.into_host(&s)?[..], [9, 0, 9, 9]);
    exposed.wait(&s)?;
    Ok(())
}
