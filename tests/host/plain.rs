//! Plain calls that fail. The token is gone, so every rank that waits for it is told why at once. And side effects that
//! such a failure must not have.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::Duration;

use tidegate::error::DeviceError;
use tidegate::error::{CaptureError, Cause, EpochError, RegionError, StreamError};
use tidegate::host::prelude::*;
use tidegate::window::Tested;

type Halves<'s> = (Inbox<'s, u64>, Outbox<'s, u64>);

/// A rank that waits longer was not told, and then the cause is another one.
const LONG: Duration = Duration::from_secs(20);

/// A window from both ranks to both, or only to the other one.
fn window<'s>(name: &str, with_myself: bool, s: &Stream<'s>) -> Result<Halves<'s>> {
    let me = s.world().rank();
    let mut window = SlotWindow::new(name).buffers(Buffers::Single);
    window.slot_from(1 - me, 0, 1);
    window.slot_to(1 - me, 0);
    if with_myself && me == 1 {
        window.slot_from(me, 0, 1);
        window.slot_to(me, 0);
    }
    window.fail_after(LONG).open(s)
}

fn region<'s>(s: &Stream<'s>) -> Result<Region<u64, On<'s>>> {
    Region::zeroed(s.world(), 1)?.on(s)
}

/// An epoch with the other rank.
fn epoch<'s>(s: &Stream<'s>, (inbox, outbox): Halves<'s>) -> Result<Halves<'s>> {
    let exposed = inbox.post(s)?;
    let outbox = outbox.start().complete(s)?;
    Ok((exposed.wait(s)?, outbox))
}

fn cause(error: Error) -> Cause {
    match error {
        Error::Wait(failed) => failed.cause,
        Error::Revoked { cause, .. } => cause,
        other => panic!("{other}"),
    }
}

/// Rank 1 makes a call that fails. Returns its error, and the error of rank 0, which waits for it.
fn told(
    with_myself: bool,
    fails: impl for<'s> Fn(&mut Stream<'s>, Halves<'s>) -> Error + Sync,
) -> (String, Cause) {
    let over = Barrier::new(2);
    let mut results = World::local(2, |world: World| {
        stream!(let mut s = world.stream().unwrap());
        let halves = window("w", with_myself, &s).unwrap();
        if world.rank() == 1 {
            let error = fails(&mut s, halves).to_string();
            over.wait();
            return (error, None);
        }
        // An earlier failure counts: here the window is revoked by now, or will be.
        let waited = epoch(&s, halves);
        let error = waited.map(drop).and_then(|()| s.synchronize()).unwrap_err();
        over.wait();
        (String::new(), Some(cause(error)))
    });
    let error = results.pop().unwrap().0;
    (error, results.pop().unwrap().1.unwrap())
}

/// Like [`told`], if rank 0 should be told rank 1's error.
fn is_told(with_myself: bool, fails: impl for<'s> Fn(&mut Stream<'s>, Halves<'s>) -> Error + Sync) {
    let (error, cause) = told(with_myself, fails);
    assert_eq!(
        cause,
        Cause::NotEnqueued {
            rank: 1,
            reason: error
        }
    );
}

#[track_caller]
fn failed<T>(result: Result<T>, is: fn(&Error) -> bool) -> Error {
    let error = result.err().expect("it fails");
    assert!(is(&error), "{error}");
    error
}

fn is_of_no_group(error: &Error) -> bool {
    matches!(error, Error::Epoch(EpochError::NotInGroup { .. }))
}

fn is_of_oneself(error: &Error) -> bool {
    matches!(error, Error::Epoch(EpochError::SelfDeadlock { .. }))
}

#[test]
fn a_group_that_is_wrong() {
    let wrong = || Group::new([1]);
    is_told(false, |s, (inbox, _outbox)| {
        failed(inbox.post_to(s, &wrong()), is_of_no_group)
    });
    is_told(false, |s, (inbox, _outbox)| {
        failed(inbox.expose_to(s, &wrong()), is_of_no_group)
    });
    is_told(false, |_, (_inbox, outbox)| {
        failed(outbox.start_to(&wrong()), is_of_no_group)
    });
}

