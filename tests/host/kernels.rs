//! Epochs that kernels fill: they put, and complete targets, by themselves.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use tidegate::error::{Awaited, CaptureError, Cause, EpochError};
use tidegate::host::prelude::*;
use tidegate::verify::Verdict;
use tidegate::{Chunks, Rejected, Route, WorldOptions};
use tidegate_loopback::Loopback;

const BUFFERS: [Buffers; 2] = [Buffers::Single, Buffers::Double];

/// The length of a slot.
const LEN: usize = 37;

/// An element of the message from a rank, in an epoch.
fn value(rank: usize, epoch: u64, index: usize) -> u64 {
    (rank as u64 + 1) * 1_000_000 + epoch * 1000 + index as u64
}

/// A ring: each rank puts to both neighbours, which may be one rank, or itself.
#[derive(Carry)]
struct Ring<'s> {
    inbox: Inbox<'s, u64>,
    outbox: Outbox<'s, u64>,
    /// The number of the epoch.
    epoch: Region<u64, On<'s>>,
    src: Region<u64, On<'s>>,
    /// How many elements were wrong.
    wrong: Region<u64, On<'s>>,
    from: [In<u64>; 2],
    to: [Out<u64>; 2],
}

/// How an epoch is made.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    /// The host puts what a kernel has made.
    Host,
    /// A kernel puts.
    Kernel,
    /// Two kernels put, each a part.
    Twice,
    /// Two kernels complete a target each. The last one is for both if they are the same.
    Last,
    /// One kernel completes all targets.
    All,
}

const ALL: [How; 5] = [How::Host, How::Kernel, How::Twice, How::Last, How::All];

fn open<'s>(s: &Stream<'s>, buffers: Buffers) -> Result<Ring<'s>> {
    let world = s.world();
    let (left, right) = world.ring();
    let mut window = SlotWindow::new("ring").buffers(buffers);
    let from = [
        window.slot_from(left, 0, LEN),
        window.slot_from(right, 1, LEN),
    ];
    let to = [window.slot_to(right, 0), window.slot_to(left, 1)];
    let (inbox, outbox) = window.open(s)?;
    Ok(Ring {
        inbox,
        outbox,
        epoch: Region::zeroed(world, 1)?.on(s)?,
        src: Region::zeroed(world, LEN)?.on(s)?,
        wrong: Region::zeroed(world, 1)?.on(s)?,
        from,
        to,
    })
}

fn step<'s>(s: &Stream<'s>, how: How, mut r: Ring<'s>) -> Result<Ring<'s>> {
    let rank = s.world().rank();
    let (left, right) = s.world().ring();
    let to = r.to;
    let exposed = r.inbox.post(s)?;
    let fill = move |mut out: OutSlots<'_, u64>, epoch: &[u64], slots: &[usize], half: usize| {
        let (from, end) = [(0, LEN), (0, 11), (11, LEN)][half];
        let message: Vec<_> = (from..end).map(|at| value(rank, epoch[0], at)).collect();
        for slot in slots {
            out.put(to[*slot], from, &message[..message.len() - 1]);
            out.put_one(to[*slot], end - 1, message[message.len() - 1]);
        }
    };
    r.outbox = match how {
        How::Host => {
            let make = move |epoch: &[u64], src: &mut [u64]| {
                (src.iter_mut().enumerate()).for_each(|(at, x)| *x = value(rank, epoch[0], at));
            };
            s.launch(make, (&r.epoch, &mut r.src))?;
            let mut epoch = r.outbox.start();
            to.iter().try_for_each(|to| epoch.put(&r.src, *to))?;
            epoch.complete(s)?
        }
        How::Kernel => {
            let mut opened = r.outbox.open(s)?;
            let put = move |out: OutSlots<'_, u64>, epoch: &[u64]| fill(out, epoch, &[0, 1], 0);
            s.launch(put, (opened.slots(), &r.epoch))?;
            opened.complete(s)?
        }
        How::Twice => {
            let mut opened = r.outbox.open(s)?;
            for half in [1, 2] {
                let put =
                    move |epoch: &[u64], out: OutSlots<'_, u64>| fill(out, epoch, &[0, 1], half);
                s.launch(put, (&r.epoch, opened.slots()))?;
            }
            opened.complete(s)?
        }
        How::Last => {
            let opened = r.outbox.open(s)?;
            let message = move |epoch: &[u64]| -> Vec<u64> {
                (0..LEN).map(|at| value(rank, epoch[0], at)).collect()
            };
            if left == right {
                let last = opened.last(left)?;
                let both = move |epoch: &[u64], mut out: LastSlots<'_, u64>| {
                    to.iter().for_each(|to| out.put(*to, 0, &message(epoch)));
                };
                s.launch(both, (&r.epoch, last))?;
            } else {
                for (slot, target) in [(0, right), (1, left)] {
                    let last = opened.last(target)?;
                    let one = move |epoch: &[u64], mut out: LastSlots<'_, u64>| {
                        out.put(to[slot], 0, &message(epoch));
                        out.complete();
                    };
                    s.launch(one, (&r.epoch, last))?;
                }
            }
            opened.complete(s)?
        }
        How::All => {
            let opened = r.outbox.open(s)?;
            s.launch(all(rank, to), (&r.epoch, opened.last_of_all()?))?;
            opened.complete(s)?
        }
    };
    r.inbox = exposed.wait(s)?;
    check(s, r)
}

