//! Attacks by safe code on kernels that own halves of windows. Each ends in bounded time: with the right data, or with a
//! typed error on all ranks that wait.

#![forbid(unsafe_code)]

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use tidegate::Members;
use tidegate::error::{Cause, DeviceError, StreamError};
use tidegate::host::{Host, prelude::*};

/// A window with a slot of one number in each rank.
#[derive(Carry)]
struct Pair<'s> {
    inbox: Inbox<'s, u64>,
    outbox: Outbox<'s, u64>,
    from: In<u64>,
    to: Out<u64>,
}

type Halves<'k> = (KernelInbox<'k, u64>, KernelOutbox<'k, u64>);

fn pair<'s>(on: &impl Members<'s, Host>, me: usize, name: &str) -> Result<Pair<'s>> {
    ring(on, (1 - me, 1 - me), SlotWindow::new(name))
}

/// Each rank puts to its right neighbour.
fn ring<'s>(
    on: &impl Members<'s, Host>,
    (left, right): (usize, usize),
    mut window: SlotWindow<u64>,
) -> Result<Pair<'s>> {
    let (from, to) = (window.slot_from(left, 0, 1), window.slot_to(right, 0));
    let (inbox, outbox) = window.open(on)?;
    Ok(Pair {
        inbox,
        outbox,
        from,
        to,
    })
}

/// One epoch: sends `x`, and returns it with what has come.
fn turn<'k>(
    (inbox, outbox): Halves<'k>,
    (from, to): (In<u64>, Out<u64>),
    x: u64,
) -> (Halves<'k>, u64) {
    let exposed = inbox.post();
    let mut epoch = outbox.start();
    epoch.put_one(to, 0, x);
    let outbox = epoch.complete();
    let inbox = exposed.wait();
    let came = inbox.read()[from][0];
    ((inbox, outbox), came)
}

fn two(program: impl Fn(World) -> Result<()> + Sync) {
    for result in World::local(2, program) {
        result.unwrap();
    }
}

/// What both ranks say.
fn both(program: impl Fn(World) -> Result<()> + Sync) -> [Error; 2] {
    let results = World::local(2, program);
    let errors: Vec<_> = results
        .into_iter()
        .map(|result| result.unwrap_err())
        .collect();
    errors.try_into().unwrap()
}

/// A kernel catches its own panics in the middle of epochs, keeps its tokens, and ends the epochs.
#[test]
fn panics_that_a_kernel_catches_in_the_middle_of_its_epochs_lose_nothing() {
    two(|world| {
        stream!(let s = world.stream()?);
        let mut p = pair(&s, world.rank(), "p")?;
        let (from, to) = (p.from, p.to);
        let kernel = move |mut inbox: KernelInbox<'_, u64>, mut outbox: KernelOutbox<'_, u64>| {
            for epoch in 0..10 {
                let exposed = inbox.post();
                let mut access = outbox.start();
                access.put_one(to, 0, 7 + epoch);
                for wrong in 0..3 {
                    let caught = catch_unwind(AssertUnwindSafe(|| match wrong {
                        0 => access.put(to, 1, &[1]),
                        1 => access.put_one(to, usize::MAX, 1),
                        _ => resume_unwind(Box::new("mine")),
                    }));
                    assert!(caught.is_err());
                }
                outbox = access.complete();
                inbox = exposed.wait();
                assert_eq!(inbox.read()[from], [7 + epoch]);
            }
        };
        s.launch(kernel, (p.inbox.lend(), p.outbox.lend()))?;
        s.synchronize()
    });
}