#[test]
fn a_wait_for_oneself() {
    is_told(true, |s, (inbox, _outbox)| {
        failed(inbox.expose(s), is_of_oneself)
    });
    is_told(true, |s, (inbox, _outbox)| {
        failed(inbox.post(s).unwrap().wait(s), is_of_oneself)
    });
    is_told(true, |s, (_inbox, outbox)| {
        failed(outbox.start().complete(s), is_of_oneself)
    });
    is_told(true, |s, (inbox, outbox)| {
        let epoch = outbox.start_to(&Group::new([0])).unwrap();
        failed(exchange(s, inbox, epoch), is_of_oneself)
    });
}

#[test]
fn an_epoch_that_overlaps() {
    let overlaps = |error: &Error| matches!(error, Error::Epoch(EpochError::Overlap { .. }));
    is_told(false, |s, (_inbox, outbox)| {
        let x = region(s).unwrap();
        let to = outbox.slots().next().expect("there is one");
        let mut epoch = outbox.start();
        epoch.put(&x, to).unwrap();
        epoch.put(&x, to).unwrap();
        failed(epoch.complete(s), overlaps)
    });
    is_told(false, |s, (inbox, outbox)| {
        let x = region(s).unwrap();
        let to = outbox.slots().next().expect("there is one");
        let mut epoch = outbox.start();
        epoch.put(&x, to).unwrap();
        epoch.put(&x, to).unwrap();
        failed(exchange(s, inbox, epoch), overlaps)
    });
}

/// A step that fails has got everything that it was lent, whatever it has done with it.
#[test]
fn a_step_that_fails() {
    for kept in [false, true] {
        is_told(false, |s, lent| {
            let captured = s.capture(lent, |_, lent| {
                if kept {
                    // Nothing drops it.
                    std::mem::forget(lent);
                } else {
                    drop(lent);
                }
                let number = "many".parse::<u64>();
                Err(Error::other(number.unwrap_err()))
            });
            let error = failed(captured, |error| matches!(error, Error::Other(_)));
            assert_eq!(error.to_string(), "invalid digit found in string");
            error
        });
    }
    is_told(false, |s, (inbox, outbox)| {
        let captured = s.capture((inbox, outbox), |s, (inbox, outbox)| {
            s.synchronize()?;
            Ok((inbox, outbox))
        });
        failed(captured, |error| {
            matches!(error, Error::Capture(CaptureError::Inside { .. }))
        })
    });
    // If the step waits, the exposure is gone.
    is_told(false, |s, (inbox, outbox)| {
        let captured = s.capture((inbox, outbox), |s, (inbox, outbox)| {
            match inbox.post(s)?.test(s)? {
                Tested::Done(inbox) => Ok((inbox, outbox)),
                Tested::Pending(_) => unreachable!("it is not asked"),
            }
        });
        failed(captured, |error| {
            matches!(error, Error::Capture(CaptureError::Inside { .. }))
        })
    });
}

#[test]
fn what_is_given_back_in_another_place() {
    is_told(false, |s, (inbox, outbox)| {
        let lent = ((region(s).unwrap(), region(s).unwrap()), (inbox, outbox));
        let captured = s.capture(lent, |_, ((a, b), halves)| Ok(((b, a), halves)));
        failed(captured, |error| {
            matches!(error, Error::Capture(CaptureError::NotReplayable { .. }))
        })
    });
    is_told(false, |s, (inbox, outbox)| {
        let (graph, _x) = s.capture(region(s).unwrap(), |_, x| Ok(x)).unwrap();
        let replayed = graph.replay(s, (inbox, outbox), 1);
        failed(replayed, |error| {
            matches!(error, Error::Capture(CaptureError::OtherGraph { .. }))
        })
    });
}

#[test]
fn a_stream_of_another_world() {
    is_told(false, |s, (inbox, _outbox)| {
        let world = World::init().unwrap();
        stream!(let other = world.stream().unwrap());
        failed(s.hand_off(inbox, &other), |error| {
            error.to_string().contains("different worlds")
        })
    });
    is_told(false, |s, (inbox, _outbox)| {
        let world = World::init().unwrap();
        stream!(let mut other = world.stream().unwrap());
        let captured = s.capture_with(&mut other, (inbox, ()), |_, _, lent| Ok(lent));
        failed(captured, |error| {
            error.to_string().contains("different worlds")
        })
    });
}

