//! Steps that wait for ever when they are replayed, and steps that do not. Nothing is replayed here but what is proved.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tidegate::host::prelude::*;
use tidegate::verify::{Doubt, Flaw, Operation, Verdict};
use tidegate::window::Group;

type Halves<'s> = (Inbox<'s, u64>, Outbox<'s, u64>, Vec<Out<u64>>);

/// A window in which each rank puts to these ranks.
fn open<'s>(
    s: &Stream<'s>,
    name: &str,
    buffers: Buffers,
    puts: &[(usize, usize)],
) -> Result<Halves<'s>> {
    let rank = s.world().rank();
    let mut window = SlotWindow::new(name).buffers(buffers);
    let mut to = Vec::new();
    for (key, (origin, target)) in (0..).zip(puts) {
        if *target == rank {
            window.slot_from(*origin, key, 1);
        }
        if *origin == rank {
            to.push(window.slot_to(*target, key));
        }
    }
    let (inbox, outbox) = window.open(s)?;
    Ok((inbox, outbox, to))
}

const BOTH: [(usize, usize); 2] = [(0, 1), (1, 0)];

fn complete<'s>(
    s: &Stream<'s>,
    outbox: Outbox<'s, u64>,
    src: &Region<u64, On<'s>>,
    to: &[Out<u64>],
) -> Result<Outbox<'s, u64>> {
    let mut epoch = outbox.start();
    to.iter().try_for_each(|to| epoch.put(src, *to))?;
    epoch.complete(s)
}

/// The verdict on a step, which all ranks must share.
fn verdict(ranks: usize, step: impl Fn(&World) -> Result<Verdict> + Sync) -> Verdict {
    let all = World::local(ranks, |world| step(&world).unwrap());
    let mut all = all.into_iter();
    let first = all.next().unwrap();
    assert!(all.all(|other| other == first), "{first}");
    first
}

/// The waits of a cycle, as `(rank, call)`, from the least on.
fn cycle(verdict: Verdict) -> Vec<(usize, String)> {
    let text = verdict.to_string();
    let Verdict::Refused(Flaw::Cycle(waits)) = verdict else {
        panic!("{text}");
    };
    for wait in &waits {
        for call in [&wait.wait, &wait.add] {
            assert!(call.site.contains("verify.rs:"), "{text}");
            assert!(
                text.contains(&call.site) && text.contains(&wait.name),
                "{text}"
            );
        }
    }
    let calls = waits
        .into_iter()
        .map(|wait| (wait.wait.rank, wait.wait.call));
    let mut calls: Vec<_> = calls.collect();
    calls.sort();
    calls
}

/// The window, the signal, and how often it comes and is waited for.
fn unbalanced(verdict: Verdict) -> (String, Operation, usize, usize) {
    let text = verdict.to_string();
    let Verdict::Refused(Flaw::Unbalanced(it)) = verdict else {
        panic!("{text}");
    };
    (it.name, it.signal, it.adds, it.waits)
}

/// A step of two ranks that put to each other. What a rank does with the halves may depend on the rank.
macro_rules! step_of_two {
    ($buffers:expr, |$s:ident, $rank:ident, $inbox:ident, $outbox:ident, $src:ident, $to:ident| $body:expr) => {
        verdict(2, |world| {
            stream!(let s = world.stream()?);
            let (inbox, outbox, to) = open(&s, "halo", $buffers, &BOTH)?;
            let src = Region::from_slice(world, &[1u64])?.on(&s)?;
            let $rank = world.rank();
            let (graph, _) = s.capture((inbox, outbox, src), |$s, ($inbox, $outbox, $src)| {
                let $to = &to[..];
                let (inbox, outbox) = $body;
                Ok((inbox, outbox, $src))
            })?;
            graph.verify(&s)
        })
    };
}

fn name(call: &str) -> [(usize, String); 2] {
    [0, 1].map(|rank| (rank, call.to_owned()))
}

