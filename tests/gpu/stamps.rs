//! Stamps: each leg of each lane, with times in order, eager and replayed.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate::hal::device::{Device as _, Stream as _, StreamConfig};
use tidegate::hal::stamps::{Leg, Stamp, Stamps, now};

use super::common::{W, ranks};
use super::epochs::{Plan, Ring};
use crate::vendor::prelude::*;

/// A stream that is stamped, and its stamps.
fn stamped(world: &W) -> (tidegate::UnboundStream<Gpu>, Arc<dyn Stamps>) {
    let mut stamps = None;
    // SAFETY: the stream is new, and has the configuration; nothing else is done with it.
    let made = unsafe {
        world.adopt_stream("stamped", |device, config| {
            let stamped = true;
            let stream = device.stream(StreamConfig { stamped, ..config })?;
            stamps = stream.stamps();
            Ok(stream)
        })
    };
    (made.unwrap(), stamps.expect("it is stamped"))
}

/// The legs that were stamped since the last call, and how many stamps were dropped.
fn take(stamps: &Arc<dyn Stamps>) -> (Vec<Leg>, u64) {
    let mut legs = Vec::new();
    let dropped = stamps.take(&mut |stamp| match stamp {
        Stamp::Leg(leg) => legs.push(leg),
        other => panic!("{other:?}"),
    });
    for leg in &legs {
        let times = [leg.begun, leg.satisfied, leg.moved, leg.ended];
        assert!(times.is_sorted(), "{leg:?}");
    }
    (legs, dropped)
}

/// The legs that have been stamped since `from`, which is a time of the host. None was dropped. Batches come in order.
fn all(stamps: &Arc<dyn Stamps>, from: u64) -> Vec<Leg> {
    let (legs, dropped) = take(stamps);
    assert_eq!(dropped, 0);
    let error = stamps.clock_error();
    assert_ne!(error, u64::MAX, "the clocks were compared");
    let (earliest, latest) = (from.saturating_sub(error), now() + error);
    let mut before = earliest;
    for batch in legs.chunk_by(|one, next| one.batch == next.batch) {
        for leg in batch {
            assert!(
                leg.begun >= before && leg.ended <= latest,
                "{before} {leg:?}"
            );
        }
        before = batch
            .iter()
            .map(|leg| leg.ended)
            .max()
            .expect("it has a leg");
    }
    legs
}

/// Lanes of warps whose bytes land, of a block, and of several blocks; posts, puts and waits apart and fused. A recording
/// is replayed alone, and several times at once.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn every_lane_of_an_epoch_is_stamped_whenever_it_runs() {
    for (buffers, len) in [
        (Buffers::Single, 31),
        (Buffers::Single, 700),
        (Buffers::Double, 5_000),
        (Buffers::Single, 200_000),
        // Copy engines carry these, if they are not recorded.
        (Buffers::Single, 4 << 20),
    ] {
        ranks(3, |world, k| {
            let from = now();
            let (unbound, stamps) = stamped(&world);
            let steps = {
                stream!(let s = unbound);
                let plan = Plan::new(&k, &world, len);
                let fused = plan.part(0, len, true);
                let mut ring = Ring::open(&world, &s, buffers, len).unwrap();
                let (graph, back) = s.capture(ring, |s, r| plan.step(s, r)).unwrap();
                ring = back;
                assert_eq!(take(&stamps).0, [], "a recording is not an execution");
                for times in [1, 9] {
                    ring = plan.step(&s, ring).unwrap();
                    ring = graph.replay(&s, ring, times).unwrap();
                    ring = fused.step(&s, ring).unwrap();
                }
                let (steps, errors) = ring.verdict(&s).unwrap();
                assert_eq!((steps, errors), (14, 0));
                steps
            };
            // They are there when the stream is gone.
            let legs = all(&stamps, from);
            // In each epoch a rank posts to both neighbours, puts to both, and waits for both.
            let mut epochs = BTreeMap::new();
            for leg in &legs {
                assert_eq!(leg.leg, 0, "{leg:?}");
                assert!(leg.lane < 6);
                *epochs.entry(leg.epoch).or_insert(0) += 1;
            }
            // A post waits for nothing, so its epoch is 0.
            let expected =
                (0..steps).map(|epoch| (epoch, if epoch == 0 { 4 + 2 * steps } else { 4 }));
            assert_eq!(epochs, expected.collect(), "{buffers:?}, {len} elements");
            // A lane's waits come in the order of its epochs.
            for (at, leg) in legs.iter().enumerate() {
                let same = |other: &&Leg| (other.batch, other.lane) == (leg.batch, leg.lane);
                if let Some(next) = legs[at + 1..].iter().find(same) {
                    assert!(leg.epoch == 0 || next.epoch > leg.epoch, "{leg:?} {next:?}");
                    assert!(next.begun >= leg.ended, "{leg:?} {next:?}");
                }
            }
        });
    }
}

/// A barrier of five ranks: a signal; a wait, a signal, a wait and a signal in one lane; and a wait.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn each_wait_of_a_barrier_begins_a_leg() {
    const TIMES: u64 = 10;
    ranks(5, |world, _| {
        let from = now();
        let (unbound, stamps) = stamped(&world);
        stream!(let s = unbound);
        let mut barrier = Barrier::open(&s, "b").unwrap();
        for _ in 0..TIMES {
            barrier.enqueue(&s).unwrap();
        }
        s.synchronize().unwrap();
        let mut legs = all(&stamps, from);
        // Lanes go side by side, but batches one after the other.
        for legs in legs.chunks_mut(4) {
            legs.sort_by_key(|leg| (leg.lane, leg.leg));
            assert_eq!(legs[2].begun, legs[1].ended);
        }
        let numbers: Vec<_> = legs
            .iter()
            .map(|leg| (leg.lane, leg.leg, leg.epoch))
            .collect();
        let expected =
            (0..TIMES).flat_map(|time| [(0, 0, 0), (1, 0, time), (1, 1, time), (2, 0, time)]);
        assert_eq!(numbers, expected.collect::<Vec<_>>());
    });
}

