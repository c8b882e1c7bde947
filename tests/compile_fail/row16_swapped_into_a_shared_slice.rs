use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = AtomicWindow::<u64>::new("w", 4);
    let at = window.target(0);
    let (mut inbox, outbox) = window.open(&s)?;
    let numbers = Region::from_slice(&world, &[0, 1, 2, 3])?.on(&s)?;
    let mut old = Region::from_slice(&world, &[9; 4])?.on(&s)?;
    let exposed = inbox.post(&s)?;
    let mut epoch = outbox.start();
    epoch.compare_and_swap(numbers.slice(0..1)?, numbers.slice(3..4)?, old.slice(1..2)?, at.at(2))?; // wrong
    // right: epoch.compare_and_swap(numbers.slice(0..1)?, numbers.slice(3..4)?, old.slice_mut(1..2)?, at.at(2))?;
    epoch.complete(&s)?;
    inbox = exposed.wait(&s)?;
    assert_eq!(inbox.host_mut(&s)?, [0, 0, 3, 0]);
    assert_eq!(old.into_host(&s)?[..], [9, 0, 9, 9]);
    Ok(())
}
