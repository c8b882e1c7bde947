//! A rank that is its own origin: a call that would wait for ever on one stream is refused, and no other call is.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tidegate::error::{Awaited, Cause, EpochError, StreamError};
use tidegate::host::prelude::*;
use tidegate::{Rejected, try_exchange};

/// A job of one rank.
fn alone(program: impl Fn(&World) -> Result<()> + Sync) {
    let results = World::local(1, |world: World| program(&world));
    results.into_iter().for_each(|result| result.unwrap());
}

/// If a call was not refused by mistake, it lasts this long.
const LONG: Duration = Duration::from_secs(300);

/// A window of one number from this rank to itself, with a name of its own.
fn window<'s>(s: &Stream<'s>, buffers: Buffers) -> Result<(Inbox<'s, u64>, Outbox<'s, u64>)> {
    static OPENED: AtomicUsize = AtomicUsize::new(0);
    let name = format!("w{}", OPENED.fetch_add(1, Relaxed));
    let mut window = SlotWindow::new(&name).buffers(buffers).fail_after(LONG);
    window.slot_from(0, 0, 1);
    window.slot_to(0, 0);
    window.open(s)
}

/// Asserts that a call was refused because it would have waited for this. Returns its token.
#[track_caller]
fn refused<T, V>(result: Result<T, Rejected<V>>, what: Awaited) -> V {
    let Rejected { error, value } = result.err().expect("it is refused");
    match &error {
        Error::Epoch(EpochError::SelfDeadlock { awaited, .. }) => assert_eq!(*awaited, what),
        _ => panic!("{error}"),
    }
    value
}

/// Puts a number to this rank.
fn complete<'s>(
    s: &Stream<'s>,
    outbox: Outbox<'s, u64>,
    number: &Region<u64, On<'s>>,
) -> Result<Outbox<'s, u64>> {
    let to = outbox.slots().next().expect("there is one");
    let mut epoch = outbox.start();
    epoch.put(number, to)?;
    epoch.complete(s)
}

/// The number that has come.
fn came(slots: Slots<'_, u64>) -> u64 {
    slots.iter().next().expect("there is one")[0]
}

#[test]
fn exposing_whole_before_the_own_complete() {
    alone(|world| {
        stream!(let s = world.stream()?);
        let number = Region::from_slice(world, &[7])?.on(&s)?;
        let nobody = Group::new([]);
        // With one buffer the complete comes between post and wait. With two it may also come in front of them.
        let (inbox, outbox) = window(&s, Buffers::Single)?;
        let inbox = refused(inbox.try_expose(&s), Awaited::Completion);
        let exposed = inbox.expose_to(&s, &nobody)?.post(&s)?;
        let _outbox = complete(&s, outbox, &number)?;
        assert_eq!(came(exposed.wait(&s)?.read(&s)?), 7);
        let (inbox, outbox) = window(&s, Buffers::Double)?;
        let inbox = refused(inbox.try_expose(&s), Awaited::Completion);
        let _outbox = complete(&s, outbox, &number)?;
        let mut inbox = inbox.expose(&s)?;
        assert_eq!(came(inbox.read(&s)?), 7);
        // That complete has been used.
        let _ = refused(
            inbox.try_expose_to(&s, &Group::new([0])),
            Awaited::Completion,
        );
        s.synchronize()
    });
}

#[test]
fn waiting_before_the_own_complete() {
    alone(|world| {
        stream!(let s = world.stream()?);
        let number = Region::from_slice(world, &[7])?.on(&s)?;
        for buffers in [Buffers::Single, Buffers::Double] {
            let (inbox, outbox) = window(&s, buffers)?;
            let exposed = refused(inbox.post(&s)?.try_wait(&s), Awaited::Completion);
            let outbox = complete(&s, outbox, &number)?;
            let mut inbox = exposed.wait(&s)?;
            assert_eq!(came(inbox.read(&s)?), 7);
            // Nothing can complete any more.
            drop(outbox);
            let _exposed = refused(inbox.post(&s)?.try_wait(&s), Awaited::Completion);
        }
        s.synchronize()
    });
}

