//! A value borrows the stream for as long as its brand lasts, uses it in its drop, and is declared before the stream.
#![forbid(unsafe_code)]

use tidegate::host::prelude::*;

struct Uses<'s>(&'s Stream<'s>);

impl Drop for Uses<'_> {
    fn drop(&mut self) {
        drop(self.0.synchronize());
    }
}

fn main() -> Result<()> {
    let world = World::init()?;
    let uses;
    stream!(let s = world.stream()?);
    uses = Uses(&s);
    uses.0.synchronize()
}
