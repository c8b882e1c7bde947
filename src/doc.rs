//! What the examples of the documentation do before their first line: they make ranks, a stream, a window. This module is
//! not part of the interface.

use crate::host::prelude::*;
use crate::window::{Discipline, Window};

/// Runs an example on `n` ranks, and panics if it fails on one of them.
pub fn ranks(n: usize, example: impl Fn(World) -> Result<()> + Sync) {
    for outcome in World::local(n, example) {
        outcome.expect("the example runs");
    }
}

/// Runs an example on one rank, with a stream.
pub fn stream(example: impl for<'s> Fn(&World, &Stream<'s>) -> Result<()> + Sync) {
    ranks(1, |world| {
        stream!(let s = world.stream()?);
        example(&world, &s)
    });
}

/// The two halves of a window.
type Halves<'s, K> = (Inbox<'s, u64, K>, Outbox<'s, u64, K>);

/// Runs an example on two ranks, with a window, the handles that its declaration returned, and a region of `values`.
fn window<K: Discipline, H>(
    declare: impl Fn(&World) -> (Window<u64, K>, H) + Sync,
    values: &[u64],
    example: impl for<'s> Fn(&Stream<'s>, Halves<'s, K>, H, Region<u64, On<'s>>) -> Result<()> + Sync,
) {
    ranks(2, |world| {
        stream!(let s = world.stream()?);
        let (window, handles) = declare(&world);
        let src = Region::from_slice(&world, values)?.on(&s)?;
        example(&s, window.open(&s)?, handles, src)
    });
}

/// Runs an example on two ranks, with a window by slot: each has a slot of 4 elements for the other, and 4 elements to put.
pub fn slots(
    example: impl for<'s> Fn(
        &Stream<'s>,
        (Inbox<'s, u64>, Outbox<'s, u64>),
        (In<u64>, Out<u64>),
        Region<u64, On<'s>>,
    ) -> Result<()>
    + Sync,
) {
    let declare = |world: &World| {
        let mut window = SlotWindow::new("slots");
        let peer = 1 - world.rank();
        let handles = (window.slot_from(peer, 0, 4), window.slot_to(peer, 0));
        (window, handles)
    };
    window(declare, &[7; 4], example);
}

/// Runs an example on two ranks, with a window by range of 8 elements. Each rank may access the first 4 elements of
/// the other rank's memory, and has 4 elements to put.
pub fn ranges(
    example: impl for<'s> Fn(
        &Stream<'s>,
        (Inbox<'s, u64, ByRange>, Outbox<'s, u64, ByRange>),
        Out<u64>,
        Region<u64, On<'s>>,
    ) -> Result<()>
    + Sync,
) {
    let declare = |world: &World| {
        let mut window = RangeWindow::new("ranges", 8);
        let to = window.range_to(1 - world.rank(), 0..4);
        (window, to)
    };
    window(declare, &[7; 4], example);
}

/// Runs an example on two ranks, with an atomic window of 2 elements: each may access those of rank 0, and has the number
/// 1 as an operand.
pub fn counters(
    example: impl for<'s> Fn(
        &Stream<'s>,
        (Inbox<'s, u64, Atomic>, Outbox<'s, u64, Atomic>),
        Out<u64>,
        Region<u64, On<'s>>,
    ) -> Result<()>
    + Sync,
) {
    let declare = |_: &World| {
        let mut window = AtomicWindow::new("counters", 2);
        let counters = window.target(0);
        (window, counters)
    };
    window(declare, &[1], example);
}