/// A kernel that puts to both neighbours, and completes them.
fn all(
    rank: usize,
    to: [Out<u64>; 2],
) -> impl Fn(&[u64], AllSlots<'_, u64>) + Clone + Send + 'static {
    move |epoch, mut out| {
        let message: Vec<_> = (0..LEN).map(|at| value(rank, epoch[0], at)).collect();
        out.put(to[0], 0, &message);
        (0..LEN).for_each(|at| out.put_one(to[1], at, message[at]));
        out.complete();
    }
}

/// Counts what is wrong of what has come.
fn check<'s>(s: &Stream<'s>, mut r: Ring<'s>) -> Result<Ring<'s>> {
    let (left, right) = s.world().ring();
    let from = r.from;
    let check = move |came: Slots<'_, u64>, epoch: &mut [u64], wrong: &mut [u64]| {
        for (from, rank) in [(from[0], left), (from[1], right)] {
            let right = |(at, x): (usize, &u64)| *x == value(rank, epoch[0], at);
            let slot = came[from].iter().enumerate();
            wrong[0] += slot.filter(|each| !right(*each)).count() as u64;
        }
        epoch[0] += 1;
    };
    s.launch(check, (r.inbox.view(), &mut r.epoch, &mut r.wrong))?;
    Ok(r)
}

/// Epochs of all kinds, by turns.
fn mixed(world: &World, buffers: Buffers, hows: &[How], epochs: usize) -> Result<()> {
    stream!(let s = world.stream()?);
    let mut r = open(&s, buffers)?;
    for epoch in 0..epochs {
        r = step(&s, hows[(epoch * epoch + epoch / 3) % hows.len()], r)?;
    }
    assert_eq!(r.epoch.into_host(&s)?[0], epochs as u64);
    assert_eq!(r.wrong.into_host(&s)?[0], 0);
    Ok(())
}

#[test]
fn kernels_and_hosts_put_by_turns() {
    for n in [1, 2, 3, 5] {
        for buffers in BUFFERS {
            let epochs = if cfg!(miri) { 9 } else { 60 };
            let results = World::local(n, |world: World| mixed(&world, buffers, &ALL, epochs));
            results.into_iter().for_each(|result| result.unwrap());
        }
    }
}

/// A million epochs that kernels fill, with others between them, and fewer between two ranks, whose threads may have to
/// share a processor. All data is checked.
#[test]
#[ignore = "deep: more than a million epochs"]
fn a_million_epochs_by_kernels_deep() {
    const ROUNDS: u64 = 10;
    for (ranks, by_kernels) in [(1, 1_000_000), (2, 10_000)] {
        // Four of the five ways are by kernels.
        let times = by_kernels / ROUNDS / 4 + 1;
        let results = World::local(ranks, |world: World| -> Result<()> {
            stream!(let s = world.stream()?);
            let r = step(&s, How::Kernel, open(&s, Buffers::Double)?)?;
            let (graph, mut r) = s.capture(r, |s, r| {
                (ALL.iter()).try_fold(r, |r, how| step(s, *how, r))
            })?;
            for round in 0..ROUNDS as usize {
                r = graph.replay(&s, r, times as usize)?;
                r = step(&s, ALL[round % ALL.len()], r)?;
            }
            let epochs = 1 + ROUNDS * (ALL.len() as u64 * times + 1);
            assert_eq!(r.epoch.into_host(&s)?[0], epochs);
            assert_eq!(r.wrong.into_host(&s)?[0], 0);
            Ok(())
        });
        results.into_iter().for_each(|result| result.unwrap());
    }
}

