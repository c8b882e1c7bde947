//! Updates of another node's memory: accumulates, fetches and compare-and-swaps over a network that delays and
//! reorders, loses messages, and whose ranks die. Nothing is applied twice, too early, or in part.

#[path = "rig/wild.rs"]
mod wild;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_boot::LocalControl;
use tidegate_core::window::{AtomicWindow, Op, RangeWindow, exchange};
use tidegate_core::{Chunks, Layout, Region, Result, Route, World, WorldOptions, stream};
use tidegate_fabric::{Fabric, Options};
use tidegate_fake::wire::Net;
use tidegate_host::Host;
use wild::{LONG, by_nic, lossy, rank_2_dies, wild};

/// Ranks on two nodes: those of even and of odd numbers. Each reaches the other node by the NIC.
fn on_two_nodes(
    net: &Net,
    ranks: usize,
    options: &Options,
) -> impl Fn(usize) -> WorldOptions + Sync {
    move |rank| {
        let far: Vec<_> = (0..ranks).filter(|other| (rank + other) % 2 == 1).collect();
        WorldOptions::new()
            .nic(Fabric::over(net.wire(rank), options.clone()))
            .route(Route::NicTo(far.into()))
    }
}

/// All ranks take numbers from the counters of all ranks. Returns what each rank got from each, and what its own
/// counter has come to.
fn tickets(world: &World<Host>, rounds: u64) -> Result<(Vec<Vec<u64>>, u64)> {
    stream!(let s = world.stream()?);
    let ranks = world.size();
    let mut window = AtomicWindow::<u64>::new("counters", 2).fail_after(LONG);
    let to: Vec<_> = (0..ranks).map(|rank| window.target(rank)).collect();
    let (mut inbox, mut outbox) = window.open(&s)?;
    let one = Region::from_slice(world, &[1u64])?.on(&s)?;
    let mut got = vec![Vec::new(); ranks];
    for _ in 0..rounds {
        let mut old = (0..ranks)
            .map(|_| Region::<u64, _>::zeroed(world, 1)?.on(&s))
            .collect::<Result<Vec<_>>>()?;
        let mut epoch = outbox.start();
        for (to, old) in to.iter().zip(&mut old) {
            epoch.fetch_and_op(&one, old, to.at(1), Op::Sum)?;
        }
        (inbox, outbox) = exchange(&s, inbox, epoch)?;
        for (got, old) in got.iter_mut().zip(old) {
            got.push(old.into_host(&s)?[0]);
        }
    }
    let count = inbox.host_mut(&s)?[1];
    Ok((got, count))
}

fn assert_all_tickets(outcome: Vec<Result<(Vec<Vec<u64>>, u64)>>, rounds: u64) {
    let outcome: Vec<_> = outcome.into_iter().map(Result::unwrap).collect();
    let all = rounds * outcome.len() as u64;
    for (rank, (_, count)) in outcome.iter().enumerate() {
        assert_eq!(*count, all, "the counter of rank {rank}");
        let mut got: Vec<_> = outcome
            .iter()
            .flat_map(|(got, _)| got[rank].clone())
            .collect();
        got.sort_unstable();
        let expected: Vec<_> = (0..all).collect();
        assert_eq!(got, expected, "the numbers of rank {rank}");
    }
}

#[test]
fn near_and_far_origins_take_each_number_once() {
    for seed in 0..6 {
        let net = Net::new(4, wild(seed));
        let options = Options::default().budget(if seed % 2 == 0 { 1 } else { 64 });
        let ranks = on_two_nodes(&net, 4, &options);
        let outcome = World::<Host>::local_with(4, ranks, |world| tickets(&world, 8));
        assert_all_tickets(outcome, 8);
    }
}

#[test]
fn a_rank_updates_itself_by_the_nic() {
    for ranks in [1, 3] {
        let (net, options) = (Net::new(ranks, wild(7)), Options::default().budget(1));
        let outcome =
            World::<Host>::local_with(ranks, by_nic(&net, &options), |world| tickets(&world, 8));
        assert_all_tickets(outcome, 8);
    }
}

