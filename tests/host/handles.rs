//! Attacks by safe code on plain data and on values that leave their scope: handles in wrong places, memory that
//! returns to the program, futures that are never ended. Each is refused with a typed error, or does no harm.

#![forbid(unsafe_code)]

use std::future::Future as _;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};

use tidegate::Rejected;
use tidegate::error::{CaptureError, EpochError, StreamError, WindowError};
use tidegate::host::prelude::*;
use tidegate::window::OutOnce;

fn alone(program: impl Fn(World) -> Result<()> + Sync) {
    World::local(1, program).pop().unwrap().unwrap();
}

/// A window of two slots from this rank to itself.
#[expect(clippy::type_complexity, reason = "all that a window has, plainly")]
fn window<'s>(
    s: &Stream<'s>,
    name: &str,
) -> Result<(Inbox<'s, u64>, Outbox<'s, u64>, [In<u64>; 2], [Out<u64>; 2])> {
    let mut window = SlotWindow::new(name);
    let from = [0, 1].map(|key| window.slot_from(0, key, 4));
    let to = [0, 1].map(|key| window.slot_to(0, key));
    let (inbox, outbox) = window.open(s)?;
    Ok((inbox, outbox, from, to))
}

fn is_foreign<T>(result: Result<T>) -> bool {
    matches!(result, Err(Error::Epoch(EpochError::ForeignSlot { .. })))
}

fn is_expired<T>(result: Result<T>) -> bool {
    matches!(result, Err(Error::Epoch(EpochError::SlotExpired { .. })))
}

fn is_taken<T>(result: Result<T>) -> bool {
    matches!(result, Err(Error::Epoch(EpochError::SlotTaken { .. })))
}

/// The same window again, with the same name, type and slots, has other handles. So has another rank's, whose handle a
/// thread brings.
#[test]
fn handles_of_the_window_before_and_of_another_rank() {
    let (send, receive) = mpsc::channel::<Out<u64>>();
    let ends = std::sync::Mutex::new((send, receive));
    let ends = &ends;
    let outcomes = World::local(2, |world: World| -> Result<()> {
        let (rank, peer) = (world.rank(), 1 - world.rank());
        stream!(let s = world.stream()?);
        let x = Region::from_slice(&world, &[7u64; 4])?.on(&s)?;
        let open = || -> Result<_> {
            let mut window = SlotWindow::new("again");
            let (from, to) = (window.slot_from(peer, 0, 4), window.slot_to(peer, 0));
            Ok((window.open(&s)?, from, to))
        };
        let (halves, old_from, old_to) = open()?;
        drop(halves);
        let ((mut inbox, outbox), from, to) = open()?;
        assert!(old_to != to && old_from != from);
        let others = if rank == 0 {
            ends.lock().unwrap().0.send(to).unwrap();
            old_to
        } else {
            loop {
                if let Ok(out) = ends.lock().unwrap().1.try_recv() {
                    break out;
                }
                std::thread::yield_now();
            }
        };
        let mut epoch = outbox.start();
        assert!(is_foreign(epoch.put(&x, old_to)));
        assert!(is_foreign(epoch.put(x.slice(0..0)?, others.at(usize::MAX))));
        assert!(is_foreign(epoch.take([to, others])));
        // Nothing was taken, and nothing was noted.
        let [once] = epoch.take([to])?;
        epoch.put(&x, once)?;
        (inbox, _) = exchange(&s, inbox, epoch)?;
        assert_eq!(inbox.read(&s)?[from], [7; 4]);
        // A kernel that uses the old handle panics, and its stream reports that.
        s.launch(
            move |slots: Slots<'_, u64>| assert!(slots[old_from].is_empty()),
            inbox.view(),
        )?;
        let error = s.synchronize().unwrap_err();
        let panicked = matches!(error, Error::Stream(StreamError::KernelPanicked { .. }));
        assert!(panicked, "{error}");
        Ok(())
    });
    outcomes.into_iter().for_each(|outcome| outcome.unwrap());
}