/// An epoch whose targets a kernel completes, or the host.
fn at_once<'s>(s: &Stream<'s>, mut r: Ring<'s>, by_kernel: bool) -> Result<Ring<'s>> {
    let (rank, to) = (s.world().rank(), r.to);
    let mut opened = r.outbox.open(s)?;
    if by_kernel {
        s.launch(all(rank, to), (&r.epoch, opened.last_of_all()?))?;
    } else {
        let put = move |epoch: &[u64], mut out: OutSlots<'_, u64>| {
            let message: Vec<_> = (0..LEN).map(|at| value(rank, epoch[0], at)).collect();
            to.iter().for_each(|to| out.put(*to, 0, &message));
        };
        s.launch(put, (&r.epoch, opened.slots()))?;
    }
    (r.inbox, r.outbox) = opened.exchange(s, r.inbox)?;
    check(s, r)
}

/// Post, complete and wait as one batch, eager and replayed.
#[test]
fn a_filled_epoch_is_exchanged_at_once() {
    for n in [1, 2, 3] {
        let results = World::local(n, |world: World| -> Result<()> {
            stream!(let s = world.stream()?);
            let epochs = 7;
            let mut r = at_once(&s, open(&s, Buffers::Double)?, true)?;
            let (graph, back) = s.capture(r, |s, r| at_once(s, at_once(s, r, true)?, false))?;
            let verdict = graph.verify(&s)?;
            assert!(matches!(verdict, Verdict::Proved(_)), "{verdict}");
            r = graph.replay(&s, back, epochs)?;
            r = at_once(&s, r, false)?;
            assert_eq!(r.epoch.into_host(&s)?[0], 2 + 2 * epochs as u64);
            assert_eq!(r.wrong.into_host(&s)?[0], 0);
            Ok(())
        });
        results.into_iter().for_each(|result| result.unwrap());
    }
}

/// The right to complete all targets is the right to complete each.
#[test]
fn the_rights_to_complete_exclude_each_other() {
    let results = World::local(2, |world: World| -> Result<()> {
        stream!(let s = world.stream()?);
        let r = open(&s, Buffers::Double)?;
        let opened = r.outbox.open(&s)?;
        let taken = |error: Error| {
            let is = matches!(error, Error::Epoch(EpochError::LastTaken { .. }));
            assert!(is, "{error}");
        };
        let one = opened.last(1 - world.rank())?;
        taken(opened.last_of_all().map(drop).unwrap_err());
        drop(one);
        let all = opened.last_of_all()?;
        taken(opened.last(1 - world.rank()).map(drop).unwrap_err());
        drop(all);
        let (inbox, _outbox) = opened.exchange(&s, r.inbox)?;
        drop(inbox);
        s.synchronize()
    });
    results.into_iter().for_each(|result| result.unwrap());
}

#[test]
fn far_targets_get_it_by_staged_memory() {
    let far = [How::Host, How::Kernel, How::Twice];
    for chunks in [Chunks::NEVER, Chunks::of(64)] {
        for buffers in BUFFERS {
            let nic = |_| {
                let options = WorldOptions::new().nic(Loopback::default());
                options.route(Route::Nic).staged().chunks(chunks)
            };
            let run = |world: World| mixed(&world, buffers, &far, 40);
            let results = World::local_with(3, nic, run);
            results.into_iter().for_each(|result| result.unwrap());
        }
    }
}

/// The error of a call, whose token is dropped.
fn refused<T, V>(result: Result<T, Rejected<V>>) -> (Error, V) {
    let Rejected { error, value } = result.err().expect("it is refused");
    (error, value)
}

