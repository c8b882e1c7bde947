//! What `stream!` declares under a name that nobody sees is looked for under the stream's.
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
