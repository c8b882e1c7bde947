//! Teams that open and use many things at a time, in any order, and ranks that do not agree on them.

use std::sync::Barrier as Meeting;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tidegate::error::{Disagreement, TeamError, WindowError};
use tidegate::host::prelude::*;

use crate::common::random::Rng;

/// How many windows, and how many sums, each team opens.
const EACH: usize = 3;
/// How often each is used.
const TURNS: usize = 4;

/// Opens windows and sums of a team in the order that its ranks have agreed on, uses them while all of them are in
/// flight, and checks what has come.
fn use_many(team: &Team, seed: u64) -> Result<()> {
    let (world, size) = (team.world(), team.size());
    let (me, (left, right)) = (team.rank(), team.ring());
    stream!(let s = world.stream()?);
    let mut order: Vec<_> = (0..2 * EACH).collect();
    Rng::new(seed).shuffle(&mut order);
    // The pauses differ from rank to rank.
    let mut pauses = Rng::new(seed ^ (world.rank() as u64 + 1) << 32);
    let mut pause = || std::thread::sleep(Duration::from_micros(pauses.below(300) as u64));
    let (mut rings, mut sums) = (Vec::new(), Vec::new());
    for number in order {
        pause();
        let value = (100 * number + me) as u64;
        let x = Region::from_slice(world, &[value])?.on(&s)?;
        let name = format!("number {number}");
        if number < EACH {
            let mut window = SlotWindow::<u64>::new(&name);
            let (from, to) = (window.slot_from(left, 0, 1), window.slot_to(right, 0));
            let (inbox, outbox) = window.open(&team.on(&s))?;
            rings.push((number, inbox, outbox, x, from, to));
        } else {
            let y = Region::zeroed(world, 1)?.on(&s)?;
            sums.push((
                number,
                AllReduce::open(&team.on(&s), &name, 1, Op::Sum)?,
                x,
                y,
            ));
        }
    }
    for _ in 0..TURNS {
        // All epochs of a turn are open before the first one ends.
        let mut posted = Vec::new();
        for (number, inbox, outbox, x, from, to) in std::mem::take(&mut rings) {
            posted.push((number, inbox.post(&s)?, outbox, x, from, to));
        }
        for (_, sum, x, y) in &mut sums {
            sum.enqueue_into(&s, x, y)?;
        }
        pause();
        for (number, exposed, outbox, x, from, to) in posted {
            let mut epoch = outbox.start();
            epoch.put(&x, to)?;
            let outbox = epoch.complete(&s)?;
            rings.push((number, exposed.wait(&s)?, outbox, x, from, to));
        }
    }
    for (number, mut inbox, _outbox, _x, from, _to) in rings {
        assert_eq!(
            inbox.read(&s)?.slot(from)[..],
            [(100 * number + left) as u64]
        );
    }
    for (number, _sum, _x, y) in sums {
        let expected = (100 * number * size + size * (size - 1) / 2) as u64;
        assert_eq!(y.into_host(&s)?[..], [expected]);
    }
    Ok(())
}

/// The teams of a rank in a grid of two rows and three columns: its row, its column, and two of all ranks.
fn teams(world: &World) -> Result<Vec<Team>> {
    let me = world.rank();
    let row = world.split("rows", me / 3, me)?.unwrap();
    let column = world.split("columns", me % 3, 6 - me)?.unwrap();
    let turned = world.team("turned", &[5, 3, 1, 4, 2, 0])?;
    Ok(vec![row, column, turned, world.everyone()])
}

/// Each rank has a thread for each of its teams, which overlap, so the orders of openings and calls of two teams have
/// nothing to do with each other.
#[test]
fn overlapping_teams_open_and_use_many_things_at_a_time() {
    let results = World::local(6, |world| -> Result<()> {
        let teams = teams(&world)?;
        for round in 0..8 {
            let mut order: Vec<_> = (0..teams.len()).collect();
            Rng::new(round << 8 | world.rank() as u64).shuffle(&mut order);
            std::thread::scope(|scope| {
                let threads: Vec<_> = order
                    .into_iter()
                    .map(|team| {
                        let (teams, seed) = (&teams, round << 8 | team as u64);
                        scope.spawn(move || use_many(&teams[team], seed))
                    })
                    .collect();
                threads
                    .into_iter()
                    .try_for_each(|thread| thread.join().unwrap())
            })?;
        }
        Ok(())
    });
    for result in results {
        result.unwrap();
    }
}