/// A kernel keeps the payload with which its calls end it, and ends a kernel of a healthy stream by it.
#[test]
fn a_stolen_end_is_a_panic_like_any_other() {
    let stolen: Arc<Mutex<Option<Box<dyn Any + Send>>>> = Arc::default();
    let results = World::local(2, |world| -> Result<()> {
        stream!(let s = world.stream()?);
        let mut p = pair(&s, world.rank(), "p")?;
        if world.rank() == 1 {
            world.all_gather("launched", Vec::new())?;
            drop(p.outbox.start());
            return Ok(());
        }
        let thief = stolen.clone();
        let kernel = move |inbox: KernelInbox<'_, u64>| {
            let end = catch_unwind(AssertUnwindSafe(|| {
                inbox.post().wait();
            }));
            *thief.lock().unwrap() = Some(end.unwrap_err());
        };
        s.launch(kernel, p.inbox.lend())?;
        world.all_gather("launched", Vec::new())?;
        let error = s.synchronize().unwrap_err();
        assert!(
            matches!(&error, Error::Wait(failed) if matches!(failed.cause, Cause::Dropped { rank: 1, .. })),
            "{error}"
        );
        stream!(let t = world.stream()?);
        let mut x = Region::<u64>::zeroed(&world, 1)?.on(&t)?;
        let stolen = stolen.clone();
        let kernel = move |x: &mut [u64]| {
            x[0] = 1;
            let end = stolen.lock().unwrap().take();
            resume_unwind(end.unwrap());
        };
        t.launch(kernel, &mut x)?;
        t.synchronize()
    });
    let [mine, other]: [Result<()>; 2] = results.try_into().unwrap();
    other.unwrap();
    let error = mine.unwrap_err();
    assert!(
        matches!(error, Error::Stream(StreamError::KernelPanicked { .. })),
        "{error}"
    );
}

/// A kernel catches the end of one wait, and goes on with what it still has: slots that have come, and an epoch that
/// is open.
#[test]
fn a_kernel_that_goes_on_after_its_end_reaches_nothing() {
    let errors = both(|world| {
        stream!(let s = world.stream()?);
        let me = world.rank();
        let mut p = pair(&s, me, "p")?;
        let limit = std::time::Duration::from_millis(if me == 0 { 50 } else { 60_000 });
        let mut q = ring(&s, (1 - me, 1 - me), SlotWindow::new("q").fail_after(limit))?;
        let (ends, (_, to_q)) = ((p.from, p.to), (q.from, q.to));
        let kernel = move |inbox: KernelInbox<'_, u64>,
                           outbox: KernelOutbox<'_, u64>,
                           inbox_q: KernelInbox<'_, u64>,
                           outbox_q: KernelOutbox<'_, u64>| {
            let ((inbox, outbox), came) = turn((inbox, outbox), ends, 3);
            assert_eq!(came, 3);
            if me == 1 {
                inbox_q.post().wait();
                unreachable!("rank 0 does not complete it");
            }
            let mut access = outbox_q.start();
            // The peer does not put to `p` any more. The window's limit ends this.
            let exposed = inbox_q.post();
            assert!(catch_unwind(AssertUnwindSafe(|| exposed.wait())).is_err());
            assert_eq!(inbox.read()[ends.0], [3], "it has come before");
            access.put_one(to_q, 0, 9);
            assert!(catch_unwind(AssertUnwindSafe(|| access.complete())).is_err());
            assert!(catch_unwind(AssertUnwindSafe(|| outbox.start())).is_err());
            assert!(catch_unwind(AssertUnwindSafe(|| inbox.post())).is_err());
        };
        s.launch(
            kernel,
            (
                p.inbox.lend(),
                p.outbox.lend(),
                q.inbox.lend(),
                q.outbox.lend(),
            ),
        )?;
        s.synchronize()
    });
    for error in errors {
        let Error::Wait(failed) = &error else {
            panic!("{error}");
        };
        assert!(matches!(failed.cause, Cause::Limit { .. }), "{error}");
    }
}

/// A guard of the program ends its epoch when it is dropped, also when another call has ended the kernel.
#[test]
fn a_guard_that_ends_its_epoch_while_the_kernel_unwinds() {
    struct Waits<'k>(Option<KernelExposed<'k, u64>>, In<u64>, Arc<AtomicU64>);

    impl Drop for Waits<'_> {
        fn drop(&mut self) {
            let exposed = self.0.take().unwrap();
            let inbox = exposed.wait();
            let seen = inbox.read().iter().count() + inbox.read().slot(self.1).len();
            self.2.store(1 + seen as u64, SeqCst);
        }
    }

    let seen = Arc::new(AtomicU64::new(0));
    let results = World::local(2, |world| -> Result<()> {
        stream!(let s = world.stream()?);
        let mut p = pair(&s, world.rank(), "p")?;
        if world.rank() == 1 {
            world.all_gather("launched", Vec::new())?;
            drop(p.outbox.start());
            return Ok(());
        }
        let (from, seen) = (p.from, seen.clone());
        let kernel = move |inbox: KernelInbox<'_, u64>, outbox: KernelOutbox<'_, u64>| {
            let _guard = Waits(Some(inbox.post()), from, seen.clone());
            // With two buffers, the first starts need no post.
            let outbox = outbox.start().complete();
            let outbox = outbox.start().complete();
            outbox.start().complete();
            unreachable!("rank 1 does not post");
        };
        s.launch(kernel, (p.inbox.lend(), p.outbox.lend()))?;
        world.all_gather("launched", Vec::new())?;
        s.synchronize()
    });
    let [mine, other]: [Result<()>; 2] = results.try_into().unwrap();
    other.unwrap();
    let error = mine.unwrap_err();
    assert!(
        matches!(&error, Error::Wait(failed) if matches!(failed.cause, Cause::Dropped { rank: 1, .. })),
        "{error}"
    );
    assert_eq!(
        seen.load(SeqCst),
        1,
        "the guard has seen no slot, since nothing has come"
    );
}