/// A handle that is used once does not work in the next epoch, nor in another window's epoch of the same number. This
/// holds even if a thread keeps it meanwhile, or if an epoch was refused in between.
#[test]
fn a_slot_that_is_used_once_is_taken_once() {
    alone(|world| {
        stream!(let s = world.stream()?);
        let x = Region::from_slice(&world, &[7u64; 4])?.on(&s)?;
        let (inbox, outbox, _, [a, b]) = window(&s, "one")?;
        let (_inbox, other, _, _) = window(&s, "other")?;

        let mut epoch = outbox.start();
        assert!(is_taken(epoch.take([a, a])));
        assert!(is_taken(epoch.take([b, a, b])));
        let [first] = epoch.take([a])?;
        assert!(is_taken(epoch.take([b, a])));
        let [second] = epoch.take([b])?;
        let kept = std::thread::scope(|scope| scope.spawn(move || second).join().unwrap());
        epoch.put(&x, first)?;
        // The plain handle names the same slot. That is found when the epoch is completed.
        epoch.put(x.slice(3..4)?, a.at(3))?;
        let Err(Rejected {
            error,
            value: mut epoch,
        }) = epoch.try_complete(&s)
        else {
            panic!("it was completed");
        };
        assert!(
            matches!(error, Error::Epoch(EpochError::Overlap { .. })),
            "{error}"
        );
        assert!(is_taken(epoch.take([a])));
        drop((inbox, epoch)); // (revokes it)

        let (inbox, outbox, from, [a, b]) = window(&s, "one")?;
        let mut epoch = outbox.start();
        let mut others = other.start();
        assert!(is_foreign(others.put(&x, kept)));
        let [once, kept] = epoch.take([a, b])?;
        assert!(is_foreign(others.put(&x, once)));
        let (inbox, outbox) = exchange(&s, inbox, epoch)?;
        let mut epoch = outbox.start();
        assert!(is_expired(epoch.put(x.slice(0..1)?, kept.at(1))));
        let [again] = epoch.take([a])?;
        epoch.put(&x, again)?;
        let (mut inbox, _outbox) = exchange(&s, inbox, epoch)?;
        let slots = inbox.read(&s)?;
        assert_eq!(
            (&slots[from[0]], &slots[from[1]]),
            (&[7; 4][..], &[0; 4][..])
        );
        Ok(())
    });
}

/// A step is recorded once, and its handle is gone. No epoch has it again, before a replay or after one.
#[test]
fn what_a_recorded_step_has_taken() {
    alone(|world| {
        stream!(let s = world.stream()?);
        let x = Region::from_slice(&world, &[7u64; 4])?.on(&s)?;
        let (inbox, outbox, from, [a, b]) = window(&s, "recorded")?;
        let mut leaked: Option<OutOnce<u64>> = None;
        let (graph, (inbox, outbox, x)) =
            s.capture((inbox, outbox, x), |s, (inbox, outbox, x)| {
                let mut epoch = outbox.start();
                let [once, other] = epoch.take([a, b])?;
                epoch.put(&x, once)?;
                leaked = Some(other);
                let (inbox, outbox) = exchange(s, inbox, epoch)?;
                Ok((inbox, outbox, x))
            })?;
        let mut epoch = outbox.start();
        assert!(is_expired(epoch.put(&x, leaked.take().unwrap())));
        let [kept] = epoch.take([b])?;
        let (inbox, outbox) = exchange(&s, inbox, epoch)?;
        let (mut inbox, outbox, x) = graph.replay(&s, (inbox, outbox, x), 3)?;
        let mut epoch = outbox.start();
        assert!(is_expired(epoch.put(&x, kept)));
        epoch.put(&x, b)?;
        (inbox, _) = exchange(&s, inbox, epoch)?;
        assert_eq!(inbox.read(&s)?[from[1]], [7; 4]);
        Ok(())
    });
}

/// A vector that was a region and becomes one again is not the recorded region.
#[test]
fn a_vector_that_comes_back_to_its_recording() {
    alone(|world| {
        stream!(let s = world.stream()?);
        let x = Region::from_vec(&world, vec![0u64; 4])?.on(&s)?;
        let (graph, x) = s.capture(x, |s, mut x| {
            s.launch(|x: &mut [u64]| x[3] += 1, &mut x)?;
            Ok(x)
        })?;
        let x = graph.replay(&s, x, 1_000)?;
        let mut values = x.into_host(&s)?.into_vec()?;
        assert_eq!(values, [0, 0, 0, 1_000]);
        // It is the same memory, but shorter.
        let address = values.as_ptr();
        values.truncate(2);
        let x = Region::from_vec(&world, values)?.on(&s)?;
        let Err(Rejected { error, value }) = graph.try_replay(&s, x, 1) else {
            panic!("it was replayed");
        };
        assert!(
            matches!(error, Error::Capture(CaptureError::OtherGraph { .. })),
            "{error}"
        );
        // If there are two parts, the second keeps the memory, and the first is copied.
        let (one, other) = value.into_host(&s)?.split_at(1)?;
        let one = one.into_vec()?;
        assert_ne!(one.as_ptr(), address);
        let other = other.on(&s)?;
        s.synchronize()?;
        assert_eq!((one, other.into_host(&s)?.into_vec()?), (vec![0], vec![0]));
        Ok(())
    });
}

