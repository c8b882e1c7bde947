//! Every wait ends: by a peer's death, by a limit, or by a revocation.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::common::{Filler, Kernels, ranks};
use crate::vendor::prelude::*;
use tidegate::error::Cause;
use tidegate::window::Group;

/// Rank 0 waits for a complete of rank 1, whose stream has a kernel in front of it.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn a_rank_whose_stream_is_at_work_is_reported() {
    ranks(2, |world, k| {
        let other = 1 - world.rank();
        stream!(let s = world.named_stream("main").unwrap());
        let mut window = SlotWindow::<u64>::new("late").buffers(tidegate::window::Buffers::Single);
        window.slot_from(other, 0, 8);
        window.slot_to(other, 0);
        let (mut inbox, mut outbox) = window.open(&s).unwrap();
        let mut x = Region::zeroed(&world, 1).unwrap().on(&s).unwrap();
        world.report_waits_after(Duration::from_millis(300));
        // On a busy machine the watch may not have looked before the kernel ended. Then the next kernel takes four
        // times as long.
        let mut cycles = [1, 4, 16].map(|times| times * 3_000_000_000u64).into_iter();
        loop {
            let cycles = cycles.next().expect("one of the kernels is long enough");
            let exposed = inbox.post(&s).unwrap();
            if world.rank() == 1 {
                s.launch(k.busy.threads(1, 32), (&mut x, cycles)).unwrap();
            }
            outbox = outbox.start().complete(&s).unwrap();
            let line = line!() + 1;
            inbox = exposed.wait(&s).unwrap();
            let through = AtomicBool::new(false);
            let is_reported = std::thread::scope(|scope| {
                let reported = scope.spawn(|| {
                    let parts = [
                        "rank 0: rank 1, its complete (window `late`, number 0, ",
                        &format!("stream `main`, enqueued at {}:{line}:", file!()),
                        // Both ranks are there, so one line may stand for both.
                        &format!("its own stream `main`, in `synchronize` at {}:", file!()),
                        "rank 1: no rank, but its stream `main` may be at work (it runs a kernel, ",
                    ];
                    reports(&world, &parts, || through.load(Ordering::Relaxed))
                });
                s.synchronize().unwrap();
                through.store(true, Ordering::Relaxed);
                reported.join().unwrap()
            });
            let seen = world.all_gather("seen", vec![is_reported.into()]);
            if seen.unwrap() == [[1], [1]] {
                break;
            }
        }
        // A rank that has done everything, but is late, is reported as such.
        if world.rank() == 1 {
            let begin = Instant::now();
            let part = "rank 1: nothing: its streams have done all";
            let is_late = || begin.elapsed() > Duration::from_secs(60);
            assert!(
                reports(&world, &[part], is_late),
                "{:?}",
                world.last_report()
            );
        }
        world.all_gather("late", Vec::new()).unwrap();
    });
}