#[test]
fn what_a_nic_reaches_is_refused() {
    let nic = |_| {
        WorldOptions::new()
            .nic(Loopback::default())
            .route(Route::Nic)
    };
    let results = World::local_with(2, nic, |world: World| -> Result<()> {
        stream!(let s = world.stream()?);
        let r = open(&s, Buffers::Double)?;
        let (error, outbox) = refused(r.outbox.try_open(&s));
        let said = error.to_string();
        assert!(
            matches!(error, Error::Epoch(EpochError::NotByKernels { rank, .. }) if rank == 1 - world.rank()),
            "{said}"
        );
        assert!(said.contains("WorldOptions::staged"), "{said}");
        // It is as it was.
        let mut epoch = outbox.start();
        r.to.iter().try_for_each(|to| epoch.put(&r.src, *to))?;
        let _halves = exchange(&s, r.inbox, epoch)?;
        s.synchronize()
    });
    results.into_iter().for_each(|result| result.unwrap());
    let staged = |_| nic(0).staged();
    let results = World::local_with(2, staged, |world: World| -> Result<()> {
        stream!(let s = world.stream()?);
        let r = open(&s, Buffers::Double)?;
        let exposed = r.inbox.post(&s)?;
        let opened = r.outbox.open(&s)?;
        let error = opened.last(1 - world.rank()).err().expect("it is refused");
        assert!(
            error.to_string().contains("kernels cannot complete"),
            "{error}"
        );
        let _outbox = opened.complete(&s)?;
        let _inbox = exposed.wait(&s)?;
        s.synchronize()
    });
    results.into_iter().for_each(|result| result.unwrap());
}

#[test]
fn recorded_and_proved() {
    for n in [1, 2, 3] {
        for buffers in BUFFERS {
            let results = World::local(n, |world: World| -> Result<()> {
                stream!(let s = world.stream()?);
                let mut r = step(&s, How::Kernel, open(&s, buffers)?)?;
                let mut epochs = 1;
                for how in ALL {
                    let (graph, mut back) = s.capture(r, |s, r| {
                        let r = step(s, how, r)?;
                        step(s, How::Host, r)
                    })?;
                    let verdict = graph.verify(&s)?;
                    assert!(matches!(verdict, Verdict::Proved(_)), "{how:?}: {verdict}");
                    for times in [1, 4] {
                        back = graph.replay(&s, back, times as usize)?;
                        epochs += 2 * times;
                    }
                    r = step(&s, How::Last, back)?;
                    epochs += 1;
                }
                assert_eq!(r.epoch.into_host(&s)?[0], epochs);
                assert_eq!(r.wrong.into_host(&s)?[0], 0);
                Ok(())
            });
            results.into_iter().for_each(|result| result.unwrap());
        }
    }
}

#[test]
fn the_first_opening_is_not_inside_a_capture() {
    let results = World::local(1, |world: World| -> Result<()> {
        stream!(let s = world.stream()?);
        let r = open(&s, Buffers::Double)?;
        let captured = s.capture(r, |s, r| step(s, How::Kernel, r));
        let error = captured.err().expect("it is refused");
        assert!(
            matches!(error, Error::Capture(CaptureError::Inside { .. })),
            "{error}"
        );
        Ok(())
    });
    results.into_iter().for_each(|result| result.unwrap());
}

/// Two ranks: the target answers before the kernel that has completed it ends.
#[test]
fn a_completed_target_does_not_wait_for_the_kernel() {
    let answered = Arc::new(AtomicU64::new(0));
    let results = World::local(2, |world: World| -> Result<()> {
        stream!(let s = world.stream()?);
        let r = open(&s, Buffers::Single)?;
        let other = 1 - world.rank();
        let exposed = r.inbox.post(&s)?;
        let opened = r.outbox.open(&s)?;
        let (to, answered) = (r.to, answered.clone());
        let answer = answered.clone();
        let kernel = move |mut out: LastSlots<'_, u64>| {
            out.put_one(to[0], 0, 5);
            out.complete();
            while answered.load(SeqCst) < 2 {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        // The wait is on another stream than the kernel, which ends later.
        stream!(let t = world.stream()?);
        let inbox = s.hand_off(exposed, &t)?.wait(&t)?;
        s.launch(kernel, opened.last(other)?)?;
        let from = r.from[0];
        let read = move |came: Slots<'_, u64>| {
            assert_eq!(came[from][0], 5);
            answer.fetch_add(1, SeqCst);
        };
        t.launch(read, inbox.view())?;
        let _outbox = opened.complete(&s)?;
        t.synchronize()?;
        s.synchronize()
    });
    results.into_iter().for_each(|result| result.unwrap());
}