/// Blocks a stream until the returned value is dropped.
fn hold<'s>(s: &Stream<'s>, x: &mut Region<u64, On<'s>>) -> mpsc::Sender<()> {
    let (go, gate) = mpsc::channel();
    let gate = Arc::new(Mutex::new(gate));
    let held = move |_: &mut [u64]| {
        let _ended = gate.lock().unwrap().recv();
    };
    s.launch(held, x).unwrap();
    go
}

/// The queue has no room, for each call that takes a half of a window.
#[test]
fn a_full_queue() {
    const CALLS: usize = 8;
    let over = Barrier::new(2);
    World::local(2, |world: World| {
        stream!(let mut s = world.stream().unwrap());
        let names: Vec<_> = (0..CALLS).map(|call| format!("w{call}")).collect();
        if world.rank() == 0 {
            let halves: Vec<_> = (names.iter())
                .map(|name| window(name, false, &s).unwrap())
                .collect();
            for (call, halves) in halves.into_iter().enumerate() {
                stream!(let t = world.stream().unwrap());
                let halves = s.hand_off(halves, &t);
                let waited = halves.and_then(|halves| epoch(&t, halves));
                let error = waited.map(drop).and_then(|()| t.synchronize()).unwrap_err();
                let Cause::NotEnqueued { rank: 1, reason } = cause(error) else {
                    panic!("call {call}");
                };
                assert!(reason.contains("is full"), "call {call}: {reason}");
            }
            over.wait();
            return;
        }
        stream!(let other = world.stream().unwrap());
        let handed = window(&names[0], false, &other).unwrap();
        let mut halves: Vec<_> = (names[1..].iter())
            .map(|name| window(name, false, &s).unwrap())
            .collect();
        let mut next = || halves.pop().unwrap();
        let replayed = next();
        let (graph, replayed) = s.capture(replayed, epoch).unwrap();
        let (waits, _outbox) = next();
        let waits = waits.post(&s).unwrap();
        let mut x = region(&s).unwrap();
        // Both streams are busy until everything has been checked.
        let mut y = region(&other).unwrap();
        let gates = [hold(&s, &mut x), hold(&other, &mut y)];
        let full = |error: &Error| matches!(error, Error::Device(DeviceError::QueueFull { .. }));
        while s.launch(|_: &mut [u64]| {}, &mut x).is_ok() {}
        failed(next().0.post(&s), full);
        failed(next().1.start().complete(&s), full);
        let (inbox, outbox) = next();
        failed(exchange(&s, inbox, outbox.start()), full);
        failed(next().0.expose(&s), full);
        let nobody_else = Group::new([0]);
        failed(next().0.post_to(&s, &nobody_else), full);
        failed(waits.wait(&s), full);
        failed(graph.replay(&s, replayed, 1), full);
        failed(other.hand_off(handed, &s), full);
        over.wait();
        drop(gates);
        // Everything else of the program still works.
        s.synchronize().unwrap();
    });
}

/// The window is revoked already, and not because of the plain call.
#[test]
fn an_earlier_cause_stays() {
    let begun = Barrier::new(3);
    let causes = World::local(3, |world: World| {
        stream!(let s = world.stream().unwrap());
        let others = (0..3).filter(|rank| *rank != world.rank());
        let mut window = SlotWindow::<u64>::new("w").fail_after(LONG);
        for other in others {
            window.slot_from(other, 0, 1);
            window.slot_to(other, 0);
        }
        let (inbox, outbox) = window.open(&s).unwrap();
        if world.rank() == 0 {
            drop(outbox.start());
        }
        begun.wait();
        // Rank 1 has failed when rank 2 makes its call.
        if world.rank() == 2 {
            begun.wait();
        }
        let waited = inbox.post(&s).and_then(|exposed| exposed.wait(&s));
        let error = waited.map(drop).and_then(|()| s.synchronize()).unwrap_err();
        if world.rank() != 2 {
            begun.wait();
        }
        cause(error)
    });
    for cause in causes {
        assert!(matches!(cause, Cause::Dropped { rank: 0, .. }), "{cause}");
    }
}

/// The reason is a failed stream.
#[test]
fn a_failed_stream_is_the_cause() {
    let (_error, cause) = told(false, |s, (inbox, _outbox)| {
        let mut x = region(s).unwrap();
        s.launch(|_: &mut [u64]| panic!("out of cheese"), &mut x)
            .unwrap();
        s.synchronize().unwrap_err();
        failed(inbox.post(s), |error| {
            matches!(error, Error::Stream(StreamError::KernelPanicked { .. }))
        })
    });
    match &cause {
        Cause::StreamFailed {
            rank: 1, reason, ..
        } => {
            assert!(reason.contains("out of cheese"), "{reason}");
        }
        other => panic!("{other}"),
    }
}