/// Teams without common ranks need no order between them, also on one thread.
#[test]
fn teams_without_common_ranks_open_in_any_order() {
    for result in World::local(6, |world| -> Result<()> {
        let me = world.rank();
        let row = world.split("rows", me / 3, me)?.unwrap();
        for round in 0..8 {
            use_many(&row, round * 1000 + (me / 3) as u64)?;
        }
        Ok(())
    }) {
        result.unwrap();
    }
}

/// A rank of a team opens two things in another order than the others. All ranks of this team get the same error and can
/// open both afterwards. What their other team opens meanwhile is open.
#[test]
fn ranks_that_disagree_on_an_order_hear_it_and_the_other_teams_go_on() {
    World::local(6, |world| {
        let teams = teams(&world).unwrap();
        for round in 0..12 {
            let wrong = Rng::new(round).below(6);
            let (bad, good) = match round % 2 {
                0 => (&teams[2], &teams[0]),
                _ => (&teams[1], &teams[3]),
            };
            let is_wrong = world.rank() == wrong;
            let any_is_wrong = bad.ranks().contains(&wrong);
            std::thread::scope(|scope| {
                let other = scope.spawn(|| use_many(good, round));
                stream!(let s = world.stream().unwrap());
                let names = if is_wrong { ["b", "a"] } else { ["a", "b"] };
                for name in names {
                    let opened = Barrier::open(&bad.on(&s), name).map(drop);
                    match opened {
                        Ok(()) => assert!(!any_is_wrong),
                        Err(Error::Open(WindowError::Disagreement { disagreement, .. })) => {
                            assert!(any_is_wrong);
                            let Disagreement::Windows { lowest, rank, .. } = *disagreement else {
                                panic!("{disagreement}")
                            };
                            let first = *bad.ranks().iter().min().unwrap();
                            let next = bad.ranks().into_iter().filter(|rank| *rank != first).min();
                            let expected = if wrong == first { next.unwrap() } else { wrong };
                            assert_eq!((lowest, rank), (first, expected));
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
                let [a, b] = ["a", "b"].map(|name| Barrier::open(&bad.on(&s), name).unwrap());
                for mut barrier in [a, b] {
                    barrier.enqueue(&s).unwrap();
                }
                s.synchronize().unwrap();
                other.join().unwrap().unwrap();
            });
        }
    });
}

/// Ranks make teams of one list from two parents. All of them get one error, also the rank that comes when the others
/// have heard, and they have lost nothing.
#[test]
fn teams_of_different_parents_differ_on_all_ranks() {
    const ALL: [usize; 4] = [0, 1, 2, 3];
    let heard = Meeting::new(4);
    World::local(4, |world| {
        let me = world.rank();
        let parents = [("one", [0, 1, 2, 3]), ("two", [3, 2, 1, 0])];
        let parents = parents.map(|(name, ranks)| world.team(name, &ranks).unwrap());
        for late in ALL {
            if me == late {
                heard.wait();
            }
            let error = parents[me % 2].team("part", &ALL).unwrap_err();
            if me != late {
                heard.wait();
            }
            let Error::Team(TeamError::Differ { rank, mine, theirs }) = error else {
                panic!("{error}")
            };
            let names = ["one/part", "two/part"];
            assert_eq!(
                (&*mine.name, &*theirs.name),
                (names[me % 2], names[1 - me % 2])
            );
            assert_eq!(mine.ranks, parents[me % 2].ranks());
            assert_eq!(rank % 2, 1 - me % 2, "it is a rank of the other team");
            world.all_gather("all have heard", Vec::new()).unwrap();
            for parent in &parents {
                use_many(&parent.team("part", &ALL).unwrap(), late as u64).unwrap();
            }
        }
    });
}

/// Threads make two teams at the same time, in any order on each rank, and one rank comes late. Each attempt ends: both
/// teams begin, or neither does, and that on all ranks.
#[test]
fn threads_that_make_two_teams_in_different_orders_all_end_alike() {
    for size in [3, 4] {
        let outcomes = World::local(size, |world| {
            let me = world.rank();
            let lists: [Vec<usize>; 2] = [(0..size).collect(), (0..size).rev().collect()];
            let attempt = |list: usize, pause: Duration| {
                std::thread::sleep(pause);
                match world.team("team", &lists[list]) {
                    Ok(team) => Some(team.ranks()),
                    Err(Error::Team(TeamError::Differ { mine, .. })) => {
                        assert_eq!(mine.ranks, lists[list]);
                        None
                    }
                    Err(error) => panic!("{error}"),
                }
            };
            let mut all = Vec::new();
            for round in 0..if cfg!(miri) { 2 } else { 20 } {
                let mut pauses = Rng::new((round * size + me) as u64);
                let late = if round % size == me { 3000 } else { 0 };
                let pauses =
                    [0, 1].map(|_| Duration::from_micros((late + pauses.below(300)) as u64));
                let ends = std::thread::scope(|scope| {
                    let attempt = &attempt;
                    let threads =
                        [0, 1].map(|list| scope.spawn(move || attempt(list, pauses[list])));
                    threads.map(|thread| thread.join().unwrap())
                });
                assert!(ends.iter().all(|end| end.is_some() == ends[0].is_some()));
                all.push(ends);
                world.all_gather("all have ended", Vec::new()).unwrap();
                for list in [0, 1] {
                    assert!(attempt(list, Duration::ZERO).is_some());
                }
            }
            all
        });
        for others in &outcomes[1..] {
            assert_eq!(outcomes[0], *others);
        }
    }
}

/// Ranks split two teams in different orders. Each waits for the other, and a report says so. When other threads make
/// the missing calls, each split either succeeds or gets an error, and that on both ranks.
#[test]
fn splits_of_different_parents_are_reported_and_end_alike() {
    let seen_by = AtomicUsize::new(0);
    let outcomes = World::local(2, |world| {
        world.report_waits_after(Duration::from_millis(100));
        let me = world.rank();
        let parents = [("one", [0, 1]), ("two", [1, 0])];
        let parents = parents.map(|(name, ranks)| world.team(name, &ranks).unwrap());
        let split = |parent: usize| match parents[parent].split("part", 7, 0) {
            Ok(team) => Some(team.unwrap().ranks()),
            Err(Error::Team(TeamError::Differ { rank, .. })) if rank == 1 - me => None,
            Err(error) => panic!("{error}"),
        };
        let mut ends = std::thread::scope(|scope| {
            let mine = scope.spawn(|| split(me));
            let until = Instant::now() + Duration::from_secs(20);
            let report = loop {
                match world.last_report() {
                    Some(text) if text.contains("cycle: rank") => break text,
                    other if Instant::now() > until => panic!("{other:?}"),
                    _ => std::thread::sleep(Duration::from_millis(10)),
                }
            };
            // The next report has no cycle, so no rank goes on before both have seen this one.
            seen_by.fetch_add(1, Ordering::SeqCst);
            while seen_by.load(Ordering::SeqCst) < 2 && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(10));
            }
            for (rank, other, parent) in [(0, 1, "one"), (1, 0, "two")] {
                let line = format!(
                    "rank {rank}: rank {other}, to come to splitting into teams `{parent}/part`"
                );
                assert!(report.contains(&line), "{report}");
            }
            let other = split(1 - me);
            [mine.join().unwrap(), other]
        });
        if me == 1 {
            ends.reverse();
        }
        world.all_gather("both have ended", Vec::new()).unwrap();
        assert_eq!([0, 1].map(split), [Some(vec![0, 1]), Some(vec![1, 0])]);
        ends
    });
    assert_eq!(outcomes[0], outcomes[1]);
    let orders = [[0, 1], [1, 0]];
    for (end, order) in outcomes[0].iter().zip(orders) {
        assert!(end.as_ref().is_none_or(|ranks| *ranks == order), "{end:?}");
    }
}
