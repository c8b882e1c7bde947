//! `World::init` is a method of a trait: a program gives it to worlds of its own, and gives another one to all.
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