/// After the last epoch no rank waits for another one. Work that was enqueued before is carried out.
#[test]
fn behind_the_last_epoch_nothing_is_revoked() {
    static SEEN: AtomicU64 = AtomicU64::new(0);
    // As many as there can be, less one: see `Error::Epoch(EpochError::LastEpoch)`.
    let most = (1u64 << 36) - (1 << 20);
    let refused = Barrier::new(2);
    World::local(2, |world: World| {
        stream!(let s = world.stream().unwrap());
        let other = 1 - world.rank();
        let mut window = SlotWindow::<u64>::new("w")
            .fail_after(LONG)
            .after_epochs(most - 1);
        let from = window.slot_from(other, 0, 1);
        let way = window.slot_to(other, 0);
        let (inbox, outbox) = window.open(&s).unwrap();
        let x = Region::from_slice(&world, &[7]).unwrap().on(&s).unwrap();
        if world.rank() == 0 {
            // All of this rank's work is still to come when the other rank has been refused.
            refused.wait();
        }
        let exposed = inbox.post(&s).unwrap();
        let mut epoch = outbox.start();
        epoch.put(&x, way).unwrap();
        let outbox = epoch.complete(&s).unwrap();
        let mut inbox = exposed.wait(&s).unwrap();
        let last = |error: &Error| matches!(error, Error::Epoch(EpochError::LastEpoch { .. }));
        if world.rank() == 1 {
            failed(inbox.post(&s), last);
            failed(outbox.start().complete(&s), last);
            refused.wait();
            return s.synchronize().unwrap();
        }
        assert_eq!(inbox.read(&s).unwrap().slot(from), [7]);
        SEEN.fetch_add(1, Ordering::Relaxed);
        let epoch = outbox.start();
        failed(exchange(&s, inbox, epoch), last);
    });
    assert_eq!(SEEN.load(Ordering::Relaxed), 1);
}

/// No rank waits for a half without a peer, so the window goes on without it.
#[test]
fn a_half_that_nobody_waits_for_revokes_nothing() {
    let gone = Barrier::new(2);
    World::local(2, |world: World| {
        stream!(let s = world.stream().unwrap());
        let mut window = SlotWindow::<u64>::new("w").fail_after(LONG);
        if world.rank() == 0 {
            window.slot_from(1, 0, 1);
        } else {
            window.slot_to(0, 0);
        }
        let (mut inbox, mut outbox) = window.open(&s).unwrap();
        if world.rank() == 1 {
            failed(inbox.post_to(&s, &Group::new([0])), is_of_no_group);
            gone.wait();
            for _ in 0..3 {
                outbox = outbox.start().complete(&s).unwrap();
            }
        } else {
            gone.wait();
            for _ in 0..3 {
                inbox = inbox.expose(&s).unwrap();
            }
        }
        s.synchronize().unwrap();
    });
}

/// If a failed call has dropped a region, its memory is freed when the stream has passed. If it was asked for, it is
/// returned.
#[test]
fn regions() {
    World::local(1, |world: World| {
        stream!(let s = world.stream().unwrap());
        let x = Region::from_slice(&world, &[1u64, 2, 3]).unwrap();
        let refused = x.try_split_at(4).expect_err("it has three");
        assert!(matches!(
            refused.error,
            Error::Region(RegionError::OutOfBounds { .. })
        ));
        let (low, high) = refused.value.split_at(1).unwrap();
        let refused = high
            .try_join(low)
            .expect_err("they are the wrong way round");
        let (high, low) = refused.value;
        let mut x = low.join(high).unwrap().on(&s).unwrap();
        s.launch(|_: &mut [u64]| panic!("on purpose"), &mut x)
            .unwrap();
        let refused = x.try_into_host(&s).expect_err("the stream has failed");
        assert!(matches!(
            refused.error,
            Error::Stream(StreamError::KernelPanicked { .. })
        ));
        failed(refused.value.into_host(&s), |error| {
            matches!(error, Error::Stream(StreamError::KernelPanicked { .. }))
        });
    });
}