/// It would wait for the origin that its epoch leaves out.
#[test]
fn exchanging_without_completing_towards_oneself() {
    alone(|world| {
        stream!(let s = world.stream()?);
        let number = Region::from_slice(world, &[7])?.on(&s)?;
        let (inbox, outbox) = window(&s, Buffers::Double)?;
        let nobody = Group::new([]);
        let epoch = outbox.start_to(&nobody)?;
        let (inbox, epoch) = refused(try_exchange(&s, inbox, epoch), Awaited::Completion);
        let outbox = complete(&s, epoch.complete(&s)?, &number)?;
        let (mut inbox, outbox) = exchange(&s, inbox, outbox.start_to(&nobody)?)?;
        assert_eq!(came(inbox.read(&s)?), 7);
        let _ = exchange(&s, inbox, outbox.start())?;
        s.synchronize()
    });
}

/// Each call is refused because of its own window.
#[test]
fn exchanging_by_halves_of_two_windows() {
    alone(|world| {
        stream!(let s = world.stream()?);
        let number = Region::from_slice(world, &[7])?.on(&s)?;
        let (here, out) = window(&s, Buffers::Double)?;
        let (other, other_out) = window(&s, Buffers::Single)?;
        let (here, epoch) = refused(
            try_exchange(&s, here, other_out.start()),
            Awaited::Completion,
        );
        let out = complete(&s, out, &number)?;
        let (here, epoch) = refused(try_exchange(&s, here, epoch), Awaited::Exposure);
        let other = other.post(&s)?;
        let (mut here, _other_out) = exchange(&s, here, epoch)?;
        assert_eq!(came(here.read(&s)?), 7);
        let _ = other.wait(&s)?;
        let _ = exchange(&s, here, out.start())?;
        s.synchronize()
    });
}

/// On another stream the other half may do its part at any time.
#[test]
fn halves_on_two_streams_wait_for_each_other() {
    alone(|world| {
        stream!(let s = world.stream()?);
        stream!(let t = world.stream()?);
        let number = Region::from_slice(world, &[7])?.on(&t)?;
        let (inbox, outbox) = window(&s, Buffers::Single)?;
        let outbox = s.hand_off(outbox, &t)?;
        let mut inbox = inbox.expose(&s)?.post(&s)?.wait(&s)?;
        let mut outbox = complete(&t, outbox, &number)?;
        for _ in 0..3 {
            outbox = complete(&t, outbox, &number)?;
        }
        inbox = inbox.expose(&s)?.expose(&s)?;
        assert_eq!(came(inbox.read(&s)?), 7);
        t.synchronize()
    });
}

/// Work behind both streams can end no wait of either.
#[test]
fn bringing_halves_together_while_one_waits_for_the_other() {
    alone(|world| {
        stream!(let s = world.stream()?);
        stream!(let t = world.stream()?);
        let number = Region::from_slice(world, &[7])?.on(&t)?;
        for inbox_goes in [false, true] {
            // The outbox waits for a post.
            let (inbox, outbox) = window(&s, Buffers::Single)?;
            let outbox = complete(&t, s.hand_off(outbox, &t)?, &number)?;
            let exposed = match inbox_goes {
                true => refused(s.try_hand_off(inbox, &t), Awaited::Exposure).post(&s)?,
                false => {
                    let outbox = refused(t.try_hand_off(outbox, &s), Awaited::Exposure);
                    let exposed = inbox.post(&s)?;
                    let _ = t.hand_off(outbox, &s)?;
                    exposed
                }
            };
            assert_eq!(came(exposed.wait(&s)?.read(&s)?), 7);
            // The inbox waits for a complete.
            let (inbox, outbox) = window(&s, Buffers::Double)?;
            let outbox = s.hand_off(outbox, &t)?;
            let inbox = inbox.expose(&s)?;
            let (inbox, outbox) = match inbox_goes {
                true => (
                    refused(s.try_hand_off(inbox, &t), Awaited::Completion),
                    outbox,
                ),
                false => (
                    inbox,
                    refused(t.try_hand_off(outbox, &s), Awaited::Completion),
                ),
            };
            // Both may go to a stream on which neither was.
            let outbox = complete(&t, outbox, &number)?;
            let inbox = s.hand_off(inbox, &t)?;
            stream!(let u = world.stream()?);
            let (mut inbox, _outbox) = t.hand_off((inbox, outbox), &u)?;
            assert_eq!(came(inbox.read(&u)?), 7);
        }
        Ok(())
    });
}