/// The halves go to another stream between two launches of one recording, and back.
#[test]
fn halves_that_change_streams_between_two_launches() {
    two(|world| {
        stream!(let s = world.stream()?);
        stream!(let t = world.stream()?);
        let me = world.rank();
        let mut p = pair(&s, me, "p")?;
        let ends = (p.from, p.to);
        let count = Arc::new(AtomicU64::new(0));
        let make = || {
            let count = count.clone();
            move |inbox: KernelInbox<'_, u64>, outbox: KernelOutbox<'_, u64>| {
                let mut both = (inbox, outbox);
                for _ in 0..3 {
                    let sent = count.fetch_add(1, SeqCst);
                    let (halves, came) = turn(both, ends, sent);
                    assert_eq!(came, sent);
                    both = halves;
                }
            }
        };
        s.launch(make(), (p.inbox.lend(), p.outbox.lend()))?;
        let mut p = s.hand_off(p, &t)?;
        t.launch(make(), (p.inbox.lend(), p.outbox.lend()))?;
        let p = t.hand_off(p, &s)?;
        let (graph, (mut p, ())) = s.capture_with(&mut t, (p, ()), |s, t, (mut p, ())| {
            s.launch(make(), (p.inbox.lend(), p.outbox.lend()))?;
            let mut p = s.hand_off(p, t)?;
            t.launch(make(), (p.inbox.lend(), p.outbox.lend()))?;
            let p = t.hand_off(p, s)?;
            Ok((p, ()))
        })?;
        (p, _) = graph.replay(&s, &t, (p, ()), 7)?;
        s.launch(make(), (p.inbox.lend(), p.outbox.lend()))?;
        s.synchronize()?;
        assert_eq!(count.load(SeqCst), 3 * (2 + 7 * 2 + 1));
        Ok(())
    });
}

/// Both levels, and epochs of the host, in one recording, with two launches that own the halves.
#[test]
fn both_levels_in_one_recording() {
    for buffers in [Buffers::Single, Buffers::Double] {
        two(|world| {
            stream!(let s = world.stream()?);
            let me = world.rank();
            let window = SlotWindow::new("w").buffers(buffers);
            let mut p = ring(&s, (1 - me, 1 - me), window)?;
            let (from, to) = (p.from, p.to);
            let count = Region::<u64>::zeroed(&world, 1)?.on(&s)?;
            let own = move |inbox: KernelInbox<'_, u64>,
                            outbox: KernelOutbox<'_, u64>,
                            count: &mut [u64]| {
                let mut both = (inbox, outbox);
                for _ in 0..2 {
                    let (halves, came) = turn(both, (from, to), count[0]);
                    assert_eq!(came, count[0]);
                    count[0] += 1;
                    both = halves;
                }
            };
            s.launch(
                |_: KernelInbox<'_, u64>, _: KernelOutbox<'_, u64>| {},
                (p.inbox.lend(), p.outbox.lend()),
            )?;
            let (graph, state) = s.capture((p, count), |s, (mut p, mut count)| {
                s.launch(own, (p.inbox.lend(), p.outbox.lend(), &mut count))?;
                let exposed = p.inbox.post(s)?;
                let mut opened = p.outbox.open(s)?;
                let fill =
                    move |mut out: OutSlots<'_, u64>, count: &[u64]| out.put_one(to, 0, count[0]);
                s.launch(fill, (opened.slots(), &count))?;
                p.outbox = opened.complete(s)?;
                p.inbox = exposed.wait(s)?;
                let check = move |came: Slots<'_, u64>, count: &mut [u64]| {
                    assert_eq!(came[from], [count[0]]);
                    count[0] += 1;
                };
                s.launch(check, (p.inbox.view(), &mut count))?;
                s.launch(own, (p.inbox.lend(), p.outbox.lend(), &mut count))?;
                let exposed = p.inbox.post(s)?;
                let mut epoch = p.outbox.start();
                epoch.put(&count, to)?;
                p.outbox = epoch.complete(s)?;
                p.inbox = exposed.wait(s)?;
                s.launch(check, (p.inbox.view(), &mut count))?;
                Ok((p, count))
            })?;
            let (_p, count) = graph.replay(&s, state, 50)?;
            assert_eq!(count.into_host(&s)?[..], [6 * 50]);
            Ok(())
        });
    }
}

