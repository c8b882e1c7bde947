//! Why a wait ended: every rank is told the rank that caused it, even if other ranks have left by then.

use std::sync::{Arc, Barrier};
use std::time::Duration;

use tidegate::error::{Cause, StreamError};
use tidegate::host::prelude::*;

/// A window from the rank before to the rank after, on a line of ranks.
fn link<'s>(s: &Stream<'s>) -> Result<(Inbox<'s, u64>, Outbox<'s, u64>)> {
    let (rank, size) = (s.world().rank(), s.world().size());
    let mut window = SlotWindow::new("line").buffers(Buffers::Single);
    if rank > 0 {
        window.slot_from(rank - 1, 0, 1);
    }
    if rank + 1 < size {
        window.slot_to(rank + 1, 0);
    }
    window.open(s)
}

/// On rank 0 a kernel panics before its put, and each rank puts on what it has got. Returns the error of each rank.
/// `after` is what rank 0 does before it looks.
fn line(after: fn()) -> Vec<Result<()>> {
    World::local(4, |world| {
        stream!(let s = world.stream()?);
        let (inbox, outbox) = link(&s)?;
        let mut x = Region::<u64, _>::zeroed(&world, 1)?.on(&s)?;
        let inbox = inbox.post(&s)?.wait(&s)?;
        if world.rank() == 0 {
            s.launch(|_: &mut [u64]| panic!("out of cheese"), &mut x)?;
        }
        let slots = outbox.slots();
        let mut epoch = outbox.start();
        for to in slots {
            epoch.put(&x, to)?;
        }
        let outbox = epoch.complete(&s)?;
        if world.rank() == 0 {
            after();
        }
        let result = s.synchronize();
        drop((inbox, outbox));
        // As with `?` in a `main`: the rank that failed leaves, and so do those that were told.
        result
    })
}

fn check(results: &[Result<()>]) {
    assert!(matches!(
        results[0],
        Err(Error::Stream(StreamError::KernelPanicked { rank: 0, .. }))
    ));
    for result in &results[1..] {
        let cause = match result {
            Err(Error::Wait(failed)) => &failed.cause,
            // A rank that comes late finds the window revoked, if an epoch was left open by then.
            Err(Error::Revoked { cause, .. }) => cause,
            other => panic!("{other:?}"),
        };
        let Cause::StreamFailed { rank, reason, .. } = cause else {
            panic!("{result:?}");
        };
        assert!(*rank == 0 && reason.contains("out of cheese"), "{cause}");
    }
}

#[test]
fn a_kernel_that_panics_is_named_by_all() {
    check(&line(|| ()));
}

#[test]
fn also_where_its_rank_has_not_looked() {
    check(&line(|| std::thread::sleep(Duration::from_secs(2))));
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("out of cheese");
    }
}

/// The stream drops a recording that the program dropped while a replay was running.
#[test]
fn a_recorded_kernel_whose_drop_panics_is_named_by_all() {
    let results = World::local(2, |world: World| -> Result<()> {
        stream!(let s = world.stream()?);
        let (inbox, outbox) = link(&s)?;
        let x = Region::<u64, _>::zeroed(&world, 1)?.on(&s)?;
        let inbox = inbox.post(&s)?.wait(&s)?;
        if world.rank() == 0 {
            let gate = Arc::new(Barrier::new(2));
            let (bomb, hold) = (Arc::new(Bomb), gate.clone());
            let (graph, x) = s.capture(x, move |s, mut x| {
                let kernel = move |_: &mut [u64]| {
                    let _bomb = &bomb;
                    hold.wait();
                };
                s.launch(kernel, &mut x)?;
                Ok(x)
            })?;
            let x = graph.replay(&s, x, 1)?;
            drop(graph);
            gate.wait();
            drop(x);
        }
        // The stream may have failed by now, and then the epoch is refused.
        let completed = outbox.start().complete(&s);
        let result = s.synchronize();
        drop((inbox, completed.is_ok()));
        result
    });
    check(&results);
}

/// The most common program: `?` drops everything that cannot go on.
#[test]
fn an_epoch_that_a_failure_leaves_open_is_not_said_to_be_dropped() {
    let results = World::local(2, |world: World| -> Result<()> {
        let (rank, other) = (world.rank(), 1 - world.rank());
        stream!(let s = world.stream()?);
        let mut window = SlotWindow::<u64>::new("w").buffers(Buffers::Single);
        window.slot_from(other, 0, 1);
        window.slot_to(other, 0);
        let (inbox, outbox) = window.open(&s)?;
        let mut x = Region::<u64, _>::zeroed(&world, 1)?.on(&s)?;
        let exposed = inbox.post(&s)?;
        if rank == 0 {
            s.launch(|_: &mut [u64]| panic!("out of cheese"), &mut x)?;
            while !s.is_idle() {
                std::thread::yield_now();
            }
        }
        // Rank 0's stream has failed by now.
        let inbox = exposed.wait(&s)?;
        let result = s.synchronize();
        drop((inbox, outbox));
        result
    });
    check(&results);
}