/// A half that is handed off leaves its wait behind, on the stream from which it comes.
#[test]
fn coming_where_the_other_half_has_left_a_wait() {
    alone(|world| {
        stream!(let s = world.stream()?);
        stream!(let t = world.stream()?);
        stream!(let u = world.stream()?);
        stream!(let v = world.stream()?);
        let number = Region::from_slice(world, &[7])?.on(&t)?;
        // The outbox leaves two: the first of its completes on one stream, the second on another.
        let (inbox, outbox) = window(&s, Buffers::Single)?;
        let outbox = complete(&t, s.hand_off(outbox, &t)?, &number)?;
        let outbox = t.hand_off(outbox, &u)?.start().complete(&u)?;
        let outbox = u.hand_off(outbox, &v)?;
        let inbox = refused(s.try_hand_off(inbox, &u), Awaited::Exposure);
        let inbox = refused(s.try_hand_off(inbox, &t), Awaited::Exposure);
        // A post ends the first of them. The inbox may go there, but no further.
        let inbox = s.hand_off(inbox.post(&s)?.wait(&s)?, &t)?;
        let inbox = refused(t.try_hand_off(inbox, &u), Awaited::Exposure);
        let exposed = t.hand_off(inbox.post(&t)?, &u)?;
        let inbox = u.hand_off(exposed.wait(&u)?, &s)?;
        // The inbox leaves one.
        let inbox = s.hand_off(inbox.expose(&s)?, &t)?;
        let outbox = refused(v.try_hand_off(outbox, &s), Awaited::Completion);
        let outbox = v.hand_off(outbox.start().complete(&v)?, &s)?;
        let mut inbox = t.hand_off(inbox, &s)?;
        inbox.read(&s)?;
        drop(outbox);
        Ok(())
    });
}

/// What a dropped half has done counts, and it will do no more.
#[test]
fn waiting_for_a_half_that_was_dropped_on_another_stream() {
    alone(|world| {
        stream!(let mut s = world.stream()?);
        stream!(let t = world.stream()?);
        let number = Region::from_slice(world, &[7])?.on(&t)?;
        let (inbox, outbox) = window(&s, Buffers::Double)?;
        let (exposes, inbox) = s.capture(inbox, |s, inbox| inbox.expose(s))?;
        let outbox = complete(&t, s.hand_off(outbox, &t)?, &number)?;
        drop(outbox.start().complete(&t)?);
        let mut inbox = inbox.expose(&s)?;
        assert_eq!(came(inbox.read(&s)?), 7);
        let inbox = refused(exposes.try_replay(&s, inbox, 2), Awaited::Completion);
        let inbox = exposes.replay(&s, inbox, 1)?;
        let inbox = refused(exposes.try_replay(&s, inbox, 1), Awaited::Completion);
        let inbox = refused(inbox.try_expose(&s), Awaited::Completion);
        // It may go to any stream, and waits for nothing.
        let inbox = s.hand_off(inbox, &t)?;
        let mut inbox = inbox.expose_to(&t, &Group::new([]))?;
        inbox.read(&t)?;

        let (inbox, outbox) = window(&s, Buffers::Double)?;
        drop(s.hand_off(inbox, &t)?);
        let outbox = outbox.start().complete(&s)?;
        let epoch = refused(outbox.start().try_complete(&s), Awaited::Exposure);
        // If it were dropped like this it would revoke the window.
        s.synchronize()?;
        drop(epoch);

        // The wait that it left is behind it, too.
        let (inbox, outbox) = window(&s, Buffers::Single)?;
        drop(complete(&t, s.hand_off(outbox, &t)?, &number)?);
        stream!(let u = world.stream()?);
        let inbox = s.hand_off(inbox, &u)?;
        let inbox = refused(u.try_hand_off(inbox, &t), Awaited::Exposure);
        let exposed = u.hand_off(inbox.post(&u)?, &t)?;
        assert_eq!(came(exposed.wait(&t)?.read(&t)?), 7);
        Ok(())
    });
}

/// Nothing waits for an action that the other half cannot do any more, so tokens may be gathered in any order.
#[test]
fn bringing_halves_of_a_revoked_window_together() {
    alone(|world| {
        stream!(let s = world.stream()?);
        stream!(let t = world.stream()?);
        let (inbox, outbox) = window(&s, Buffers::Double)?;
        let outbox = s.hand_off(outbox, &t)?;
        let inbox = inbox.expose(&s)?;
        drop(outbox.start());
        let _ = s.hand_off(inbox, &t)?;
        match s.synchronize() {
            Err(Error::Wait(failed)) => assert!(matches!(failed.cause, Cause::Dropped { .. })),
            other => panic!("{other:?}"),
        }
        Ok(())
    });
}