#[test]
fn both_ranks_complete_before_they_post() {
    let wrong = step_of_two!(Buffers::Single, |s, _rank, inbox, outbox, src, to| {
        let outbox = complete(s, outbox, &src, to)?;
        (inbox.expose(s)?, outbox)
    });
    let text = wrong.to_string();
    assert_eq!(cycle(wrong), name("complete"));
    assert!(
        text.contains("rank 0, complete at ") && text.contains("waits for rank 1 to post"),
        "{text}"
    );
}

#[test]
fn with_two_buffers_both_may_complete_first() {
    let right = step_of_two!(Buffers::Double, |s, _rank, inbox, outbox, src, to| {
        let outbox = complete(s, outbox, &src, to)?;
        (inbox.expose(s)?, outbox)
    });
    assert_eq!(right.proof().unwrap().steps, 8);
}

#[test]
fn with_two_buffers_two_completes_before_a_post_are_one_too_many() {
    let wrong = step_of_two!(Buffers::Double, |s, _rank, inbox, outbox, src, to| {
        let outbox = complete(s, outbox, &src, to)?;
        let outbox = complete(s, outbox, &src, to)?;
        (inbox.expose(s)?.expose(s)?, outbox)
    });
    assert_eq!(cycle(wrong), name("complete"));
}

#[test]
fn a_rank_forgets_to_post() {
    let wrong = step_of_two!(Buffers::Single, |s, rank, inbox, outbox, src, to| {
        if rank == 0 {
            (inbox, complete(s, outbox, &src, to)?)
        } else {
            (inbox.expose(s)?, complete(s, outbox, &src, to)?)
        }
    });
    assert_eq!(unbalanced(wrong), ("halo".into(), Operation::Post, 0, 1));
}

#[test]
fn one_rank_has_two_epochs_where_the_other_has_one() {
    let wrong = step_of_two!(Buffers::Single, |s, rank, inbox, outbox, src, to| {
        let (mut inbox, mut outbox) = (inbox, outbox);
        for _ in 0..=rank {
            let mut epoch = outbox.start();
            to.iter().try_for_each(|to| epoch.put(&src, *to))?;
            (inbox, outbox) = exchange(s, inbox, epoch)?;
        }
        (inbox, outbox)
    });
    let (_, _, adds, waits) = unbalanced(wrong);
    assert_eq!(adds + waits, 3);
}

#[test]
fn ranks_in_a_ring_wait_for_their_left_before_they_complete() {
    let wrong = verdict(4, |world| {
        stream!(let s = world.stream()?);
        let (inbox, outbox, to) = open(
            &s,
            "ring",
            Buffers::Single,
            &[(0, 1), (1, 2), (2, 3), (3, 0)],
        )?;
        let src = Region::from_slice(world, &[1u64])?.on(&s)?;
        let (graph, _) = s.capture((inbox, outbox, src), |s, (inbox, outbox, src)| {
            let inbox = inbox.expose(s)?;
            Ok((inbox, complete(s, outbox, &src, &to)?, src))
        })?;
        graph.verify(&s)
    });
    let all = (0..4).map(|rank| (rank, "expose".to_owned()));
    assert_eq!(cycle(wrong), Vec::from_iter(all));
}

/// Rank 0 waits in window `a` before it completes in `b`; rank 1 waits in `b` before it completes in `a`.
#[test]
fn two_windows_close_a_ring() {
    let wrong = verdict(2, |world| {
        stream!(let s = world.stream()?);
        let a = open(&s, "a", Buffers::Single, &[(1, 0)])?;
        let b = open(&s, "b", Buffers::Single, &[(0, 1)])?;
        let src = Region::from_slice(world, &[1u64])?.on(&s)?;
        let to = [a.2, b.2].concat();
        let rank = world.rank();
        let lent = ((a.0, a.1), (b.0, b.1), src);
        let (graph, _) = s.capture(lent, |s, ((a_in, a_out), (b_in, b_out), src)| {
            if rank == 0 {
                let a_in = a_in.expose(s)?;
                Ok(((a_in, a_out), (b_in, complete(s, b_out, &src, &to)?), src))
            } else {
                let b_in = b_in.expose(s)?;
                Ok(((a_in, complete(s, a_out, &src, &to)?), (b_in, b_out), src))
            }
        })?;
        graph.verify(&s)
    });
    assert_eq!(cycle(wrong), name("expose"));
}

