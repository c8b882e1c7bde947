//! All collectives of threads, against oracles, with random lengths, choices and delays.

mod all;
mod counted;
mod datum;
mod nodes;

use std::time::Duration;

use tidegate_hal::batch::Op;
use tidegate_host::Host;
use tidegate_loopback::{Loopback, Options};

use self::all::{All, Plan, delays, rounds, rounds_in};
use super::*;
use crate::error::{EpochError, Error, Result, WindowError};
use crate::random::Rng;
use crate::{On, Region, Route, Stream, Team, World, WorldOptions, stream};

type OnStream<'s, T> = Region<T, On<'s, Host>>;
type S<'s> = Stream<'s, Host>;

#[test]
fn all_of_them_are_those_of_the_oracle_eager_and_replayed() {
    for size in [1, 2, 3, 5, 8] {
        for result in World::<Host>::local(size, |world| rounds(&world, 24 / size, 7)) {
            result.unwrap();
        }
    }
}

/// Random teams, which overlap with those of the round before, and all of which work at a time.
#[test]
fn teams_have_all_of_them_too() {
    for (size, seed) in [(2, 1), (5, 2), (7, 3)] {
        let results = World::<Host>::local(size, |world| -> Result<()> {
            let mut random = Rng::new(seed);
            for round in 0..4 {
                let colors = 1 + random.below(3);
                let choices = (0..size).map(|_| (random.below(colors + 1), random.below(size)));
                let choices: Vec<_> = choices.collect();
                let (color, key) = choices[world.rank()];
                let color = (color < colors).then_some(color);
                let Some(team) = world.split("some", color, key)? else {
                    assert_eq!(color, None);
                    continue;
                };
                let alike = (0..size).filter(|rank| Some(choices[*rank].0) == color);
                let mut expected: Vec<_> = alike.collect();
                expected.sort_by_key(|rank| choices[*rank].1);
                assert_eq!(team.ranks(), expected);
                let seed = round << 8 | choices[expected[0]].0 as u64;
                rounds_in(&team, 2, seed)?;
                // A team of the team, in another order.
                let parity = team.split("parity", team.rank() % 2, team.size() - team.rank())?;
                rounds_in(&parity.unwrap(), 1, seed)?;
            }
            Ok(())
        });
        results.into_iter().collect::<Result<()>>().unwrap();
    }
}

/// An origin whose data nobody reads hears of that.
#[test]
fn a_root_does_not_wait_for_a_target_that_leaves() {
    for len in [1, 50_000] {
        let results = World::<Host>::local(2, |world| -> Result<()> {
            stream!(let s = world.stream()?);
            let mut data = Broadcast::open(&s, "data", 0, len)?;
            let mut x = Region::from_slice(&world, &vec![1.0; len])?.on(&s)?;
            // Short data wait in the slots, which are full at last.
            let calls = if world.rank() == 0 { 40 } else { 0 };
            (0..calls).try_for_each(|_| data.enqueue(&s, &mut x))?;
            s.synchronize()
        });
        assert!(results[1].is_ok());
        let error = results[0].as_ref().unwrap_err().to_string();
        assert!(error.contains("window `data`"), "{error}");
        let awaited = if len == 1 {
            "its post"
        } else {
            "the end of its reads"
        };
        assert!(error.contains(awaited), "{error}");
    }
}

/// A lane may read a slot that came in an earlier round of the call, behind waits that are for others.
#[test]
fn more_ranks_than_a_round_has_peers() {
    let scans = World::<Host>::local(35, |world| -> Result<()> {
        stream!(let s = world.stream()?);
        let choice = Choice {
            scan: 64,
            ..Choice::on(&s)
        };
        let mut scan = Scan::open_with(&s, "scan", 1, Op::Sum, choice)?;
        let x = Region::from_slice(&world, &[1_u64])?.on(&s)?;
        let mut y = Region::zeroed(&world, 1)?.on(&s)?;
        for _ in 0..3 {
            scan.enqueue_into(&s, &x, &mut y)?;
        }
        assert_eq!(y.into_host(&s)?[0], world.rank() as u64 + 1);
        let mut x = x;
        scan.enqueue(&s, &mut x)?;
        assert_eq!(x.into_host(&s)?[0], world.rank() as u64 + 1);
        Ok(())
    });
    scans.into_iter().collect::<Result<()>>().unwrap();
}

