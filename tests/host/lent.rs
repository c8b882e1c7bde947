//! Kernels that own halves of windows, and make epochs by themselves.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use tidegate::error::{Awaited, CaptureError, Cause, EpochError, PutFault, StreamError};
use tidegate::host::prelude::*;
use tidegate::verify::{Doubt, Verdict};
use tidegate::{Route, WorldOptions};
use tidegate_loopback::Loopback;

const BUFFERS: [Buffers; 2] = [Buffers::Single, Buffers::Double];

/// The length of a slot.
const LEN: usize = 11;

/// An element of the message from a rank, in an epoch.
fn value(rank: usize, epoch: u64, index: usize) -> u64 {
    (rank as u64 + 1) << 48 | epoch << 8 | index as u64
}

fn message(rank: usize, epoch: u64) -> [u64; LEN] {
    std::array::from_fn(|at| value(rank, epoch, at))
}

/// A ring: each rank puts to both neighbours, which may be one rank.
#[derive(Carry)]
struct Ring<'s> {
    inbox: Inbox<'s, u64>,
    outbox: Outbox<'s, u64>,
    /// The number of the epoch, and how many elements were wrong.
    counts: Region<u64, On<'s>>,
    src: Region<u64, On<'s>>,
    from: [In<u64>; 2],
    to: [Out<u64>; 2],
}

/// The handles, for kernels, and the neighbours that they belong to.
#[derive(Clone, Copy)]
struct Ends {
    rank: usize,
    neighbours: [usize; 2],
    from: [In<u64>; 2],
    to: [Out<u64>; 2],
}

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
        counts: Region::zeroed(world, 2)?.on(s)?,
        src: Region::zeroed(world, LEN)?.on(s)?,
        from,
        to,
    })
}

impl Ring<'_> {
    fn ends(&self, s: &Stream<'_>) -> Ends {
        let (left, right) = s.world().ring();
        Ends {
            rank: s.world().rank(),
            neighbours: [left, right],
            from: self.from,
            to: self.to,
        }
    }
}

impl Ends {
    /// Counts what is wrong of what has come, and the epoch.
    fn check(&self, came: Slots<'_, u64>, counts: &mut [u64]) {
        for (from, rank) in self.from.iter().zip(self.neighbours) {
            let right = message(rank, counts[0]);
            counts[1] += came[*from]
                .iter()
                .zip(right)
                .filter(|(x, y)| **x != *y)
                .count() as u64;
        }
        counts[0] += 1;
    }

    /// One epoch of a kernel.
    fn epoch<'k>(
        &self,
        (inbox, outbox): (KernelInbox<'k, u64>, KernelOutbox<'k, u64>),
        counts: &mut [u64],
    ) -> (KernelInbox<'k, u64>, KernelOutbox<'k, u64>) {
        let exposed = inbox.post();
        let mut epoch = outbox.start();
        let message = message(self.rank, counts[0]);
        epoch.put(self.to[0], 0, &message[..LEN - 1]);
        epoch.put_one(self.to[0], LEN - 1, message[LEN - 1]);
        epoch.put(self.to[1], 0, &message);
        let outbox = epoch.complete();
        let inbox = exposed.wait();
        self.check(inbox.read(), counts);
        (inbox, outbox)
    }
}

/// Epochs in one launch.
fn by_kernel<'s>(s: &Stream<'s>, epochs: u64, r: &mut Ring<'s>) -> Result<()> {
    let ends = r.ends(s);
    let kernel =
        move |counts: &mut [u64], inbox: KernelInbox<'_, u64>, outbox: KernelOutbox<'_, u64>| {
            let mut both = (inbox, outbox);
            for _ in 0..epochs {
                both = ends.epoch(both, counts);
            }
        };
    s.launch(kernel, (&mut r.counts, r.inbox.lend(), r.outbox.lend()))
}

/// One epoch of the host.
fn by_host<'s>(s: &Stream<'s>, mut r: Ring<'s>) -> Result<Ring<'s>> {
    let ends = r.ends(s);
    let make =
        move |counts: &[u64], src: &mut [u64]| src.copy_from_slice(&message(ends.rank, counts[0]));
    s.launch(make, (&r.counts, &mut r.src))?;
    let exposed = r.inbox.post(s)?;
    let mut epoch = r.outbox.start();
    ends.to.iter().try_for_each(|to| epoch.put(&r.src, *to))?;
    r.outbox = epoch.complete(s)?;
    r.inbox = exposed.wait(s)?;
    let check = move |came: Slots<'_, u64>, counts: &mut [u64]| ends.check(came, counts);
    s.launch(check, (r.inbox.view(), &mut r.counts))?;
    Ok(r)
}

