//! Writes, reads and atomic operations.

use std::time::Instant;

use tidegate_ffi::fabric::*;

use crate::support::{LONG, Pair, hints, library};

const SOCKETS: &str = "sockets";
const TCP: &str = "tcp;ofi_rxm";
const SHM: &str = "shm";

fn caps() -> Caps {
    Caps::RMA | Caps::ATOMIC
}

#[test]
fn a_write_arrives_and_the_targets_counter_counts_it() {
    let Some(library) = library("a write and a remote counter") else {
        return;
    };
    let pair =
        Pair::open(&library, &hints(SOCKETS, caps() | Caps::RMA_EVENT), 8).expect("two ends");
    pair.a.store(0, 42);
    // SAFETY: the word is registered, and not written until the completion is there.
    pair.post(|| unsafe { pair.a.endpoint.write(pair.a.local(0, 1), pair.word(3), 7) });
    let done = pair.complete(1);
    assert_eq!(done[0].context, 7);
    let came = pair.b.came.as_ref().expect("a counter");
    assert!(came.wait(1, LONG).expect("waited"));
    assert_eq!((pair.b.load(3), came.read(), came.read_err()), (42, 1, 0));
    assert_eq!(pair.a.written.read(), 1);
}