/// The same sums in every run, to the bit, although other ranks are late each time.
#[test]
fn a_hundred_runs_have_the_same_bits() {
    World::<Host>::local(4, |world| {
        for run in 0..100 {
            stream!(let s = world.stream().unwrap());
            let team = world.everyone();
            let plan = Plan::new(&team, &mut Rng::new(run % 4));
            let mut all = All::<half::bf16>::open(&team, &s, plan, delays(&world, run)).unwrap();
            let mut buffers = all.buffers(&s).unwrap();
            for in_place in [false, true] {
                all.step(&s, &mut buffers, in_place).unwrap();
                all.check(&s, &buffers, "late").unwrap();
            }
        }
    });
}

#[test]
fn over_nics_too() {
    let late = Options::default().delay(Duration::from_micros(50));
    for (size, staged) in [(2, false), (3, true), (4, false)] {
        for (route, options) in [
            (Route::Nic, Options::default()),
            (Route::NicTo([0].into()), Options::default().budget(1)),
            (Route::Nic, late.clone()),
        ] {
            let nic = |_| {
                let options = WorldOptions::new()
                    .nic(Loopback::new(options.clone()))
                    .route(route.clone());
                if staged { options.staged() } else { options }
            };
            for result in World::<Host>::local_with(size, nic, |world| rounds(&world, 3, 11)) {
                result.unwrap();
            }
        }
    }
}

#[test]
fn elements_of_several_numbers_are_reduced_one_by_one() {
    World::<Host>::local(3, |world| {
        stream!(let s = world.stream().unwrap());
        let rank = world.rank() as i32;
        let mut sums = AllReduce::open(&s, "sums", 100, Op::Sum).unwrap();
        let mut most = AllReduce::open(&s, "most", 100, Op::Max).unwrap();
        let x = [[[rank, 2], [3, -rank]]; 100];
        let mut x = Region::from_slice(&world, &x).unwrap().on(&s).unwrap();
        sums.enqueue(&s, &mut x).unwrap();
        most.enqueue(&s, &mut x).unwrap();
        assert_eq!(x.into_host(&s).unwrap()[..], [[[3, 6], [9, -3]]; 100]);
    });
}

#[cfg(feature = "complex")]
#[test]
fn complex_numbers_are_added_and_nothing_else() {
    use num_complex::Complex;
    World::<Host>::local(2, |world| {
        stream!(let s = world.stream().unwrap());
        let open = |op| AllReduce::<Complex<f32>, Host>::open(&s, "all", 3, op);
        let error = open(Op::Prod).unwrap_err();
        let typed = matches!(
            error,
            Error::Open(WindowError::OnlySums { op: Op::Prod, .. })
        );
        assert!(typed, "{error}");
        let x = [Complex::new(world.rank() as f32, 0.5); 3];
        let mut x = Region::from_slice(&world, &x).unwrap().on(&s).unwrap();
        open(Op::Sum).unwrap().enqueue(&s, &mut x).unwrap();
        assert_eq!(x.into_host(&s).unwrap()[..], [Complex::new(1.0, 1.0); 3]);
    });
}

#[test]
fn once_leaves_nothing_behind() {
    World::<Host>::local(3, |world| {
        stream!(let s = world.stream().unwrap());
        for round in 0..20 {
            let x = [world.rank() as u64 + round; 4];
            let mut x = Region::from_slice(&world, &x).unwrap().on(&s).unwrap();
            let mut y = Region::zeroed(&world, 12).unwrap().on(&s).unwrap();
            AllGather::once(&s, &x, &mut y).unwrap();
            AllReduce::once(&s, &mut x, Op::Sum).unwrap();
            Broadcast::once(&s, 2, &mut y).unwrap();
            assert_eq!(x.into_host(&s).unwrap()[3], 3 + 3 * round);
            assert_eq!(y.into_host(&s).unwrap()[11], 2 + round);
        }
    });
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    World::<Host>::local(2, |world| {
        stream!(let s = world.stream().unwrap());
        let mut all = AllGather::<u8, Host>::open(&s, "all", 2).unwrap();
        let region = |len| {
            Region::<u8, _>::zeroed(&world, len)
                .unwrap()
                .on(&s)
                .unwrap()
        };
        let (right, wrong) = (region(2), region(3));
        for (x, len) in [(&right, 3), (&wrong, 4)] {
            let error = all.enqueue(&s, x, &mut region(len)).unwrap_err();
            let typed = matches!(error, Error::Epoch(EpochError::CountMismatch { .. }));
            assert!(typed, "{error}");
        }
        all.enqueue(&s, &right, &mut region(4)).unwrap();
        s.synchronize().unwrap();
        let opened = Broadcast::<u8, Host>::open(&s, "news", 2, 1);
        let error = opened.err().unwrap();
        assert!(
            matches!(error, Error::NoSuchRank { rank: 2, size: 2 }),
            "{error}"
        );
        let opened = AllGather::<u8, Host>::open_counts(&s, "all-v", &[1]);
        let error = opened.err().unwrap();
        let counted = WindowError::Counts {
            name: "all-v".into(),
            counts: 1,
            ranks: 2,
        };
        assert_eq!(error.to_string(), counted.to_string());
    });
}