/// One epoch that a kernel fills.
fn filled<'s>(s: &Stream<'s>, mut r: Ring<'s>) -> Result<Ring<'s>> {
    let ends = r.ends(s);
    let exposed = r.inbox.post(s)?;
    let opened = r.outbox.open(s)?;
    let put = move |counts: &[u64], mut out: AllSlots<'_, u64>| {
        let message = message(ends.rank, counts[0]);
        ends.to.iter().for_each(|to| out.put(*to, 0, &message));
    };
    s.launch(put, (&r.counts, opened.last_of_all()?))?;
    r.outbox = opened.complete(s)?;
    r.inbox = exposed.wait(s)?;
    let check = move |came: Slots<'_, u64>, counts: &mut [u64]| ends.check(came, counts);
    s.launch(check, (r.inbox.view(), &mut r.counts))?;
    Ok(r)
}

/// Epochs of all kinds by turns, each rank in an order of its own.
fn mixed(world: &World, buffers: Buffers, epochs: u64, most: u64) -> Result<()> {
    stream!(let s = world.stream()?);
    let mut r = open(&s, buffers)?;
    let mut state = world.rank() as u64 + 1;
    let mut made = 0;
    while made < epochs {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        made += match state >> 61 {
            0 | 1 => {
                r = by_host(&s, r)?;
                1
            }
            2 => {
                r = filled(&s, r)?;
                1
            }
            _ => {
                let some = (state >> 32) % most;
                let some = some.min(epochs - made);
                by_kernel(&s, some, &mut r)?;
                some
            }
        };
    }
    assert_eq!(r.counts.into_host(&s)?[..], [epochs, 0]);
    Ok(())
}