/// Nothing waits on a failed stream, whichever of the two it is.
#[test]
fn bringing_halves_together_on_a_stream_that_has_failed() {
    alone(|world| {
        stream!(let s = world.stream()?);
        stream!(let t = world.stream()?);
        let mut number = Region::from_slice(world, &[7])?.on(&t)?;
        let (inbox, outbox) = window(&s, Buffers::Single)?;
        let (go, gone) = std::sync::mpsc::channel::<()>();
        let gone = std::sync::Arc::new(std::sync::Mutex::new(gone));
        let fails = move |_: &mut [u64]| {
            gone.lock().unwrap().recv().unwrap();
            panic!("on purpose");
        };
        t.launch(fails, &mut number)?;
        let _outbox = complete(&t, s.hand_off(outbox, &t)?, &number)?;
        let inbox = refused(s.try_hand_off(inbox, &t), Awaited::Exposure);
        go.send(()).unwrap();
        assert!(matches!(
            t.synchronize(),
            Err(Error::Stream(StreamError::KernelPanicked { .. }))
        ));
        let _ = s.hand_off(inbox, &t)?;
        Ok(())
    });
}

/// Fails a stream.
fn fail(s: &Stream<'_>) -> Result<()> {
    let mut number = Region::from_slice(s.world(), &[0u64])?.on(s)?;
    s.launch(|_: &mut [u64]| panic!("on purpose"), &mut number)?;
    assert!(matches!(
        s.synchronize(),
        Err(Error::Stream(StreamError::KernelPanicked { .. }))
    ));
    Ok(())
}

/// A failed stream does not hide what the other one waits for.
#[test]
fn bringing_halves_together_where_the_other_stream_has_failed() {
    alone(|world| {
        // It comes from there to where its other half waits.
        stream!(let s = world.stream()?);
        stream!(let t = world.stream()?);
        let number = Region::from_slice(world, &[7])?.on(&t)?;
        let (inbox, outbox) = window(&s, Buffers::Single)?;
        let outbox = complete(&t, s.hand_off(outbox, &t)?, &number)?;
        fail(&s)?;
        drop(refused(s.try_hand_off(inbox, &t), Awaited::Exposure));
        drop(outbox.start());
        assert!(matches!(t.synchronize(), Err(Error::Wait(_))));

        // On the stream from which it comes, it waits for an action of its other half there.
        stream!(let s = world.stream()?);
        stream!(let t = world.stream()?);
        let (inbox, outbox) = window(&s, Buffers::Double)?;
        let outbox = s.hand_off(outbox, &t)?;
        let inbox = inbox.expose(&s)?;
        fail(&t)?;
        drop(refused(s.try_hand_off(inbox, &t), Awaited::Completion));
        drop(outbox.start());
        assert!(matches!(s.synchronize(), Err(Error::Wait(_))));
        Ok(())
    });
}

/// The work for which a recording waits may be enqueued before each replay.
#[test]
fn recordings_of_one_half() {
    alone(|world| {
        stream!(let mut s = world.stream()?);
        let number = Region::from_slice(world, &[7])?.on(&s)?;
        let (inbox, outbox) = window(&s, Buffers::Single)?;
        let (completes, (outbox, number)) = s
            .capture((outbox, number), |s, (outbox, number)| {
                Ok((complete(s, outbox, &number)?, number))
            })?;
        let lent = refused(
            completes.try_replay(&s, (outbox, number), 1),
            Awaited::Exposure,
        );
        let exposed = inbox.post(&s)?;
        let lent = refused(completes.try_replay(&s, lent, 2), Awaited::Exposure);
        let exposed = refused(exposed.try_wait(&s), Awaited::Completion);
        let (outbox, number) = completes.replay(&s, lent, 1)?;
        let mut inbox = exposed.wait(&s)?;
        assert_eq!(came(inbox.read(&s)?), 7);
        // Recorded work does not hide the rest.
        let epoch = refused(outbox.start().try_complete(&s), Awaited::Exposure);
        let exposed = inbox.post(&s)?;
        let _ = epoch.complete(&s)?;
        let _ = exposed.wait(&s)?;

        let (inbox, outbox) = window(&s, Buffers::Double)?;
        let (exposes, inbox) = s.capture(inbox, |s, inbox| inbox.expose(s))?;
        let inbox = refused(exposes.try_replay(&s, inbox, 1), Awaited::Completion);
        let inbox = exposes.replay(&s, inbox, 0)?;
        let outbox = complete(&s, outbox, &number)?;
        let inbox = refused(exposes.try_replay(&s, inbox, 2), Awaited::Completion);
        let inbox = exposes.replay(&s, inbox, 1)?;
        // The replay checks where the outbox is at home.
        stream!(let t = world.stream()?);
        let outbox = s.hand_off(outbox, &t)?;
        let mut inbox = exposes.replay(&s, inbox, 2)?;
        let outbox = outbox.start().complete(&t)?;
        let _ = outbox.start().complete(&t)?;
        inbox.read(&s)?;
        Ok(())
    });
}