/// A short sum is one batch, with a post, and one lane that puts, waits and reduces. A long one is two.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn an_all_reduce_is_stamped_with_its_reduction() {
    const TIMES: usize = 5;
    for len in [100, 100_000] {
        ranks(2, |world, _| {
            let from = now();
            let (unbound, stamps) = stamped(&world);
            stream!(let s = unbound);
            let mut reduce = AllReduce::<f64>::open(&s, "energy", len, Op::Sum).unwrap();
            let x = Region::from_slice(&world, &vec![1.0; len]).unwrap();
            let mut x = x.on(&s).unwrap();
            for _ in 0..TIMES {
                reduce.enqueue(&s, &mut x).unwrap();
            }
            let mut sums = vec![0.0; len];
            x.into_host(&s).unwrap().read(0, &mut sums).unwrap();
            assert_eq!(sums, vec![(1 << TIMES) as f64; len]);
            let legs = all(&stamps, from);
            let batches = legs.chunk_by(|one, next| one.batch == next.batch);
            let lanes: Vec<_> = batches.map(<[Leg]>::len).collect();
            // Two ranks exchange whole vectors. A short sum is one batch, with a leg for the post, and one for each wait
            // of the other lane. A long sum follows in a batch of its own, which is divided among lanes.
            match len {
                100 => assert_eq!(lanes, [3 * TIMES]),
                _ => assert!(lanes.len() == 2 * TIMES && lanes[1] >= 1, "{lanes:?}"),
            }
        });
    }
}

/// Each kind of short reduction is one batch, also where a rank only receives. In a scan, whose targets are no origins,
/// that is the last rank.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn short_reductions_are_one_batch() {
    const RANKS: usize = 3;
    ranks(RANKS, |world, _| {
        let (rank, (unbound, stamps)) = (world.rank(), stamped(&world));
        stream!(let s = unbound);
        let on = |len| Region::from_slice(&world, &vec![1.0; len]).unwrap().on(&s);
        let (mut x, mut y, wide) = (on(2).unwrap(), on(2).unwrap(), on(2 * RANKS).unwrap());
        let choice = tidegate::Choice {
            scan: RANKS,
            ..tidegate::Choice::default()
        };
        let mut sums = AllReduce::<f64>::open(&s, "sums", 2, Op::Sum).unwrap();
        let mut to_one = Reduce::<f64>::open(&s, "to one", 1, 2, Op::Sum).unwrap();
        let mut parts = ReduceScatter::<f64>::open(&s, "parts", 2, Op::Sum).unwrap();
        let mut scan = Scan::<f64>::open_with(&s, "scan", 2, Op::Sum, choice).unwrap();
        let batches = |what: &mut dyn FnMut() -> tidegate::Result<()>| {
            let from = now();
            what().unwrap();
            s.synchronize().unwrap();
            let legs = all(&stamps, from);
            legs.chunk_by(|one, next| one.batch == next.batch).count()
        };
        assert_eq!(batches(&mut || sums.enqueue_into(&s, &x, &mut y)), 1);
        assert_eq!(batches(&mut || sums.enqueue(&s, &mut y)), 1);
        assert_eq!(batches(&mut || to_one.enqueue(&s, &mut x)), 1);
        assert_eq!(batches(&mut || parts.enqueue(&s, &wide, &mut y)), 1);
        let expected = if rank == 1 { 2 } else { 1 };
        assert_eq!(batches(&mut || scan.enqueue_into(&s, &x, &mut y)), expected);
    });
}

/// Nobody takes stamps while many are made. The stream goes on, keeps the oldest, and counts the others.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn a_full_ring_keeps_the_oldest_and_counts_the_rest() {
    const TIMES: u64 = 10_000;
    const SLOTS: u64 = 1 << 14;
    ranks(2, |world, _| {
        let (unbound, stamps) = stamped(&world);
        stream!(let s = unbound);
        let mut barrier = Barrier::open(&s, "b").unwrap();
        // Each has two lanes: the signal, and the wait.
        for _ in 0..TIMES {
            barrier.enqueue(&s).unwrap();
        }
        s.synchronize().unwrap();
        let epochs = |legs: &[Leg]| -> Vec<u64> {
            let waits = legs.iter().filter(|leg| leg.lane == 1);
            waits.map(|leg| leg.epoch).collect()
        };
        let (legs, dropped) = take(&stamps);
        assert_eq!((legs.len() as u64, dropped), (SLOTS, 2 * TIMES - SLOTS));
        assert_eq!(epochs(&legs), (0..SLOTS / 2).collect::<Vec<_>>());
        barrier.enqueue(&s).unwrap();
        s.synchronize().unwrap();
        let (legs, dropped) = take(&stamps);
        assert_eq!(dropped, 2 * TIMES - SLOTS);
        assert_eq!((legs.len(), epochs(&legs)), (2, vec![TIMES]));
    });
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn other_streams_have_no_stamps() {
    ranks(1, |world, _| {
        // SAFETY: as above.
        let made = unsafe {
            world.adopt_stream("plain", |device, config| {
                let stream = device.stream(config)?;
                assert!(stream.stamps().is_none());
                Ok(stream)
            })
        };
        stream!(let s = made.unwrap());
        s.synchronize().unwrap();
    });
}
