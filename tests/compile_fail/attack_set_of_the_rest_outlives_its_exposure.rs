//! The exposure holds the set.
#![forbid(unsafe_code)]

use tidegate::host::prelude::*;

fn main() -> Result<()> {
    let world = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = RangeWindow::<f64>::new("w", 4);
    window.range_to(0, 0..2);
    let (inbox, _outbox) = window.open(&s)?;
    let exposed = inbox.post(&s)?;
    let set = exposed.rest()?.set();
    drop(exposed);
    assert!(set.contains(3));
    Ok(())
}