/// Each rank tries to become the owner of a lock, changes a number that the lock guards if it has it, and lets it go.
#[test]
fn a_compare_and_swap_makes_a_lock() {
    for seed in 0..4 {
        let (net, options) = (Net::new(4, wild(seed)), Options::default());
        let owners = AtomicU64::new(0);
        let won = World::<Host>::local_with(4, on_two_nodes(&net, 4, &options), |world| {
            stream!(let s = world.stream()?);
            let mut window = AtomicWindow::<u32>::new("lock", 1).fail_after(LONG);
            let lock = window.target(0);
            let (mut inbox, mut outbox) = window.open(&s)?;
            let free = Region::from_slice(&world, &[0u32])?.on(&s)?;
            let mine = Region::from_slice(&world, &[world.rank() as u32 + 1])?.on(&s)?;
            let mut won = 0;
            for _ in 0..10 {
                let mut owner = Region::<u32, _>::zeroed(&world, 1)?.on(&s)?;
                let mut epoch = outbox.start();
                epoch.compare_and_swap(&free, &mine, &mut owner, lock)?;
                (inbox, outbox) = exchange(&s, inbox, epoch)?;
                let has = owner.into_host(&s)?[0] == 0;
                if has {
                    assert_eq!(
                        owners.fetch_add(1, Ordering::SeqCst),
                        0,
                        "two have the lock"
                    );
                    owners.fetch_sub(1, Ordering::SeqCst);
                }
                won += u64::from(has);
                // Only the owner finds itself there.
                let mut before = Region::<u32, _>::zeroed(&world, 1)?.on(&s)?;
                let mut epoch = outbox.start();
                epoch.compare_and_swap(&mine, &free, &mut before, lock)?;
                (inbox, outbox) = exchange(&s, inbox, epoch)?;
                assert_eq!(before.into_host(&s)?[0] == world.rank() as u32 + 1, has);
            }
            Ok(won)
        });
        let won: u64 = won.into_iter().map(|won: Result<u64>| won.unwrap()).sum();
        assert_eq!(won, 10, "one rank wins each round");
    }
}

/// Puts, gets and accumulates of one epoch, longer than a request, side by side and scattered, of several types.
fn mixed<T>(world: &World<Host>, of: fn(u64) -> T, len: usize) -> Result<()>
where
    T: tidegate_core::Arithmetic + PartialEq + std::fmt::Debug,
{
    stream!(let s = world.stream()?);
    let peer = 1 - world.rank();
    let mut window = RangeWindow::<T>::new("mixed", 4 * len).fail_after(LONG);
    let [put, add, get] = [0, 1, 3].map(|part| {
        let end = if part == 1 { 3 * len } else { (part + 1) * len };
        window.range_to(peer, part * len..end)
    });
    let (mut inbox, mut outbox) = window.open(&s)?;
    let every_second = Layout::strided(0, &[(len as u32, 2)])?;
    let numbers = |first: u64| {
        (0..len as u64)
            .map(|at| of((first + at) % 5))
            .collect::<Vec<_>>()
    };
    for round in 0..3 {
        inbox.host_mut(&s)?[3 * len..].copy_from_slice(&numbers(round + 2));
        let source = Region::from_slice(world, &numbers(round))?.on(&s)?;
        let mut got = Region::<T, _>::zeroed(world, len)?.on(&s)?;
        let mut epoch = outbox.start();
        epoch.accumulate(&source, add.with(&every_second), Op::Sum)?;
        epoch.put(&source, put)?;
        epoch.get(&mut got, get)?;
        (inbox, outbox) = exchange(&s, inbox, epoch)?;
        assert_eq!(got.into_host(&s)?[..], numbers(round + 2));
        let here = inbox.host_mut(&s)?;
        assert_eq!(here[..len], numbers(round));
        for at in 0..len as u64 {
            let sum = (0..=round).map(|round| (round + at) % 5).sum();
            let place = len + 2 * at as usize;
            assert_eq!(here[place], of(sum), "element {at} in round {round}");
            assert_eq!(here[place + 1], of(0), "beside element {at}");
        }
    }
    Ok(())
}