/// All that the program has goes while the kernel waits; the kernel still ends its epochs.
#[test]
fn everything_is_dropped_while_the_kernel_waits() {
    for forgets in [false, true] {
        for replayed in [false, true] {
            let all = Arc::new(AtomicU64::new(0));
            two(|world| {
                let me = world.rank();
                stream!(let s = world.stream()?);
                let mut p = pair(&s, me, "p")?;
                let ends = (p.from, p.to);
                let count = all.clone();
                let kernel = move |inbox: KernelInbox<'_, u64>, outbox: KernelOutbox<'_, u64>| {
                    if me == 1 {
                        std::thread::sleep(std::time::Duration::from_millis(5));
                    }
                    let mut both = (inbox, outbox);
                    for epoch in 0..20 {
                        let (halves, came) = turn(both, ends, epoch);
                        assert_eq!(came, epoch);
                        both = halves;
                        count.fetch_add(1, SeqCst);
                    }
                };
                s.launch(kernel.clone(), (p.inbox.lend(), p.outbox.lend()))?;
                if replayed {
                    let (graph, back) = s.capture(p, |s, mut p| {
                        s.launch(kernel, (p.inbox.lend(), p.outbox.lend()))?;
                        Ok(p)
                    })?;
                    p = graph.replay(&s, back, 2)?;
                }
                drop(world);
                match forgets {
                    true => std::mem::forget(p),
                    false => drop(p),
                }
                Ok(())
            });
            assert_eq!(all.load(SeqCst), if replayed { 2 * 60 } else { 2 * 20 });
        }
    }
}

/// While the kernel waits, the host thread opens more windows with the same ranks, and the kernel itself uses the world.
#[test]
fn the_world_is_used_by_the_host_and_by_the_kernel_meanwhile() {
    two(|world| {
        let me = world.rank();
        stream!(let s = world.stream()?);
        stream!(let t = world.stream()?);
        let team = world.team("swapped", &[1, 0])?;
        let mut p = pair(&team.on(&s), team.rank(), "p")?;
        let ends = (p.from, p.to);
        let inner = team.clone();
        let kernel = move |inbox: KernelInbox<'_, u64>, outbox: KernelOutbox<'_, u64>| {
            let (halves, came) = turn((inbox, outbox), ends, 1);
            assert_eq!(came, 1);
            let all = inner.all_gather("in the kernel", vec![me as u8]).unwrap();
            assert_eq!(all, [[1], [0]]);
            // A job inside the kernel, with kernels that own halves.
            for result in World::local(2, |world| -> Result<()> {
                stream!(let s = world.stream()?);
                let mut p = pair(&s, world.rank(), "p")?;
                let ends = (p.from, p.to);
                let kernel = move |inbox: KernelInbox<'_, u64>, outbox: KernelOutbox<'_, u64>| {
                    turn((inbox, outbox), ends, 1);
                };
                s.launch(kernel, (p.inbox.lend(), p.outbox.lend()))?;
                s.synchronize()
            }) {
                result.unwrap();
            }
            let (_, came) = turn(halves, ends, 2);
            assert_eq!(came, 2);
        };
        s.launch(kernel, (p.inbox.lend(), p.outbox.lend()))?;
        for _ in 0..5 {
            let q = pair(&t, me, "q")?;
            let (_inbox, _outbox) = exchange(&t, q.inbox, q.outbox.start())?;
            t.synchronize()?;
        }
        s.synchronize()
    });
}