#[test]
fn an_origin_starts_for_a_group_that_lacks_a_target() {
    let wrong = verdict(3, |world| {
        stream!(let s = world.stream()?);
        let (inbox, outbox, to) = open(&s, "groups", Buffers::Single, &[(0, 1), (0, 2)])?;
        let src = Region::from_slice(world, &[1u64])?.on(&s)?;
        let group = Group::new([1]);
        let rank = world.rank();
        let (graph, _) = s.capture((inbox, outbox, src), |s, (inbox, outbox, src)| {
            let inbox = if rank > 0 { inbox.expose(s)? } else { inbox };
            let outbox = if rank == 0 {
                let mut epoch = outbox.start_to(&group)?;
                epoch.put(&src, to[0])?;
                epoch.complete(s)?
            } else {
                outbox
            };
            Ok((inbox, outbox, src))
        })?;
        graph.verify(&s)
    });
    assert_eq!(
        unbalanced(wrong),
        ("groups".into(), Operation::Complete, 0, 1)
    );
}

#[test]
fn one_rank_waits_before_a_barrier_and_the_other_completes_behind_it() {
    let wrong = verdict(2, |world| {
        stream!(let s = world.stream()?);
        let (inbox, outbox, to) = open(&s, "halo", Buffers::Single, &[(0, 1)])?;
        let barrier = Barrier::open(&s, "meet")?;
        let src = Region::from_slice(world, &[1u64])?.on(&s)?;
        let rank = world.rank();
        let lent = (inbox, outbox, barrier, src);
        let (graph, _) = s.capture(lent, |s, (inbox, outbox, mut barrier, src)| {
            if rank == 0 {
                barrier.enqueue(s)?;
                Ok((inbox, complete(s, outbox, &src, &to)?, barrier, src))
            } else {
                let inbox = inbox.expose(s)?;
                barrier.enqueue(s)?;
                Ok((inbox, outbox, barrier, src))
            }
        })?;
        graph.verify(&s)
    });
    assert_eq!(
        cycle(wrong),
        [(0, "barrier".to_owned()), (1, "expose".to_owned())]
    );
}

/// A step of two barriers or sums, whose order differs between the ranks, or one of which a rank leaves out.
fn barriers(order: impl Fn(usize) -> Vec<usize> + Sync) -> Verdict {
    verdict(2, |world| {
        stream!(let s = world.stream()?);
        let lent = (Barrier::open(&s, "first")?, Barrier::open(&s, "second")?);
        let order = order(world.rank());
        let (graph, _) = s.capture(lent, |s, (mut first, mut second)| {
            for which in &order {
                [&mut first, &mut second][*which].enqueue(s)?;
            }
            Ok((first, second))
        })?;
        graph.verify(&s)
    })
}

#[test]
fn barriers_come_in_different_orders() {
    let both = name("barrier");
    let of = |rank: usize| if rank == 0 { vec![0, 1] } else { vec![1, 0] };
    assert_eq!(cycle(barriers(of)), both);
    let same = barriers(|_| vec![0, 1, 0]);
    assert_eq!(same.proof().unwrap().steps, 12);
}

#[test]
fn a_rank_leaves_a_barrier_out() {
    let wrong = barriers(|rank| if rank == 0 { vec![0, 1] } else { vec![0] });
    let (name, signal, ..) = unbalanced(wrong);
    assert_eq!((&*name, signal), ("second", Operation::Arrive));
}