#[test]
fn an_epoch_may_put_get_and_accumulate() {
    for (seed, len) in [(0, 1), (1, 3), (2, 700), (3, 9000)] {
        let (net, options) = (Net::new(2, wild(seed)), Options::default().budget(2));
        let run = |program: &(dyn Fn(World<Host>) -> Result<()> + Sync)| {
            for result in World::<Host>::local_with(2, by_nic(&net, &options), program) {
                result.unwrap();
            }
        };
        run(&|world| mixed::<u64>(&world, |x| x, len));
        run(&|world| mixed::<u8>(&world, |x| x as u8, len));
        run(&|world| mixed::<i16>(&world, |x| -(x as i16), len));
        run(&|world| mixed::<f32>(&world, |x| x as f32 / 2., len));
        run(&|world| mixed::<f64>(&world, |x| x as f64 / 4., len));
        // As between GPUs: what NICs access is copied.
        for chunk in [24, 1 << 20] {
            let net = Net::new(2, wild(seed));
            let staged = |rank| {
                by_nic(&net, &options)(rank)
                    .staged()
                    .chunks(Chunks::of(chunk))
            };
            let program = |world| mixed::<f32>(&world, |x| x as f32 / 2., len);
            for result in World::<Host>::local_with(2, staged, program) {
                result.unwrap();
            }
        }
    }
}

/// Two ranks fetch from each other, and use what they got, before either waits for the other's epoch. They need each
/// other's agents, and not each other's programs.
#[test]
fn a_fetch_waits_for_no_program() {
    for seed in 0..4 {
        let (net, options) = (Net::new(2, wild(seed)), Options::default().budget(1));
        let outcome = World::<Host>::local_with(2, by_nic(&net, &options), |world| {
            stream!(let s = world.stream()?);
            let mut window = AtomicWindow::<u64>::new("each", 1).fail_after(LONG);
            let there = window.target(1 - world.rank());
            let (mut inbox, outbox) = window.open(&s)?;
            inbox.host_mut(&s)?[0] = 7 + world.rank() as u64;
            let exposed = inbox.post(&s)?;
            let one = Region::from_slice(&world, &[1u64])?.on(&s)?;
            let mut old = Region::<u64, _>::zeroed(&world, 1)?.on(&s)?;
            let mut epoch = outbox.start();
            epoch.fetch_and_op(&one, &mut old, there, Op::Sum)?;
            let _outbox = epoch.complete(&s)?;
            let old = old.into_host(&s)?[0];
            let mut inbox = exposed.wait(&s)?;
            Ok((old, inbox.host_mut(&s)?[0]))
        });
        let outcome: Vec<_> = outcome
            .into_iter()
            .map(|each: Result<(u64, u64)>| each.unwrap())
            .collect();
        assert_eq!(outcome, [(8, 8), (7, 9)]);
    }
}

/// Nothing is applied before the target has posted, and everything before its wait is over.
#[test]
fn updates_stay_within_their_exposure() {
    let (net, options) = (Net::new(2, wild(1)), Options::default());
    let outcome = World::<Host>::local_with(2, by_nic(&net, &options), |world| {
        stream!(let s = world.stream()?);
        let mut window = AtomicWindow::<u64>::new("late", 1).fail_after(LONG);
        let there = (world.rank() == 0).then(|| window.target(1));
        let (mut inbox, mut outbox) = window.open(&s)?;
        let one = Region::from_slice(&world, &[1u64])?.on(&s)?;
        for round in 0..5 {
            let Some(there) = there else {
                std::thread::sleep(Duration::from_millis(10));
                assert_eq!(inbox.host_mut(&s)?[0], round, "before the post");
                inbox = inbox.post(&s)?.wait(&s)?;
                assert_eq!(inbox.host_mut(&s)?[0], round + 1, "after the wait");
                continue;
            };
            let mut epoch = outbox.start();
            epoch.accumulate(&one, there, Op::Sum)?;
            outbox = epoch.complete(&s)?;
        }
        s.synchronize()
    });
    outcome.into_iter().for_each(Result::unwrap);
}

