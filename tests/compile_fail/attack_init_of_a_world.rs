//! `World::init` is a method of a trait. A program implements it for its own worlds, and adds another one for all types.
#![forbid(unsafe_code)]

use tidegate::host::Host;
use tidegate::{Init, Result, WorldOptions};

impl Init for tidegate::host::World {
    fn init_with(_: WorldOptions) -> Result<Self> {
        loop {}
    }
}

struct Mine;

impl Init for tidegate::generic::World<Mine> {
    fn init_with(_: WorldOptions) -> Result<Self> {
        loop {}
    }
}

fn main() {
    drop(<tidegate::generic::World<Host> as Init>::init);
}