#[test]
fn sums_come_in_different_orders() {
    let wrong = verdict(2, |world| {
        stream!(let s = world.stream()?);
        let sums = (
            AllReduce::open(&s, "energy", 1, Op::Sum)?,
            AllReduce::open(&s, "mass", 1, Op::Sum)?,
        );
        let x = Region::from_slice(world, &[1.0f64])?.on(&s)?;
        let rank = world.rank();
        let (graph, _) = s.capture((sums, x), |s, ((mut energy, mut mass), mut x)| {
            if rank == 0 {
                energy.enqueue(s, &mut x)?;
                mass.enqueue(s, &mut x)?;
            } else {
                mass.enqueue(s, &mut x)?;
                energy.enqueue(s, &mut x)?;
            }
            Ok(((energy, mass), x))
        })?;
        graph.verify(&s)
    });
    assert_eq!(cycle(wrong), name("all-reduce"));
}

/// Two ranks broadcast in different orders. Short data wait in the slots. But a root of long data waits until the other rank
/// has read them.
#[test]
fn long_broadcasts_come_in_different_orders() {
    let crossed = |len: usize| {
        verdict(2, |world| {
            stream!(let s = world.stream()?);
            let roots = (
                Broadcast::open(&s, "energy", 0, len)?,
                Broadcast::open(&s, "mass", 1, len)?,
            );
            let [x, y] = [0, 1].map(|_| Region::<f64>::zeroed(world, len));
            let lent = (roots, (x?.on(&s)?, y?.on(&s)?));
            let rank = world.rank();
            let (graph, _) = s.capture(lent, |s, ((mut energy, mut mass), (mut x, mut y))| {
                if rank == 0 {
                    energy.enqueue(s, &mut x)?;
                    mass.enqueue(s, &mut y)?;
                } else {
                    mass.enqueue(s, &mut y)?;
                    energy.enqueue(s, &mut x)?;
                }
                Ok(((energy, mass), (x, y)))
            })?;
            graph.verify(&s)
        })
    };
    assert!(matches!(crossed(1), Verdict::Proved(_)));
    assert_eq!(cycle(crossed(100_000)), name("broadcast"));
}

/// What ranks read from each other's memory is read in every replay, and in the calls between.
#[test]
fn long_collectives_are_replayed() {
    const LEN: usize = 200_000;
    let ranks = World::local(2, |world| -> Result<()> {
        let rank = world.rank();
        stream!(let s = world.stream()?);
        let mut blocks = AllToAll::open(&s, "blocks", LEN)?;
        let mut x = Region::from_slice(&world, &vec![rank as u64; 2 * LEN])?.on(&s)?;
        let mut y = Region::zeroed(&world, 2 * LEN)?.on(&s)?;
        let add = |x: &mut [u64]| x.iter_mut().for_each(|x| *x += 10);
        blocks.enqueue(&s, &x, &mut y)?;
        s.launch(add, &mut x)?;
        let (graph, lent) = s.capture((blocks, x, y), |s, (mut blocks, mut x, mut y)| {
            blocks.enqueue(s, &x, &mut y)?;
            // The memory is used again at once.
            s.launch(add, &mut x)?;
            Ok((blocks, x, y))
        })?;
        graph.verify(&s)?.proof()?;
        let (mut blocks, x, y) = graph.replay(&s, lent, 3)?;
        let y = y.into_host(&s)?;
        assert!(
            y.iter()
                .enumerate()
                .all(|(at, y)| *y == 30 + (at / LEN) as u64)
        );
        let mut y = y.on(&s)?;
        blocks.enqueue(&s, &x, &mut y)?;
        let y = y.into_host(&s)?;
        assert!(
            y.iter()
                .enumerate()
                .all(|(at, y)| *y == 40 + (at / LEN) as u64)
        );
        Ok(())
    });
    ranks.into_iter().collect::<Result<()>>().unwrap();
}