/// A recorded epoch with updates is replayed, many times at once.
#[test]
fn updates_are_replayed() {
    let (net, options) = (Net::new(2, wild(5)), Options::default().budget(2));
    let outcome = World::<Host>::local_with(2, by_nic(&net, &options), |world| {
        stream!(let mut s = world.stream()?);
        let mut window = AtomicWindow::<u64>::new("step", 1).fail_after(LONG);
        let there = window.target(1 - world.rank());
        let (inbox, outbox) = window.open(&s)?;
        let one = Region::from_slice(&world, &[1u64])?.on(&s)?;
        let old = Region::<u64, _>::zeroed(&world, 1)?.on(&s)?;
        let lent = (inbox, outbox, one, old);
        let (graph, mut lent) = s.capture(lent, |s, (inbox, outbox, one, mut old)| {
            let mut epoch = outbox.start();
            epoch.fetch_and_op(&one, &mut old, there, Op::Sum)?;
            let (inbox, outbox) = exchange(s, inbox, epoch)?;
            Ok((inbox, outbox, one, old))
        })?;
        for times in [1, 9, 10] {
            lent = graph.replay(&s, lent, times)?;
        }
        let (mut inbox, _outbox, _one, old) = lent;
        Ok((old.into_host(&s)?[0], inbox.host_mut(&s)?[0]))
    });
    for each in outcome {
        let each: Result<(u64, u64)> = each;
        assert_eq!(each.unwrap(), (19, 20));
    }
}

/// Messages are lost, and operations fail. Every wait ends, and no counter has come further than what was asked for.
#[test]
fn what_is_lost_ends_in_an_error() {
    let mut failed = 0;
    for seed in 0..8 {
        let options = Options::default().silence(Duration::from_millis(200));
        let net = Net::new(2, lossy(seed));
        let asked = AtomicU64::new(0);
        let outcome = World::<Host>::local_with(2, by_nic(&net, &options), |world| {
            stream!(let s = world.stream()?);
            let mut window = AtomicWindow::<u64>::new("lossy", 1).fail_after(LONG);
            let there = window.target(1 - world.rank());
            let (mut inbox, mut outbox) = window.open(&s)?;
            let one = Region::from_slice(&world, &[1u64])?.on(&s)?;
            let mut last = None;
            for _ in 0..20 {
                let mut old = Region::<u64, _>::zeroed(&world, 1)?.on(&s)?;
                let mut epoch = outbox.start();
                epoch.fetch_and_op(&one, &mut old, there, Op::Sum)?;
                asked.fetch_add(1, Ordering::SeqCst);
                (inbox, outbox) = exchange(&s, inbox, epoch)?;
                let old = old.into_host(&s)?[0];
                assert!(
                    last.is_none_or(|last| old == last + 1),
                    "{last:?}, then {old}"
                );
                last = Some(old);
            }
            Ok(inbox.host_mut(&s)?[0])
        });
        for each in outcome {
            let each: Result<u64> = each;
            match each {
                Ok(count) => assert_eq!(count, 20, "seed {seed}"),
                Err(_) => failed += 1,
            }
        }
    }
    assert!(failed > 0, "nothing was lost");
}

/// A rank dies in the middle of its epochs. Every survivor's waits end, and name it.
#[test]
fn the_death_of_a_target_ends_the_waits() {
    for seed in 0..4 {
        let (net, options) = (Net::new(3, wild(seed)), Options::default());
        rank_2_dies(seed, by_nic(&net, &options), updates_until_death);
    }
}

/// Updates all ranks. Rank 2 dies in its fourth epoch.
fn updates_until_death(plane: &LocalControl, world: &World<Host>) -> Result<()> {
    stream!(let s = world.stream()?);
    let mut window = AtomicWindow::<u64>::new("mortal", 1).fail_after(LONG);
    let to: Vec<_> = (0..world.size()).map(|rank| window.target(rank)).collect();
    let (mut inbox, mut outbox) = window.open(&s)?;
    let one = Region::from_slice(world, &[1u64])?.on(&s)?;
    for round in 0.. {
        let mut old = Region::<u64, _>::zeroed(world, 1)?.on(&s)?;
        let exposed = inbox.post(&s)?;
        let mut epoch = outbox.start();
        for to in &to {
            epoch.accumulate(&one, *to, Op::Sum)?;
        }
        epoch.get(&mut old, to[0])?;
        outbox = epoch.complete(&s)?;
        if (round, world.rank()) == (3, 2) {
            plane.kill();
            break;
        }
        inbox = exposed.wait(&s)?;
        s.synchronize()?;
    }
    Ok(())
}