/// The queue of a stream whose kernel waits fills up. A launch that does not fit is refused whole, and takes nothing.
#[test]
fn launches_that_do_not_fit_the_queue_are_refused_whole() {
    let go = Arc::new(AtomicU64::new(0));
    two(|world| {
        let me = world.rank();
        stream!(let s = world.stream()?);
        let mut p = pair(&s, me, "p")?;
        let ends = (p.from, p.to);
        let (mut launched, mut refused) = (0, 0);
        let made = Arc::new(AtomicU64::new(0));
        let gate = go.clone();
        s.launch(
            move |_: KernelInbox<'_, u64>| {
                while gate.load(SeqCst) == 0 {
                    std::thread::yield_now();
                }
            },
            p.inbox.lend(),
        )?;
        // An epoch of every 1000th launch only, for the time that it takes.
        while refused < 3 {
            let (count, epoch) = (made.clone(), launched % 1000 == 0);
            let kernel = move |inbox: KernelInbox<'_, u64>, outbox: KernelOutbox<'_, u64>| {
                count.fetch_add(1, SeqCst);
                if epoch {
                    turn((inbox, outbox), ends, 0);
                }
            };
            match s.launch(kernel, (p.inbox.lend(), p.outbox.lend())) {
                Ok(()) => launched += 1,
                Err(Error::Device(DeviceError::QueueFull { .. })) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        world.all_gather("full", Vec::new())?;
        go.store(1, SeqCst);
        s.synchronize()?;
        assert_eq!(made.load(SeqCst), launched);
        let (_inbox, _outbox) = exchange(&s, p.inbox, p.outbox.start())?;
        s.synchronize()
    });
}

/// Ranks of two teams, with a window each, lent to one kernel; a rank of one team ends.
#[test]
fn a_rank_of_one_team_ends_while_kernels_own_halves_of_two() {
    let results = World::local(4, |world| -> Result<()> {
        let me = world.rank();
        stream!(let s = world.stream()?);
        // Rank 3 is rank 0 of its team.
        let low = world.split("low", (me < 2).then_some(0), me)?;
        let high = world.split("high", (me > 0).then_some(0), 9 - me)?;
        let open = |team: Team| ring(&team.on(&s), team.ring(), SlotWindow::new("w"));
        let mut low = low.map(open).transpose()?;
        let mut high = high.map(open).transpose()?;
        let epochs = if me == 3 { 10 } else { 1_000_000 };
        match (&mut low, &mut high) {
            (Some(p), None) | (None, Some(p)) => {
                let ends = (p.from, p.to);
                let kernel = move |inbox: KernelInbox<'_, u64>, outbox: KernelOutbox<'_, u64>| {
                    let mut both = (inbox, outbox);
                    for epoch in 0..epochs {
                        (both, _) = turn(both, ends, epoch);
                    }
                };
                s.launch(kernel, (p.inbox.lend(), p.outbox.lend()))?;
            }
            (Some(p), Some(q)) => {
                let ends = [(p.from, p.to), (q.from, q.to)];
                let kernel = move |in_p: KernelInbox<'_, u64>,
                                   out_p: KernelOutbox<'_, u64>,
                                   in_q: KernelInbox<'_, u64>,
                                   out_q: KernelOutbox<'_, u64>| {
                    let (mut low, mut high) = ((in_p, out_p), (in_q, out_q));
                    for epoch in 0..epochs {
                        let came;
                        (low, came) = turn(low, ends[0], epoch);
                        assert_eq!(came, epoch);
                        (high, _) = turn(high, ends[1], epoch);
                    }
                };
                let lent = (
                    p.inbox.lend(),
                    p.outbox.lend(),
                    q.inbox.lend(),
                    q.outbox.lend(),
                );
                s.launch(kernel, lent)?;
            }
            (None, None) => unreachable!("every rank is in a team"),
        }
        s.synchronize()
    });
    let errors: Vec<_> = results.into_iter().map(Result::err).collect();
    assert!(errors[3].is_none(), "{errors:?}");
    for (rank, error) in errors[..3].iter().enumerate() {
        let Some(Error::Wait(failed)) = error else {
            panic!("rank {rank}: {error:?}");
        };
        // Rank 0 is in no team with rank 3. It waits for rank 1, which fails because of rank 3.
        let ranks: &[usize] = if rank == 0 { &[1, 3] } else { &[3] };
        assert!(
            matches!(failed.cause, Cause::PeerLeft { rank } if ranks.contains(&rank)),
            "{failed}"
        );
    }
}