/// Futures that have been polled are forgotten, or end on another thread, while their stream works. Nobody else gets
/// the region's memory until the stream has passed it.
#[test]
fn futures_that_nobody_ends() {
    alone(|world| {
        stream!(let s = world.stream()?);
        let (go, wait) = mpsc::channel::<()>();
        let wait = std::sync::Arc::new(std::sync::Mutex::new(wait));
        let region = || -> Result<_> {
            let mut x = Region::from_vec(&world, vec![1u64; 1 << 12])?.on(&s)?;
            let wait = wait.clone();
            let write = move |x: &mut [u64]| {
                wait.lock().unwrap().recv().unwrap();
                x.fill(9);
            };
            s.launch(write, &mut x)?;
            Ok(x)
        };
        let context = &mut Context::from_waker(Waker::noop());
        let mut forgotten = Box::pin(region()?.into_host_async(&s));
        let mut dropped = Box::pin(region()?.into_host_async(&s));
        let mut ended = Box::pin(region()?.into_host_async(&s));
        let mut waits = Box::pin(s.synchronized());
        assert!(forgotten.as_mut().poll(context).is_pending());
        assert!(dropped.as_mut().poll(context).is_pending());
        assert!(ended.as_mut().poll(context).is_pending());
        assert!(waits.as_mut().poll(context).is_pending());
        std::mem::forget(forgotten);
        std::mem::forget(waits);
        let last = std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                drop(dropped);
                let context = &mut Context::from_waker(Waker::noop());
                loop {
                    if let Poll::Ready(last) = ended.as_mut().poll(context) {
                        break last;
                    }
                    std::thread::yield_now();
                }
            });
            // Meanwhile this thread allocates memory of the dropped region's size, and enqueues.
            let others: Vec<_> = (0..8).map(|_| vec![0u64; 1 << 12]).collect();
            for _ in 0..3 {
                go.send(()).unwrap();
                s.launch(|_: &mut [u64]| (), &mut Region::zeroed(&world, 1)?.on(&s)?)?;
            }
            let last = thread.join().unwrap();
            assert!(others.iter().flatten().all(|value| *value == 0));
            last
        })?;
        assert_eq!(last.into_vec()?, vec![9; 1 << 12]);
        s.synchronize()
    });
}

/// Arrays that are larger than memory, boxes whose end is beyond it, and declarations far outside of a window.
#[test]
#[expect(
    clippy::single_range_in_vec_init,
    reason = "one dimension has one range"
)]
fn boxes_of_arrays_that_cannot_be() {
    alone(|world| {
        stream!(let s = world.stream()?);
        let most = usize::MAX;
        for (dims, ranges) in [
            (&[most, 2][..], &[0..1, 0..1][..]),
            (&[1 << 32, 1 << 32], &[0..1, 0..1]),
            (&[0, most, most], &[0..0, 0..1, 0..1]),
            (&[2, 2], &[0..2, 1..most]),
            (&[most], &[most - 1..most]),
            (&[4, 4], &[0..4]),
            (&[], &[]),
        ] {
            let layout: Result<Layout> = Layout::subarray(dims, ranges);
            assert!(layout.is_err(), "{dims:?} {ranges:?}");
        }
        #[expect(clippy::reversed_empty_ranges, reason = "that is the attack")]
        let reversed: Result<Layout> = Layout::subarray(&[4], &[3..1]);
        assert!(reversed.is_err());

        // The largest layout that is accepted is far outside of the region, and of the window.
        let far: Layout = Layout::subarray(&[1 << 40], &[(1 << 40) - 1..1 << 40])?;
        let mut window = RangeWindow::<u64>::new("far", 8);
        window.layout_to(0, &far);
        let refused = window.open(&s).unwrap_err();
        assert!(
            matches!(refused, Error::Open(WindowError::Disagreement { .. })),
            "{refused}"
        );
        let x = Region::from_slice(&world, &[7u64; 8])?.on(&s)?;
        assert!(x.with(&far).is_err());
        let (inbox, outbox, _, [a, _]) = self::window(&s, "slots")?;
        let mut epoch = outbox.start();
        assert!(epoch.put(x.slice(0..1)?, a.with(&far)).is_err());
        let _halves = exchange(&s, inbox, epoch)?;

        // One rank names the same elements twice.
        let column: Layout = Layout::subarray(&[4, 2], &[0..4, 1..2])?;
        let mut window = RangeWindow::<u64>::new("twice", 8);
        window.layout_to(0, &column);
        window.layout_to(0, &column);
        let error = window.open(&s).unwrap_err().to_string();
        assert!(error.contains("overlap in elements 1..2"), "{error}");
        Ok(())
    });
}