/// Runs a program on two ranks. Rank 0's kernels do something wrong; rank 1 waits for its data, and gets an error.
fn wrong(kernels: impl for<'s> Fn(&Stream<'s>, Ring<'s>) -> Result<()> + Sync) -> [String; 2] {
    let results = World::local(2, |world: World| -> Result<()> {
        stream!(let s = world.stream()?);
        let r = open(&s, Buffers::Single)?;
        if world.rank() == 0 {
            return kernels(&s, r);
        }
        let exposed = r.inbox.post(&s)?;
        let _inbox = exposed.wait(&s)?;
        let outcome = s.synchronize();
        drop(r.outbox);
        outcome
    });
    let mut said = results
        .into_iter()
        .map(|each| each.err().map(|each| each.to_string()));
    [(); 2].map(|()| said.next().flatten().unwrap_or_default())
}

/// Completes the epoch, and returns what the stream says then.
fn end<'s>(s: &Stream<'s>, opened: Opened<'s, u64>) -> Result<()> {
    let _outbox = opened.complete(s)?;
    s.synchronize()
}

#[test]
fn a_put_beyond_its_slot_fails_the_stream_by_name() {
    let said = wrong(|s, r| {
        let mut opened = r.outbox.open(s)?;
        let to = r.to[0];
        let kernel = move |mut out: OutSlots<'_, u64>| out.put(to, LEN - 1, &[1, 2]);
        s.launch(kernel, opened.slots())?;
        end(s, opened)
    });
    for said in said {
        assert!(
            said.contains(
                "a put to outbound slot 0 beyond its end: 2 elements from element 36 on, of 37"
            ),
            "{said}"
        );
    }
}

#[test]
fn a_put_behind_the_completion_fails_the_stream() {
    let [said, _] = wrong(|s, r| {
        let mut opened = r.outbox.open(s)?;
        let to = r.to[0];
        s.launch(|out: LastSlots<'_, u64>| out.complete(), opened.last(1)?)?;
        s.launch(
            move |mut out: OutSlots<'_, u64>| out.put_one(to, 0, 1),
            opened.slots(),
        )?;
        end(s, opened)
    });
    assert!(
        said.contains("a put to outbound slot 0, whose target a kernel has completed"),
        "{said}"
    );
}

#[test]
fn a_kernel_that_does_not_complete_its_target_fails_the_stream() {
    let said = wrong(|s, r| {
        let opened = r.outbox.open(s)?;
        s.launch(
            |out: LastSlots<'_, u64>| std::mem::forget(out),
            opened.last(1)?,
        )?;
        let _outbox = opened.complete(s)?;
        let error = s.synchronize().unwrap_err();
        let Error::Wait(failed) = &error else {
            panic!("{error}");
        };
        assert_eq!(failed.cause, Cause::NotCompleted { rank: 0, target: 1 });
        assert_eq!(failed.awaited, Awaited::Kernel);
        Err(error)
    });
    for said in said {
        assert!(
            said.contains("a kernel of rank 0 took `last` of rank 1, and did not complete it"),
            "{said}"
        );
    }
}

#[test]
fn slots_of_other_windows_and_targets_are_refused() {
    let results = World::local(3, |world: World| -> Result<()> {
        stream!(let s = world.stream()?);
        let rank = world.rank();
        let r = open(&s, Buffers::Double)?;
        let mut other = SlotWindow::<u64>::new("other");
        other.slot_from(rank, 0, LEN);
        let foreign = other.slot_to(rank, 0);
        let _halves = other.open(&s)?;
        let (left, right) = world.ring();
        let opened = r.outbox.open(&s)?;
        let to = r.to;
        let kernel = move |mut out: LastSlots<'_, u64>| {
            let mut catch = |slot| {
                let put = || out.put_one(slot, 0, 1);
                let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(put));
                *panic.unwrap_err().downcast::<String>().unwrap()
            };
            assert!(catch(to[1]).contains("another target"));
            assert!(catch(foreign).contains("another window"));
            out.put_one(to[0], 0, 1);
        };
        s.launch(kernel, opened.last(right)?)?;
        let taken = opened.last(right).err().expect("it is refused");
        assert!(
            matches!(taken, Error::Epoch(EpochError::LastTaken { rank, .. }) if rank == right),
            "{taken}"
        );
        assert!(matches!(
            opened.last(rank).err(),
            Some(Error::Epoch(EpochError::NotInGroup { .. }))
        ));
        assert!(matches!(
            opened.last(9).err(),
            Some(Error::NoSuchRank { .. })
        ));
        // What is dropped can be taken again, or is completed by the host.
        for _ in 0..2 {
            drop(opened.last(left)?);
        }
        let _outbox = opened.complete(&s)?;
        let exposed = r.inbox.post(&s)?;
        let _inbox = exposed.wait(&s)?;
        s.synchronize()
    });
    results.into_iter().for_each(|result| result.unwrap());
}

