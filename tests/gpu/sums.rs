//! Sums: the same bits as on the host, and no change to the bytes beside them.

use super::common::{ranks, ranks_with};
use crate::vendor::prelude::*;
use tidegate::WorldOptions;

/// Pairs of which the sum, or one of both, is subnormal.
const PAIRS: [(f32, f32); 4] = [
    (f32::from_bits(1), f32::from_bits(0x7f_0000)),
    (f32::MIN_POSITIVE, -f32::from_bits(1)),
    (f32::from_bits(0x8000_0003), f32::from_bits(0x8000_0004)),
    (1.0, f32::from_bits(5)),
];

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn subnormal_numbers_are_kept() {
    ranks(2, |world, _| {
        let (rank, other) = (world.rank(), 1 - world.rank());
        let expected = bits(&PAIRS.map(|(one, two)| one + two));
        let (ones, twos) = (PAIRS.map(|pair| pair.0), PAIRS.map(|pair| pair.1));
        stream!(let s = world.stream().unwrap());
        let on = |values: &[f32]| Region::from_slice(&world, values).unwrap().on(&s).unwrap();
        let (one, two) = (on(&ones), on(&twos));
        let mut back = on(&[0.0; 4]);

        // An atomic window: accumulates, one of them by a fetch-and-op, whose result another fetch returns.
        let mut window = AtomicWindow::<f32>::new("atomic", 4);
        let at = window.target(other);
        let (mut inbox, mut outbox) = window.open(&s).unwrap();
        for step in 0..3 {
            let exposed = inbox.post(&s).unwrap();
            let mut epoch = outbox.start();
            match step {
                0 => epoch.accumulate(&one, at, Op::Replace).unwrap(),
                1 => epoch.accumulate(&two, at, Op::Sum).unwrap(),
                _ => epoch.fetch_and_op(&two, &mut back, at, Op::Keep).unwrap(),
            }
            outbox = epoch.complete(&s).unwrap();
            inbox = exposed.wait(&s).unwrap();
        }
        let mut atomic = [0.0; 4];
        back.into_host(&s).unwrap().read(0, &mut atomic).unwrap();
        assert_eq!(bits(&atomic), expected, "atomic");

        // All ranks, in their order.
        let mut sums = AllReduce::<f32>::open(&s, "sums", 4, Op::Sum).unwrap();
        let mut mine = on(if rank == 0 { &ones } else { &twos });
        sums.enqueue(&s, &mut mine).unwrap();
        let mut reduced = [0.0; 4];
        mine.into_host(&s).unwrap().read(0, &mut reduced).unwrap();
        assert_eq!(bits(&reduced), expected, "all-reduce");
    });
}

/// One neighbour accumulates to the first half of each rank's bytes, and the other puts to the second half. They meet
/// in the middle of four bytes.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn neighbours_of_small_elements_are_left_alone() {
    small_sums_with(|_| WorldOptions::new());
}

pub(super) fn small_sums_with(options: impl Fn(usize) -> WorldOptions + Sync) {
    const HALF: usize = 1001;
    const TIMES: u8 = 40;
    ranks_with(3, options, |world, _| {
        let (left, right) = ((world.rank() + 2) % 3, (world.rank() + 1) % 3);
        stream!(let s = world.stream().unwrap());
        let on = |values: &[u8]| Region::from_slice(&world, values).unwrap().on(&s).unwrap();
        let mut window = RangeWindow::<u8>::new("bytes", 2 * HALF);
        let range_right = window.range_to(right, 0..HALF);
        let range_left = window.range_to(left, HALF..2 * HALF);
        let (mut inbox, mut outbox) = window.open(&s).unwrap();
        let ones = on(&[1; HALF]);
        for time in 1..=TIMES {
            let numbers = on(&[time; HALF]);
            let exposed = inbox.post(&s).unwrap();
            let mut epoch = outbox.start();
            // Two sums to the same elements, which are dealt to the threads in different ways.
            epoch.accumulate(&ones, range_right, Op::Sum).unwrap();
            let but_one = ones.slice(0..HALF - 1).unwrap();
            epoch
                .accumulate(but_one, range_right.at(1), Op::Sum)
                .unwrap();
            epoch.put(&numbers, range_left).unwrap();
            outbox = epoch.complete(&s).unwrap();
            inbox = exposed.wait(&s).unwrap();
        }
        let (mut sums, mut put) = (on(&[0; HALF]), on(&[0; HALF]));
        let exposed = inbox.post(&s).unwrap();
        let mut epoch = outbox.start();
        epoch.get(&mut sums, range_right).unwrap();
        epoch.get(&mut put, range_left).unwrap();
        outbox = epoch.complete(&s).unwrap();
        inbox = exposed.wait(&s).unwrap();
        drop((outbox, inbox));
        let read = |region: Region<u8, _>| {
            let mut bytes = vec![0; HALF];
            region.into_host(&s).unwrap().read(0, &mut bytes).unwrap();
            bytes
        };
        let (sums, put) = (read(sums), read(put));
        assert_eq!(sums[0], TIMES);
        assert!(sums[1..].iter().all(|byte| *byte == 2 * TIMES));
        assert!(put.iter().all(|byte| *byte == TIMES));
    });
}