#[test]
fn epochs_of_kernels_and_of_the_host_alternate() {
    for n in [2, 3, 5] {
        for buffers in BUFFERS {
            let epochs = if cfg!(miri) { 12 } else { 2_000 };
            let results = World::local(n, |world: World| mixed(&world, buffers, epochs, 20));
            results.into_iter().for_each(|result| result.unwrap());
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "it is long")]
fn a_hundred_thousand_epochs() {
    let results = World::local(2, |world: World| {
        mixed(&world, Buffers::Double, 100_000, 4_000)
    });
    results.into_iter().for_each(|result| result.unwrap());
}

#[test]
#[ignore = "it takes minutes"]
fn a_million_epochs() {
    for n in [2, 3] {
        let results = World::local(n, |world: World| {
            mixed(&world, Buffers::Double, 1_000_000, 50_000)
        });
        results.into_iter().for_each(|result| result.unwrap());
    }
}

/// A launch that begins and ends closed is captured, and replayed with all its epochs.
#[test]
fn captured_and_replayed() {
    for n in [2, 3] {
        for buffers in BUFFERS {
            let results = World::local(n, |world: World| -> Result<()> {
                stream!(let s = world.stream()?);
                let mut r = open(&s, buffers)?;
                by_kernel(&s, 2, &mut r)?;
                let (graph, mut back) = s.capture(r, |s, mut r| {
                    by_kernel(s, 3, &mut r)?;
                    by_host(s, r)
                })?;
                let verdict = graph.verify(&s)?;
                let Verdict::Unknown(Doubt::ByKernel { rank: 0, name, .. }) = &verdict else {
                    panic!("{verdict}");
                };
                assert_eq!(name, "ring");
                back = graph.replay(&s, back, 5)?;
                by_kernel(&s, 2, &mut back)?;
                back = graph.replay(&s, back, 1)?;
                assert_eq!(back.counts.into_host(&s)?[..], [2 + 4 * 5 + 2 + 4, 0]);
                Ok(())
            });
            results.into_iter().for_each(|result| result.unwrap());
        }
    }
}

#[test]
fn the_first_launch_is_not_inside_a_capture() {
    let results = World::local(1, |world: World| -> Result<()> {
        stream!(let s = world.stream()?);
        let halves = SlotWindow::<u64>::new("nobody").open(&s)?;
        let captured = s.capture(halves, |s, (mut inbox, outbox)| {
            s.launch(|_: KernelInbox<'_, u64>| {}, inbox.lend())?;
            Ok((inbox, outbox))
        });
        let error = captured.expect_err("it is refused");
        assert!(
            matches!(error, Error::Capture(CaptureError::Inside { .. })),
            "{error}"
        );
        Ok(())
    });
    results.into_iter().for_each(|result| result.unwrap());
}

/// A launch is refused, and has no effect.
fn refused(options: impl Fn(usize) -> WorldOptions + Sync, n: usize, expected: &str) {
    let results = World::local_with(n, options, |world: World| -> Result<()> {
        stream!(let s = world.stream()?);
        let mut r = open(&s, Buffers::Double)?;
        let peer = (world.rank() + 1) % n;
        let inbox = |_: KernelInbox<'_, u64>| unreachable!("it is refused");
        let outbox = |_: KernelOutbox<'_, u64>| unreachable!("it is refused");
        let errors = [
            s.launch(inbox, r.inbox.lend()).unwrap_err(),
            s.launch(outbox, r.outbox.lend()).unwrap_err(),
            by_kernel(&s, 1, &mut r).unwrap_err(),
        ];
        for error in errors {
            let said = error.to_string();
            let Error::Epoch(EpochError::NotByKernels { rank, .. }) = error else {
                panic!("{said}");
            };
            assert_eq!(rank, peer);
            assert!(said.contains(expected), "{said}");
        }
        r = by_host(&s, r)?;
        assert_eq!(r.counts.into_host(&s)?[..], [1, 0]);
        Ok(())
    });
    results.into_iter().for_each(|result| result.unwrap());
}

#[test]
fn a_rank_that_is_its_own_peer_is_refused() {
    let expected = "kernels cannot make epochs with rank 0: it is this rank itself";
    refused(|_| WorldOptions::new(), 1, expected);
}

#[test]
fn peers_that_a_nic_reaches_are_refused() {
    let nic = |_| {
        let options = WorldOptions::new().nic(Loopback::default());
        options.route(Route::Nic).staged()
    };
    refused(
        nic,
        2,
        "a NIC reaches it, which the host arms for each epoch",
    );
}

/// Two ranks. Rank 0's kernel does something wrong with its halves. Rank 1 makes an epoch by a kernel or by the host,
/// and gets an error. Returns what each of them says.
fn wrong(
    kernel: fn(&Ends, (KernelInbox<'_, u64>, KernelOutbox<'_, u64>)),
    is: impl Fn(&Error) -> bool + Sync,
    peer_by_kernel: bool,
) -> [String; 2] {
    let results = World::local(2, |world: World| -> Result<()> {
        stream!(let s = world.stream()?);
        let mut r = open(&s, Buffers::Single)?;
        if world.rank() == 1 {
            let made = match peer_by_kernel {
                true => by_kernel(&s, 2, &mut r),
                false => by_host(&s, r).and_then(|r| by_host(&s, r)).map(drop),
            };
            return made.and_then(|()| s.synchronize());
        }
        let ends = r.ends(&s);
        let kernel = move |inbox: KernelInbox<'_, u64>, outbox: KernelOutbox<'_, u64>| {
            kernel(&ends, (inbox, outbox));
        };
        s.launch(kernel, (r.inbox.lend(), r.outbox.lend()))?;
        let error = s.synchronize().unwrap_err();
        assert!(is(&error), "{error}");
        Err(error)
    });
    let said = results
        .into_iter()
        .map(|each| each.unwrap_err().to_string());
    said.collect::<Vec<_>>().try_into().unwrap()
}

/// As [`wrong`], with either kind of peer; both ranks say the same.
fn both_hear(
    kernel: fn(&Ends, (KernelInbox<'_, u64>, KernelOutbox<'_, u64>)),
    is: impl Fn(&Error) -> bool + Sync,
    expected: &str,
) {
    for peer_by_kernel in [false, true] {
        for said in wrong(kernel, &is, peer_by_kernel) {
            assert!(said.contains(expected), "{said}");
        }
    }
}

fn is_fault(error: &Error, expected: PutFault) -> bool {
    matches!(error, Error::Stream(StreamError::KernelFault { rank: 0, fault, .. }) if **fault == expected)
}

fn panicked(error: &Error) -> bool {
    matches!(
        error,
        Error::Stream(StreamError::KernelPanicked { rank: 0, .. })
    )
}

#[test]
fn a_kernel_that_does_not_wait_fails_the_stream() {
    both_hear(
        |ends, (inbox, outbox)| {
            let _exposed = inbox.post();
            let mut epoch = outbox.start();
            epoch.put_one(ends.to[0], 0, 1);
            epoch.complete();
        },
        |error| is_fault(error, PutFault::LeftExposed),
        "it ended while an inbox that it owned was exposed, without the wait",
    );
}

#[test]
fn a_kernel_that_does_not_complete_fails_the_stream() {
    both_hear(
        |_, (_, outbox)| drop(outbox.start()),
        |error| is_fault(error, PutFault::LeftOpen),
        "it ended in the middle of an epoch of an outbox that it owned, without the complete",
    );
}

#[test]
fn a_put_beyond_its_slot_fails_the_stream_by_name() {
    both_hear(
        |ends, (_inbox, outbox)| outbox.start().put(ends.to[1], 3, &[0; LEN]),
        panicked,
        "a put to outbound slot 1 beyond its end: 11 elements from element 3 on, of 11",
    );
}

#[test]
fn a_panic_in_the_middle_of_an_epoch_reaches_the_peers() {
    both_hear(
        |_, (inbox, outbox)| {
            let _exposed = inbox.post();
            let _epoch = outbox.start();
            panic!("on purpose");
        },
        panicked,
        "on purpose",
    );
}

/// A kernel that catches the end of its wait does not keep the stream from failing.
#[test]
fn the_end_of_a_wait_is_not_to_be_caught() {
    let results = World::local(2, |world: World| -> Result<()> {
        stream!(let s = world.stream()?);
        let mut r = open(&s, Buffers::Single)?;
        if world.rank() == 1 {
            world.all_gather("launched", Vec::new())?;
            drop(r.outbox.start());
            return Ok(());
        }
        let kernel = |inbox: KernelInbox<'_, u64>, outbox: KernelOutbox<'_, u64>| {
            let wait = || {
                inbox.post().wait();
            };
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(wait)).unwrap_err();
            drop(outbox.start());
            unreachable!("the stream has failed");
        };
        s.launch(kernel, (r.inbox.lend(), r.outbox.lend()))?;
        // Behind the failure, the launch would be refused.
        world.all_gather("launched", Vec::new())?;
        s.synchronize()
    });
    dropped(results);
}

/// Rank 0's wait has failed because rank 1 dropped an epoch.
fn dropped(results: Vec<Result<()>>) {
    let [mine, other]: [Result<()>; 2] = results.try_into().unwrap();
    other.unwrap();
    let error = mine.unwrap_err();
    let Error::Wait(failed) = &error else {
        panic!("{error}");
    };
    assert!(
        matches!(failed.cause, Cause::Dropped { rank: 1, .. }),
        "{error}"
    );
    assert!(
        [Awaited::Completion, Awaited::Exposure].contains(&failed.awaited),
        "{error}"
    );
    // The wait has no line of its own. The launch has.
    assert!(error.to_string().contains("lent.rs"), "{error}");
}

#[test]
fn a_revocation_ends_the_wait_of_a_kernel() {
    for exposed in [true, false] {
        let results = World::local(2, |world: World| -> Result<()> {
            stream!(let s = world.stream()?);
            let mut r = open(&s, Buffers::Single)?;
            if world.rank() == 1 {
                world.all_gather("launched", Vec::new())?;
                // Rank 0 waits by then, or finds the poison at once.
                std::thread::sleep(Duration::from_millis(20));
                drop(r.outbox.start());
                return Ok(());
            }
            let waits = move |inbox: KernelInbox<'_, u64>, outbox: KernelOutbox<'_, u64>| {
                match exposed {
                    true => drop(inbox.post().wait()),
                    false => drop(outbox.start()),
                }
                unreachable!("rank 1 does nothing for it");
            };
            s.launch(waits, (r.inbox.lend(), r.outbox.lend()))?;
            world.all_gather("launched", Vec::new())?;
            s.synchronize()
        });
        dropped(results);
    }
}

#[test]
fn the_end_of_a_rank_ends_the_wait_of_a_kernel() {
    let results = World::local(3, |world: World| -> Result<()> {
        stream!(let s = world.stream()?);
        let mut r = open(&s, Buffers::Double)?;
        by_kernel(&s, 3, &mut r)?;
        if world.rank() == 2 {
            return s.synchronize();
        }
        by_kernel(&s, 100, &mut r)?;
        s.synchronize()
    });
    let errors: Vec<_> = results.into_iter().map(Result::err).collect();
    assert!(errors[2].is_none(), "{errors:?}");
    for error in &errors[..2] {
        let Some(Error::Wait(failed)) = error else {
            panic!("{error:?}");
        };
        assert_eq!(failed.cause, Cause::PeerLeft { rank: 2 });
    }
}

#[test]
fn the_limit_of_a_window_ends_the_wait_of_a_kernel() {
    let results = World::local(2, |world: World| -> Result<()> {
        stream!(let s = world.stream()?);
        let other = 1 - world.rank();
        let mut window = SlotWindow::<u64>::new("w").fail_after(Duration::from_millis(50));
        window.slot_from(other, 0, 1);
        window.slot_to(other, 0);
        let (mut inbox, _outbox) = window.open(&s)?;
        let waits = |inbox: KernelInbox<'_, u64>| {
            inbox.post().wait();
        };
        s.launch(waits, inbox.lend())?;
        s.synchronize()
    });
    for result in results {
        let error = result.unwrap_err();
        let Error::Wait(failed) = &error else {
            panic!("{error}");
        };
        assert!(matches!(failed.cause, Cause::Limit { .. }), "{error}");
    }
}