/// Each rank waits for the other's data on one stream, and completes on another behind a hand-off from the first.
#[test]
fn hand_offs_close_a_ring() {
    let of = |behind: bool| {
        verdict(2, move |world| {
            stream!(let s = world.stream()?);
            stream!(let t = world.stream()?);
            let (inbox, outbox, to) = open(&s, "halo", Buffers::Single, &BOTH)?;
            let outbox = s.hand_off(outbox, &t)?;
            let src = Region::from_slice(world, &[1u64])?.on(&t)?;
            let other = Region::from_slice(world, &[1u64])?.on(&s)?;
            let lent = ((inbox, other), (outbox, src));
            let (graph, _) =
                s.capture_with(&mut t, lent, |s, t, ((inbox, other), (outbox, src))| {
                    let inbox = inbox.expose(s)?;
                    let mut outbox = outbox;
                    let other = if behind {
                        let other = s.hand_off(other, t)?;
                        outbox = complete(t, outbox, &src, &to)?;
                        t.hand_off(other, s)?
                    } else {
                        outbox = complete(t, outbox, &src, &to)?;
                        other
                    };
                    Ok(((inbox, other), (outbox, src)))
                })?;
            graph.verify(&s, &t)
        })
    };
    assert_eq!(cycle(of(true)), name("expose"));
    of(false).proof().unwrap();
}

/// A rank that puts to itself completes before it posts. (The replay would refuse this, too.)
#[test]
fn a_rank_waits_for_itself() {
    let wrong = verdict(1, |world| {
        stream!(let s = world.stream()?);
        let (inbox, outbox, to) = open(&s, "self", Buffers::Single, &[(0, 0)])?;
        let src = Region::from_slice(world, &[1u64])?.on(&s)?;
        let (graph, _) = s.capture((inbox, outbox, src), |s, (inbox, outbox, src)| {
            let outbox = complete(s, outbox, &src, &to)?;
            Ok((inbox.expose(s)?, outbox, src))
        })?;
        graph.verify(&s)
    });
    assert_eq!(cycle(wrong), [(0, "complete".to_owned())]);
}

/// The recording begins with an exposed inbox, and ends with one.
#[test]
fn an_exposure_that_was_lent_counts() {
    let right = verdict(2, |world| {
        stream!(let s = world.stream()?);
        let (inbox, outbox, to) = open(&s, "halo", Buffers::Single, &BOTH)?;
        let src = Region::from_slice(world, &[1u64])?.on(&s)?;
        let exposed = inbox.post(&s)?;
        let (graph, lent) = s.capture((exposed, outbox, src), |s, (exposed, outbox, src)| {
            let outbox = complete(s, outbox, &src, &to)?;
            Ok((exposed.wait(s)?.post(s)?, outbox, src))
        })?;
        let verdict = graph.verify(&s)?;
        let (exposed, outbox, src) = graph.replay(&s, lent, 5)?;
        let outbox = complete(&s, outbox, &src, &to)?;
        drop((exposed.wait(&s)?, outbox));
        s.synchronize()?;
        Ok(verdict)
    });
    assert_eq!(right.proof().unwrap().steps, 8);
}

