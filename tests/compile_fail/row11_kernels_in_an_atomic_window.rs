use tidegate::host::prelude::*;

pub fn main() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = AtomicWindow::<u64>::new("w", 4); // wrong
    let _to = window.target(0); // wrong
    // right: let mut window = RangeWindow::<u64>::new("w", 4);
    // right: let _to = window.range_to(0, 0..4);
    let (inbox, outbox) = window.open(&s)?;
    let exposed = inbox.post(&s)?;
    let opened = outbox.open(&s)?;
    opened.complete(&s)?;
    exposed.wait(&s)?;
    s.synchronize()
}