/// The program panics while its kernel waits.
#[test]
fn a_stream_that_is_told_to_stop_ends_the_wait_of_its_kernel() {
    let begun = Arc::new(AtomicU64::new(0));
    let outcome = std::panic::catch_unwind(|| {
        let results: Vec<Result<()>> = World::local(2, |world: World| {
            stream!(let s = world.stream()?);
            let mut r = open(&s, Buffers::Single)?;
            if world.rank() == 1 {
                by_kernel(&s, 1, &mut r)?;
                return s.synchronize();
            }
            let seen = begun.clone();
            let waits = move |inbox: KernelInbox<'_, u64>| {
                let exposed = inbox.post();
                seen.store(1, SeqCst);
                exposed.wait();
                unreachable!("no rank puts");
            };
            s.launch(waits, r.inbox.lend())?;
            while begun.load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            panic!("on purpose");
        });
        results
    });
    let panic = outcome.unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
}

/// A kernel may own halves of several windows, or only one half. A pipeline of ranks, whose stream needs no thread.
#[test]
fn single_halves_of_several_windows() {
    const ROUNDS: u64 = if cfg!(miri) { 5 } else { 300 };
    for inline in [false, true] {
        let results = World::local(3, |world: World| -> Result<()> {
            let (rank, last) = (world.rank(), world.size() - 1);
            stream!(let s = if inline { world.inline_stream()? } else { world.stream()? });
            let mut down = SlotWindow::<u64>::new("down");
            let mut up = SlotWindow::<u64>::new("up");
            let from_above = (rank > 0).then(|| down.slot_from(rank - 1, 0, 1));
            let to_below = (rank < last).then(|| down.slot_to(rank + 1, 0));
            let from_below = (rank < last).then(|| up.slot_from(rank + 1, 0, 1));
            let to_above = (rank > 0).then(|| up.slot_to(rank - 1, 0));
            let (mut down_in, mut down_out) = down.open(&s)?;
            let (mut up_in, mut up_out) = up.open(&s)?;
            let mut sum = Region::<u64>::zeroed(&world, 1)?.on(&s)?;
            let arguments = (
                down_in.lend(),
                down_out.lend(),
                up_in.lend(),
                up_out.lend(),
                &mut sum,
            );
            let kernel = move |mut down_in: KernelInbox<'_, u64>,
                               mut down_out: KernelOutbox<'_, u64>,
                               mut up_in: KernelInbox<'_, u64>,
                               mut up_out: KernelOutbox<'_, u64>,
                               sum: &mut [u64]| {
                for round in 0..ROUNDS {
                    let mut x = round;
                    if let Some(from) = from_above {
                        down_in = down_in.post().wait();
                        x = down_in.read()[from][0] + 1;
                    }
                    if let Some(to) = to_below {
                        let mut epoch = down_out.start();
                        epoch.put_one(to, 0, x);
                        down_out = epoch.complete();
                        up_in = up_in.post().wait();
                        x = up_in.read()[from_below.unwrap()][0] + 1;
                    }
                    if let Some(to) = to_above {
                        let mut epoch = up_out.start();
                        epoch.put_one(to, 0, x);
                        up_out = epoch.complete();
                    }
                    sum[0] += x;
                }
            };
            s.launch(kernel, arguments)?;
            // There and back: each rank has added 1 once or twice.
            let more = (2 * last - rank) as u64;
            let all = ROUNDS * (ROUNDS - 1) / 2 + ROUNDS * more;
            assert_eq!(sum.into_host(&s)?[0], all);
            Ok(())
        });
        results.into_iter().for_each(|result| result.unwrap());
    }
}