/// Before the replays, rank 0 has enqueued a complete for which rank 1 has enqueued no post yet. So it is not known
/// whether replays end.
#[test]
fn a_post_that_is_still_to_come_leaves_a_doubt() {
    let doubt = verdict(2, |world| {
        stream!(let s = world.stream()?);
        let (mut inbox, mut outbox, to) = open(&s, "halo", Buffers::Single, &[(0, 1)])?;
        let src = Region::from_slice(world, &[1u64])?.on(&s)?;
        if world.rank() == 0 {
            outbox = complete(&s, outbox, &src, &to)?;
        }
        let (graph, lent) = s.capture((inbox, outbox, src), |s, (inbox, outbox, src)| {
            let (inbox, outbox) = if to.is_empty() {
                (inbox.expose(s)?, outbox)
            } else {
                (inbox, complete(s, outbox, &src, &to)?)
            };
            Ok((inbox, outbox, src))
        })?;
        let verdict = graph.verify(&s)?;
        (inbox, ..) = lent;
        if world.rank() == 1 {
            inbox = inbox.expose(&s)?;
        }
        drop(inbox);
        s.synchronize()?;
        Ok(verdict)
    });
    let Verdict::Unknown(Doubt::Behind {
        missing,
        adder,
        waiter,
        ..
    }) = doubt
    else {
        panic!("{doubt}");
    };
    assert_eq!((missing, adder, waiter), (1, 1, 0));
}

/// A slot that an epoch does not put is no error, but its reader sees old data.
#[test]
fn slots_that_are_not_put_are_listed() {
    let right = step_of_two!(Buffers::Single, |s, rank, inbox, outbox, src, to| {
        let mut epoch = outbox.start();
        if rank == 0 {
            epoch.put(&src, to[0])?;
        }
        exchange(s, inbox, epoch)?
    });
    let proof = right.proof().unwrap();
    assert_eq!(proof.unput.len(), 1, "{proof}");
    let unput = &proof.unput[0];
    assert_eq!(
        (unput.rank, &*unput.name, unput.slots.len()),
        (1, "halo", 1)
    );
    assert!(unput.slots[0].contains("rank 0 with key 1"), "{proof}");
    assert!(proof.to_string().contains("verify.rs"), "{proof}");
}