#[test]
fn recordings_of_both_halves() {
    alone(|world| {
        stream!(let mut s = world.stream()?);
        stream!(let mut t = world.stream()?);
        let lent = window(&s, Buffers::Double)?;
        // One complete more than there are waits, and one wait more than there are completes.
        let (ahead, lent) = s.capture(lent, |s, (inbox, outbox)| {
            let outbox = outbox.start().complete(s)?;
            let inbox = inbox.expose(s)?;
            Ok((inbox, outbox.start().complete(s)?))
        })?;
        let (behind, lent) = s.capture(lent, |s, (inbox, outbox)| {
            let (inbox, outbox) = exchange(s, inbox, outbox.start())?;
            Ok((inbox.expose(s)?, outbox))
        })?;
        let lent = refused(behind.try_replay(&s, lent, 1), Awaited::Completion);
        let lent = refused(ahead.try_replay(&s, lent, 2), Awaited::Exposure);
        let lent = ahead.replay(&s, lent, 1)?;
        let lent = refused(behind.try_replay(&s, lent, 2), Awaited::Completion);
        let lent = behind.replay(&s, lent, 1)?;
        let (always, mut lent) = s.capture(lent, |s, (inbox, outbox)| {
            exchange(s, inbox, outbox.start())
        })?;
        lent = always.replay(&s, lent, 1000)?;
        lent = always.replay(&s, lent, 1000)?;
        s.synchronize()?;

        // On two streams, which a recorded hand-off brings together.
        let (inbox, outbox) = lent;
        let outbox = s.hand_off(outbox, &t)?;
        let (apart, lent) = s.capture_with(&mut t, (inbox, outbox), |s, t, (inbox, outbox)| {
            Ok((inbox.expose(s)?, outbox.start().complete(t)?))
        })?;
        let lent = apart.replay(&s, &t, lent, 10)?;
        let (twice, lent) = s.capture_with(&mut t, lent, |s, t, (inbox, outbox)| {
            let outbox = outbox.start().complete(t)?.start().complete(t)?;
            let outbox = t.hand_off(outbox, s)?;
            let inbox = inbox.expose(s)?.expose(s)?;
            Ok((inbox, s.hand_off(outbox, t)?))
        })?;
        let lent = refused(twice.try_replay(&s, &t, lent, 1), Awaited::Exposure);
        let (once, lent) = s.capture_with(&mut t, lent, |s, t, (inbox, outbox)| {
            let outbox = outbox.start().complete(t)?;
            let outbox = t.hand_off(outbox, s)?;
            let inbox = inbox.expose(s)?;
            Ok((inbox, s.hand_off(outbox, t)?))
        })?;
        let _ = once.replay(&s, &t, lent, 3)?;
        s.synchronize()?;
        t.synchronize()
    });
}

/// A job in which each rank puts a number to all ranks, including itself.
fn all_to_all(
    ranks: usize,
    buffers: Buffers,
    program: impl Fn(&World, SlotWindow<u64>) -> Result<()> + Sync,
) {
    let results = World::local(ranks, |world: World| {
        let mut window = SlotWindow::new("w").buffers(buffers);
        for rank in 0..ranks {
            window.slot_from(rank, 0, 1);
            window.slot_to(rank, 0);
        }
        program(&world, window)
    });
    results.into_iter().for_each(|result| result.unwrap());
}