#[test]
fn an_opened_epoch_that_is_dropped_revokes_the_window() {
    let [_, said] = wrong(|s, r| {
        drop(r.outbox.open(s)?);
        s.synchronize()
    });
    assert!(
        said.contains("rank 0 dropped an `Opened` before its complete"),
        "{said}"
    );
}

/// The exposure never comes: the kernel does not run, and nothing comes.
#[test]
fn no_kernel_puts_behind_an_exposure_that_did_not_come() {
    let ran = Arc::new(AtomicU64::new(0));
    let results = World::local(2, |world: World| -> Result<()> {
        stream!(let s = world.stream()?);
        let r = open(&s, Buffers::Single)?;
        if world.rank() == 1 {
            // An epoch that is dropped revokes the window.
            drop(r.outbox.start());
            let failed = s.synchronize();
            drop(r.inbox);
            return failed;
        }
        let (to, counted) = (r.to[0], ran.clone());
        let Ok(mut opened) = r.outbox.open(&s) else {
            return Ok(());
        };
        let put = move |mut out: OutSlots<'_, u64>| {
            counted.fetch_add(1, SeqCst);
            out.put_one(to, 0, 1);
        };
        if s.launch(put, opened.slots()).is_ok() {
            drop(opened.complete(&s));
        }
        assert!(s.synchronize().is_err());
        assert_eq!(ran.load(SeqCst), 0);
        Ok(())
    });
    results.into_iter().for_each(|result| result.unwrap());
}

/// A rank that puts to itself: calls that would wait for ever are refused.
#[test]
fn oneself() {
    let results = World::local(1, |world: World| -> Result<()> {
        let deadlock = |error: &Error, what: Awaited| {
            assert!(
                matches!(error, Error::Epoch(EpochError::SelfDeadlock { awaited, .. }) if *awaited == what),
                "{error}"
            );
        };
        stream!(let s = world.stream()?);
        let mut r = open(&s, Buffers::Single)?;
        // An opening before the post.
        let (error, outbox) = refused(r.outbox.try_open(&s));
        deadlock(&error, Awaited::Exposure);
        // A wait before the complete, though the epoch is open.
        let exposed = r.inbox.post(&s)?;
        let mut opened = outbox.open(&s)?;
        let (error, exposed) = refused(exposed.try_wait(&s));
        deadlock(&error, Awaited::Completion);
        let to = r.to;
        s.launch(
            move |mut out: OutSlots<'_, u64>| out.put_one(to[1], 3, 8),
            opened.slots(),
        )?;
        r.outbox = opened.complete(&s)?;
        r.inbox = exposed.wait(&s)?;
        assert_eq!(r.inbox.read(&s)?.slot(r.from[1])[3], 8);
        // The inbox must not come to a stream on which the outbox waits for its post.
        stream!(let t = world.stream()?);
        let inbox = s.hand_off(r.inbox, &t)?;
        let opened = r.outbox.open(&s)?;
        let (error, inbox) = refused(t.try_hand_off(inbox, &s));
        deadlock(&error, Awaited::Exposure);
        let exposed = inbox.post(&t)?;
        let _outbox = opened.complete(&s)?;
        let _inbox = exposed.wait(&t)?;
        t.synchronize()?;
        s.synchronize()
    });
    results.into_iter().for_each(|result| result.unwrap());
}