/// Waits for a report that has all the parts. Returns false if `is_over` comes first.
fn reports(world: &World, parts: &[&str], is_over: impl Fn() -> bool) -> bool {
    loop {
        // This is asked first, so that the last report is checked once more.
        let was_over = is_over();
        let report = world.last_report().unwrap_or_default();
        if parts.iter().all(|part| report.contains(part)) {
            return true;
        }
        if was_over {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Rank 0 enqueues more than the driver takes, behind a wait for rank 1. Rank 1 completes when the report says so.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn a_call_that_a_full_queue_blocks_is_reported() {
    for (replays, call) in [(false, "launch"), (true, "replay")] {
        ranks(2, |world, k| {
            let other = 1 - world.rank();
            world.report_waits_after(Duration::from_millis(300));
            stream!(let s = world.named_stream("main").unwrap());
            let filler = Filler::new(&mut s, &k, replays);
            let mut window =
                SlotWindow::<u64>::new("late").buffers(tidegate::window::Buffers::Single);
            window.slot_from(other, 0, 8);
            window.slot_to(other, 0);
            let (inbox, outbox) = window.open(&s).unwrap();
            let exposed = inbox.post(&s).unwrap();
            if world.rank() == 0 {
                let _inbox = exposed.wait(&s).unwrap();
                filler.fill(&s, &k).unwrap();
                let _outbox = outbox.start().complete(&s).unwrap();
                s.synchronize().unwrap();
            } else {
                let line = format!("rank 0: its own stream `main`, in `{call}` at ");
                let begin = Instant::now();
                let is_late = || begin.elapsed() > Duration::from_secs(60);
                assert!(
                    reports(&world, &[&line], is_late),
                    "{:?}",
                    world.last_report()
                );
                let _outbox = outbox.start().complete(&s).unwrap();
                let _inbox = exposed.wait(&s).unwrap();
                s.synchronize().unwrap();
            }
        });
    }
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn a_limit_ends_a_call_that_a_full_queue_blocks() {
    const LIMIT: Duration = Duration::from_secs(1);
    for replays in [false, true] {
        ranks(2, |world, k| {
            let other = 1 - world.rank();
            stream!(let s = world.stream().unwrap());
            let filler = Filler::new(&mut s, &k, replays);
            let mut window = SlotWindow::<u64>::new("late").fail_after(LIMIT);
            window.slot_from(other, 0, 8);
            window.slot_to(other, 0);
            let (inbox, _outbox) = window.open(&s).unwrap();
            if world.rank() == 0 {
                let _inbox = inbox.post(&s).unwrap().wait(&s).unwrap();
                let begin = Instant::now();
                let error = filler.fill(&s, &k).unwrap_err();
                let late = begin.elapsed().saturating_sub(LIMIT);
                println!("replays: {replays}; the call came back {late:?} after the limit");
                let Error::Wait(failed) = &error else {
                    panic!("{error}")
                };
                assert!(
                    matches!(failed.cause, Cause::Limit { rank: 0, .. }),
                    "{error}"
                );
            }
            world.all_gather("ended", Vec::new()).unwrap();
        });
    }
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn a_limit_ends_a_wait_and_names_it() {
    ranks(2, |world, k| {
        let other = 1 - world.rank();
        stream!(let s = world.stream().unwrap());
        let mut window = SlotWindow::<u64>::new("late").fail_after(Duration::from_millis(500));
        window.slot_from(other, 0, 8);
        window.slot_to(other, 0);
        let (inbox, outbox) = window.open(&s).unwrap();
        if world.rank() == 1 {
            // It posts and completes nothing, and stays until the other rank has given up.
            world.all_gather("given up", Vec::new()).unwrap();
            // The other rank has its error from its own stream; the news to us comes after that.
            let (mut outbox, nobody) = (outbox, Group::new([]));
            let begin = Instant::now();
            let refused = loop {
                assert!(begin.elapsed() < Duration::from_secs(60), "no news");
                std::thread::sleep(Duration::from_millis(1));
                match outbox.start_to(&nobody).unwrap().complete(&s) {
                    Ok(again) => outbox = again,
                    Err(refused) => break refused,
                }
            };
            assert!(matches!(refused, Error::Revoked { .. }), "{refused}");
            let refused = inbox.post(&s).err().unwrap();
            assert!(matches!(refused, Error::Revoked { .. }), "{refused}");
            return;
        }
        let begin = Instant::now();
        let inbox = inbox.post(&s).unwrap().wait(&s).unwrap();
        let mut seen = Region::<u64, _>::zeroed(&world, 8).unwrap().on(&s).unwrap();
        s.launch(k.copy_slot.threads(8, 32), (inbox.view(), 0u64, &mut seen))
            .unwrap();
        let error = seen.into_host(&s).err().unwrap();
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "{:?}",
            begin.elapsed()
        );
        let Error::Wait(failed) = &error else {
            panic!("{error}")
        };
        let window = failed.window.as_ref().map(|window| &*window.name);
        assert_eq!((window, failed.epoch, failed.rank), (Some("late"), 0, 1));
        assert!(
            matches!(failed.cause, Cause::Limit { rank: 0, .. }),
            "{error}"
        );
        world.all_gather("given up", Vec::new()).unwrap();
        drop((inbox, outbox));
    });
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn a_rank_that_leaves_ends_the_waits_for_it_only() {
    ranks(3, |world, _| {
        let (rank, size) = (world.rank(), world.size());
        stream!(let s = world.stream().unwrap());
        let mut window = SlotWindow::<u64>::new("w");
        let others = (0..size).filter(|other| *other != rank);
        let others: Vec<_> = others
            .map(|other| {
                window.slot_from(other, 0, 4);
                window.slot_to(other, 0)
            })
            .collect();
        let (mut inbox, mut outbox) = window.open(&s).unwrap();
        if rank == 2 {
            return;
        }
        let group = Group::new([1 - rank]);
        let src = Region::from_slice(&world, &[1u64; 4])
            .unwrap()
            .on(&s)
            .unwrap();
        for _ in 0..100 {
            let exposed = inbox.post_to(&s, &group).unwrap();
            let mut epoch = outbox.start_to(&group).unwrap();
            epoch.put(&src, others[0]).unwrap();
            outbox = epoch.complete(&s).unwrap();
            inbox = exposed.wait(&s).unwrap();
        }
        s.synchronize().unwrap();
        let inbox = inbox
            .post_to(&s, &Group::new([2]))
            .unwrap()
            .wait(&s)
            .unwrap();
        let error = s.synchronize().unwrap_err();
        assert!(
            matches!(&error, Error::Wait(failed) if matches!(failed.cause, Cause::PeerLeft { rank: 2 })),
            "{error}"
        );
        drop((inbox, outbox));
    });
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn a_panic_ends_the_waits_of_all() {
    // Opening devices takes time, and is not measured.
    let begin = OnceLock::new();
    let panicked = std::panic::catch_unwind(|| {
        ranks(3, |world, _: Kernels| {
            let (rank, size) = (world.rank(), world.size());
            let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
            stream!(let s = world.stream().unwrap());
            let mut window = SlotWindow::<u64>::new("w");
            window.slot_from(right, 0, 4);
            window.slot_to(left, 0);
            let (inbox, outbox) = window.open(&s).unwrap();
            begin.get_or_init(Instant::now);
            assert!(rank != 1, "a bug in the user's program");
            // The news may come before the post, or before the wait.
            let posted = inbox.post(&s);
            let waited = posted.and_then(|exposed| exposed.wait(&s));
            let error = waited
                .and_then(|inbox| s.synchronize().map(|()| inbox))
                .map(drop)
                .unwrap_err();
            let cause = match &error {
                Error::Wait(failed) => &failed.cause,
                Error::Revoked { cause, .. } => cause,
                _ => panic!("{error}"),
            };
            assert!(matches!(cause, Cause::PeerLost { rank: 1, .. }), "{error}");
            drop(outbox);
        });
    });
    let text = panicked
        .unwrap_err()
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned());
    assert_eq!(text.as_deref(), Some("a bug in the user's program"));
    let elapsed = begin.get().map(Instant::elapsed);
    assert!(elapsed < Some(Duration::from_secs(60)), "{elapsed:?}");
    // The device works as before.
    ranks(2, |world, k| {
        stream!(let s = world.stream().unwrap());
        let mut x = Region::<u64, _>::zeroed(&world, 10)
            .unwrap()
            .on(&s)
            .unwrap();
        s.launch(k.count.threads(10, 32), (&mut x, 1u64)).unwrap();
        s.synchronize().unwrap();
    });
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn failure_follows_a_hand_off() {
    ranks(2, |world, k| {
        let other = 1 - world.rank();
        stream!(let a = world.named_stream("a").unwrap());
        stream!(let b = world.named_stream("b").unwrap());
        let mut window = SlotWindow::<u64>::new("w").fail_after(Duration::from_millis(400));
        window.slot_from(other, 0, 4);
        window.slot_to(other, 0);
        let (inbox, outbox) = window.open(&a).unwrap();
        let mut later = SlotWindow::<u64>::new("later");
        later.slot_from(other, 0, 4);
        let to = later.slot_to(other, 0);
        let (inbox_b, mut outbox_b) = later.open(&b).unwrap();
        let mut x = Region::<u64, _>::zeroed(&world, 4).unwrap().on(&a).unwrap();
        // Nobody completes this.
        let inbox = inbox.post(&a).unwrap().wait(&a).unwrap();
        s_count(&a, &k, &mut x);
        let x = a.hand_off(x, &b).unwrap();
        let mut epoch = outbox_b.start();
        epoch.put(&x, to).unwrap();
        outbox_b = epoch.complete(&b).unwrap();
        let error = b.synchronize().unwrap_err();
        assert!(
            matches!(&error, Error::Wait(failed) if failed.window.as_ref().is_some_and(|window| &*window.name == "w")),
            "{error}"
        );
        // The peer's wait for this epoch ends, too, since its own stream has failed.
        drop((inbox, outbox, inbox_b, outbox_b));
    });
}

fn s_count<'s>(s: &super::common::S<'s>, k: &Kernels, x: &mut super::common::R<'s, u64>) {
    s.launch(k.count.threads(4, 32), (x, 1u64)).unwrap();
}