/// Puts a number to all ranks.
fn put_to_all<'s>(
    s: &Stream<'s>,
    outbox: Outbox<'s, u64>,
    number: &Region<u64, On<'s>>,
) -> Result<Outbox<'s, u64>> {
    let slots = outbox.slots();
    let mut epoch = outbox.start();
    for to in slots {
        epoch.put(number, to)?;
    }
    epoch.complete(s)
}

/// Actions of other ranks, at any time, are not this rank's own.
#[test]
fn several_ranks_that_are_their_own_origins_too() {
    const RANKS: usize = 3;
    for buffers in [Buffers::Single, Buffers::Double] {
        all_to_all(RANKS, buffers, |world, window| {
            stream!(let mut s = world.stream()?);
            stream!(let t = world.stream()?);
            let mut number = Region::from_slice(world, &[0])?.on(&s)?;
            let (mut inbox, mut outbox) = window.open(&s)?;
            let next = |number: &mut [u64]| number[0] += 1;
            for turn in 1..=20 {
                s.launch(next, &mut number)?;
                let exposed = inbox.post(&s)?;
                outbox = put_to_all(&s, outbox, &number)?;
                inbox = exposed.wait(&s)?;
                let seen = inbox.read(&s)?;
                assert!(seen.iter().all(|slot| slot == [turn]));
            }
            let (graph, mut lent) = s.capture((inbox, outbox), |s, (inbox, outbox)| {
                exchange(s, inbox, outbox.start())
            })?;
            for times in [1, 30] {
                lent = graph.replay(&s, lent, times)?;
            }
            // On two streams, and together again.
            let (mut inbox, outbox) = lent;
            let number = s.hand_off(number, &t)?;
            let mut outbox = s.hand_off(outbox, &t)?;
            for _ in 0..20 {
                inbox = inbox.expose(&s)?;
                outbox = put_to_all(&t, outbox, &number)?;
            }
            let outbox = t.hand_off(outbox, &s)?;
            let (mut inbox, _outbox) = exchange(&s, inbox, outbox.start())?;
            inbox.read(&s)?;
            Ok(())
        });
    }
}

/// A rank that does not wait for itself may wait for others. A call for itself is refused, and the others wait.
#[test]
fn refusals_while_others_go_on() {
    all_to_all(2, Buffers::Double, |world, window| {
        stream!(let s = world.stream()?);
        let number = Region::from_slice(world, &[7])?.on(&s)?;
        let (inbox, outbox) = window.open(&s)?;
        let (me, other) = (world.rank(), 1 - world.rank());
        let (myself, other) = (Group::new([me]), Group::new([other]));
        // Two epochs with the other rank alone, in front of everything for this rank itself.
        let outbox = outbox.start_to(&other)?.complete(&s)?;
        let inbox = inbox.expose_to(&s, &other)?;
        let (inbox, outbox) = match me {
            0 => (inbox, outbox.start_to(&other)?.complete(&s)?),
            _ => (inbox.expose_to(&s, &other)?, outbox),
        };
        let (inbox, outbox) = match me {
            0 => (inbox.expose_to(&s, &other)?, outbox),
            _ => (inbox, outbox.start_to(&other)?.complete(&s)?),
        };
        // By that, neither half has done anything for this rank itself.
        let inbox = refused(inbox.try_expose_to(&s, &myself), Awaited::Completion);
        let inbox = refused(inbox.try_expose(&s), Awaited::Completion);
        let outbox = outbox.start_to(&myself)?.complete(&s)?;
        let epoch = outbox.start();
        let epoch = refused(epoch.try_complete(&s), Awaited::Exposure);
        let inbox = inbox.expose_to(&s, &myself)?;
        let (inbox, outbox) = exchange(&s, inbox, epoch)?;
        let outbox = put_to_all(&s, outbox, &number)?;
        let mut inbox = inbox.expose(&s)?;
        assert!(inbox.read(&s)?.iter().all(|slot| slot == [7]));
        // The other rank waits for this one, which waits for nobody.
        let exposed = refused(inbox.post(&s)?.try_wait(&s), Awaited::Completion);
        let _outbox = outbox.start().complete(&s)?;
        let _ = exposed.wait(&s)?;
        s.synchronize()
    });
}