/// Records an exchange with the other rank, and proves that it can be replayed.
#[allow(
    clippy::type_complexity,
    reason = "a recording and what it was lent, plainly"
)]
fn proved<'s>(
    s: &mut Stream<'s>,
    name: &str,
) -> Result<(
    Graph<'s>,
    (Inbox<'s, u64>, Outbox<'s, u64>, Region<u64, On<'s>>),
)> {
    let other = 1 - s.world().rank();
    let mut window = SlotWindow::new(name).fail_after(Duration::from_secs(60));
    window.slot_from(other, 0, 1);
    let to = window.slot_to(other, 0);
    let (inbox, outbox) = window.open(s)?;
    let src = Region::from_slice(s.world(), &[1u64])?.on(s)?;
    let (graph, lent) = s.capture((inbox, outbox, src), |s, (inbox, outbox, src)| {
        let mut epoch = outbox.start();
        epoch.put(&src, to)?;
        let (inbox, outbox) = exchange(s, inbox, epoch)?;
        Ok((inbox, outbox, src))
    })?;
    graph.verify(s)?.proof()?;
    Ok((graph, lent))
}

/// Each recording can be replayed, but the ranks replay two of them in different orders. The report says so.
#[test]
fn recordings_that_are_replayed_in_different_orders_are_reported() {
    let differ = "ranks 0 and 1 have not replayed the same recordings: 3 times number 1, proved at tests/host/verify.rs:";
    let seen_by = AtomicUsize::new(0);
    let replayed = |world: World| -> Result<()> {
        world.report_waits_after(Duration::from_millis(200));
        stream!(let s = world.stream()?);
        let (a, of_a) = proved(&mut s, "a")?;
        let (b, of_b) = proved(&mut s, "b")?;
        let of_a = a.replay(&s, of_a, 2)?;
        if world.rank() == 0 {
            drop((a.replay(&s, of_a, 1)?, b.replay(&s, of_b, 1)?));
        } else {
            drop((b.replay(&s, of_b, 1)?, a.replay(&s, of_a, 1)?));
        }
        // A first report may come before the other rank has replayed anything.
        let until = Instant::now() + Duration::from_secs(50);
        let says_so = |report: String| report.contains(differ);
        while !world.last_report().is_some_and(says_so) {
            assert!(Instant::now() < until, "{:?}", world.last_report());
            std::thread::sleep(Duration::from_millis(5));
        }
        // The panic ends these waits, and the reports. So no rank goes on before both have seen one.
        seen_by.fetch_add(1, Ordering::SeqCst);
        while seen_by.load(Ordering::SeqCst) < 2 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        resume_unwind(Box::new("reported"))
    };
    let ended = catch_unwind(AssertUnwindSafe(|| World::local(2, replayed)));
    let why = ended.unwrap_err();
    assert_eq!(why.downcast_ref(), Some(&"reported"));
}

/// Before the replays, rank 0 has enqueued a barrier to which rank 1 has not come yet.
#[test]
fn a_barrier_that_one_rank_has_still_to_enqueue_leaves_a_doubt() {
    let doubt = verdict(3, |world| {
        stream!(let s = world.stream()?);
        let mut barrier = Barrier::open(&s, "meet")?;
        if world.rank() != 1 {
            barrier.enqueue(&s)?;
        }
        let (graph, mut barrier) = s.capture(barrier, |s, mut barrier| {
            barrier.enqueue(s)?;
            Ok(barrier)
        })?;
        let doubt = graph.verify(&s)?;
        if world.rank() == 1 {
            barrier.enqueue(&s)?;
        }
        let barrier = graph.replay(&s, barrier, 3)?;
        s.synchronize()?;
        drop(barrier);
        // All have come to the first barrier by now.
        graph.verify(&s)?.proof()?;
        Ok(doubt)
    });
    let Verdict::Unknown(Doubt::Behind {
        missing,
        adder: 1,
        signal: Operation::Arrive,
        ..
    }) = doubt
    else {
        panic!("{doubt}");
    };
    assert_eq!(missing, 1);
}

/// A rank may tell more than a packet holds, also if the others have little to tell.
#[test]
fn recordings_of_one_rank_may_be_long() {
    let right = verdict(2, |world| {
        stream!(let s = world.stream()?);
        let names = ["x", "y", "z"].map(|name| name.repeat(700_000));
        let mut lent = Vec::new();
        for name in &names {
            let (inbox, outbox, _) = open(&s, name, Buffers::Single, &[(1, 1)])?;
            lent.push((inbox, outbox));
        }
        let rank = world.rank();
        let (graph, lent) = s.capture(lent, |s, lent| {
            let both = lent.into_iter().map(|(inbox, outbox)| match rank {
                0 => Ok((inbox, outbox)),
                _ => exchange(s, inbox, outbox.start()),
            });
            both.collect()
        })?;
        drop(lent);
        graph.verify(&s)
    });
    let proof = right.proof().unwrap();
    assert_eq!((proof.steps, proof.unput.len()), (12, 3));
    // The names are told though the program has dropped the halves.
    assert!(proof.unput.iter().all(|unput| unput.name.len() == 700_000));
}

/// A note on slots tells each line once, and leaves out slots without elements.
#[test]
fn slots_that_are_not_put_are_listed_once() {
    let right = verdict(1, |world| {
        stream!(let s = world.stream()?);
        let mut window = SlotWindow::<u64>::new("self");
        for (key, len) in [(0, 1), (1, 0)] {
            window.slot_from(0, key, len);
            window.slot_to(0, key);
        }
        let (inbox, outbox) = window.open(&s)?;
        let (graph, _) = s.capture((inbox, outbox), |s, (mut inbox, mut outbox)| {
            for _ in 0..1000 {
                (inbox, outbox) = exchange(s, inbox, outbox.start())?;
            }
            Ok((inbox, outbox))
        })?;
        graph.verify(&s)
    });
    let proof = right.proof().unwrap();
    assert_eq!((proof.steps, proof.unput.len()), (4000, 1), "{proof}");
    assert!(proof.unput[0].slots[0].contains("key 0"), "{proof}");
}
