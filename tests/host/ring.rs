//! The ring, with ranks as threads.

use tidegate::host::prelude::*;

use crate::common::ring;

#[test]
fn all_sizes_and_buffers() {
    for n in [1, 2, 3, 8] {
        for buffers in [tidegate::Buffers::Single, tidegate::Buffers::Double] {
            for result in World::local(n, |world| ring::run(world, buffers, 30)) {
                result.unwrap();
            }
        }
    }
}
