//! All-reduces of GPUs, compared with the host's results for the same vectors.

use crate::vendor::prelude::*;
use tidegate::Arithmetic;

use super::common::ranks;
use crate::schedules::rounds;

type Reduce<'s, T> = AllReduce<'s, T>;

/// The value of a rank. Sums of these depend on their order; none of them is subnormal, and no two are zeros.
fn fraction(rank: usize, index: usize) -> f64 {
    let mixed = ((rank * 7919 + index * 104_729 + 17) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let sign = if mixed & 1 == 0 { 1.0 } else { -1.0 };
    sign * (0.25 + (mixed >> 11) as f64 / (1u64 << 50) as f64)
}

/// The vectors of all ranks, reduced in the order of the ranks.
fn model<T: Element>(
    ranks: usize,
    len: usize,
    of: impl Fn(usize, usize) -> T,
    op: impl Fn(T, T) -> T,
) -> Vec<T> {
    let one = |index| (1..ranks).fold(of(0, index), |all, rank| op(all, of(rank, index)));
    (0..len).map(one).collect()
}

fn reduced<T: Arithmetic>(
    len: usize,
    op: Op,
    of: impl Fn(usize, usize) -> T + Sync,
    apply: impl Fn(T, T) -> T + Sync,
    bits: impl Fn(T) -> u64 + Sync,
) {
    const RANKS: usize = 4;
    let results = ranks(RANKS, |world, _| {
        stream!(let s = world.stream().unwrap());
        let mut reduce = Reduce::<T>::open(&s, "energy", len).unwrap();
        let mine: Vec<T> = (0..len).map(|index| of(world.rank(), index)).collect();
        let mut result = mine.clone();
        let mut x = Region::from_slice(&world, &mine).unwrap();
        // Twice, so that both buffers are read.
        for _ in 0..2 {
            x.write(0, &mine).unwrap();
            let mut there = x.on(&s).unwrap();
            reduce.reduce(&s, &mut there, op).unwrap();
            x = there.into_host(&s).unwrap();
            x.read(0, &mut result).unwrap();
        }
        result.into_iter().map(&bits).collect::<Vec<_>>()
    });
    let expected: Vec<_> = model(RANKS, len, of, apply)
        .into_iter()
        .map(&bits)
        .collect();
    for (rank, result) in results.iter().enumerate() {
        assert!(*result == expected, "rank {rank}, {len} elements, {op:?}");
    }
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn reductions_are_those_of_the_host_to_the_bit() {
    for len in [1, 33, 5000] {
        let float = |x: f32| u64::from(x.to_bits());
        reduced(len, Op::Sum, fraction, |a, b| a + b, f64::to_bits);
        reduced(len, Op::Prod, fraction, |a, b| a * b, f64::to_bits);
        reduced(len, Op::Min, fraction, f64::min, f64::to_bits);
        reduced(len, Op::Max, fraction, f64::max, f64::to_bits);
        reduced(
            len,
            Op::Sum,
            |r, i| fraction(r, i) as f32,
            |a, b| a + b,
            float,
        );
        reduced(
            len,
            Op::Prod,
            |r, i| fraction(r, i) as f32,
            |a, b| a * b,
            float,
        );
        let small = |r, i| (fraction(r, i) * 1e3) as i16;
        let wide = |x: i16| x as u64;
        reduced(len, Op::Sum, small, i16::wrapping_add, wide);
        reduced(len, Op::Min, small, i16::min, wide);
        reduced(len, Op::BitXor, small, |a, b| a ^ b, wide);
        reduced(
            len,
            Op::Prod,
            |r, i| fraction(r, i).to_bits(),
            u64::wrapping_mul,
            |x| x,
        );
    }
}

/// Different rounds, eager and replayed, with landings and without: the jobs that the host runs in
/// `tests/host/random.rs`.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn rounds_of_reductions_in_recordings_and_between_them() {
    for ranks in [1, 2, 4] {
        rounds::check::<Gpu>(ranks);
    }
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn reductions_handed_over_in_recordings() {
    rounds::check_handed_over::<Gpu>(3);
}