#[test]
fn ranks_that_disagree_are_told() {
    World::<Host>::local(3, |world| {
        stream!(let s = world.stream().unwrap());
        let last = world.rank() == 2;
        let roots = Broadcast::<f64, Host>::open(&s, "x", usize::from(last), 4).map(drop);
        let kinds = match last {
            true => AllGather::<f64, Host>::open(&s, "x", 4).map(drop),
            false => AllReduce::<f64, Host>::open(&s, "x", 4, Op::Sum).map(drop),
        };
        let to = [usize::from(last); 3];
        let blocks = AllToAll::<f64, Host>::open_counts(&s, "x", &to, &[0; 3]).map(drop);
        let counts = AllGather::<f64, Host>::open_counts(&s, "x", &[1, 2, 3 + to[0]]).map(drop);
        // A rank disagrees with itself, and two ranks about a block that is longer than a piece.
        let rank = world.rank();
        let only = |len: usize, of: [usize; 2]| {
            let mut lengths = [0; 3];
            lengths[of[1]] = if rank == of[0] { len } else { 0 };
            lengths
        };
        let all_to_all = |to: &[usize], from: &[usize]| {
            AllToAll::<f64, Host>::open_counts(&s, "x", to, from).map(drop)
        };
        let oneself = all_to_all(&only(4096, [1, 1]), &only(1, [1, 1]));
        let piece = Choice::default().piece(3, 8, 4);
        let pieces = all_to_all(&only(piece + 2, [0, 1]), &only(piece + 3, [1, 0]));
        all_to_all(&only(piece + 3, [0, 1]), &only(piece + 3, [1, 0])).unwrap();
        for opened in [roots, kinds, blocks, counts, oneself, pieces] {
            let error = opened.unwrap_err();
            let typed = matches!(error, Error::Open(WindowError::Disagreement { .. }));
            assert!(typed, "{error}");
        }
    });
}

/// Rank 1 ends when it has enqueued its part of some calls. The others wait for it, and all of them are told.
#[test]
fn of_a_rank_that_leaves_in_the_middle_all_others_hear() {
    leave_in_the_middle(&[0; 4], |_| WorldOptions::new());
}

fn leave_in_the_middle(nodes: &[usize], options: impl Fn(usize) -> WorldOptions + Sync) {
    let all_know = std::sync::Barrier::new(nodes.len() - 1);
    let results = World::<Host>::local_on(nodes, options, |world| {
        stream!(let s = world.stream().unwrap());
        let choice = Choice {
            short: 0,
            pair: 0,
            piece: 64,
            ..Choice::default()
        };
        let len = 400;
        let mut all = AllReduce::<f64, Host>::open_with(&s, "all", len, Op::Sum, choice).unwrap();
        let mut chain = Scan::<f64, Host>::open_with(&s, "chain", len, Op::Sum, choice).unwrap();
        let mut news = Broadcast::<f64, Host>::open_with(&s, "news", 2, len, choice).unwrap();
        let mut x = Region::from_slice(&world, &vec![1.0; len])
            .unwrap()
            .on(&s)
            .unwrap();
        all.enqueue(&s, &mut x).unwrap();
        news.enqueue(&s, &mut x).unwrap();
        s.synchronize().unwrap();
        if world.rank() == 1 {
            return Ok(());
        }
        // A call may be refused, if the others have said by then that they wait in vain.
        let called = all
            .enqueue(&s, &mut x)
            .and_then(|()| chain.enqueue(&s, &mut x));
        let called = called.and_then(|()| news.enqueue(&s, &mut x));
        let result = called.and_then(|()| s.synchronize());
        // The others wait for ranks that have failed, and not for ranks that have left for that reason.
        all_know.wait();
        result
    });
    for (rank, result) in results.into_iter().enumerate() {
        match rank {
            1 => assert!(result.is_ok()),
            _ => {
                let error = result.unwrap_err();
                let typed = matches!(error, Error::Wait(_) | Error::Revoked { .. });
                assert!(typed, "{error}");
                // Between nodes, a rank may wait for one that has waited for rank 1, or whose NIC has given up waiting.
                let told = error.to_string();
                let indirect = ["has failed", "has given up"]
                    .iter()
                    .any(|end| told.contains(end));
                let indirect = nodes[3] != 0 && indirect;
                assert!(told.contains("rank 1") || indirect, "{error}");
            }
        }
    }
}
