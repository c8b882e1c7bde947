//! Not all bytes are a `bool`.
#![forbid(unsafe_code)]

use tidegate::element::PodElement;
use tidegate::host::prelude::*;

fn main() {
    World::local(1, |world: World| {
        drop(Region::from_slice(&world, &[PodElement(true)]));
        drop(Region::from_vec(&world, vec![PodElement('a')]));
    });
}
