//! `stream!` declares a variable under a name that the program cannot see; this looks for it under the stream's name.
#![forbid(unsafe_code)]

use tidegate::__private::{StreamsDoNotMix, named};
use tidegate::host::prelude::*;

fn main() -> Result<()> {
    let world = World::init()?;
    stream!(let s = world.stream()?);
    let mark: StreamsDoNotMix<'_> = s;
    drop(mark);
    named!(other = 7);
    drop(other);
    Ok(())
}
