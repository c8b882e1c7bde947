//! All-reduces of GPUs, compared with the host's results for the same vectors.

use crate::vendor::prelude::*;
use half::{bf16, f16};
use num_complex::Complex;
use tidegate::Reducible;

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

fn reduced<T: Reducible>(
    len: usize,
    op: Op,
    of: impl Fn(usize, usize) -> T + Sync,
    apply: impl Fn(T, T) -> T + Sync,
    bits: impl Fn(T) -> u64 + Sync,
) {
    const RANKS: usize = 4;
    let results = ranks(RANKS, |world, _| {
        stream!(let s = world.stream().unwrap());
        let mut reduce = Reduce::<T>::open(&s, "energy", len, op).unwrap();
        let mine: Vec<T> = (0..len).map(|index| of(world.rank(), index)).collect();
        let mut result = mine.clone();
        let mut x = Region::from_slice(&world, &mine).unwrap();
        // Twice, so that both buffers are read.
        for _ in 0..2 {
            x.write(0, &mine).unwrap();
            let mut there = x.on(&s).unwrap();
            reduce.enqueue(&s, &mut there).unwrap();
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

/// A finite number of 16 bits, which may be subnormal.
fn half(rank: usize, index: usize) -> u16 {
    (fraction(rank, index).to_bits() >> 16) as u16 & 0xbfff
}

/// Each step is rounded to 16 bits, and nothing else is.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn reductions_of_halves_are_those_of_the_host_to_the_bit() {
    let wide = |x: f16| u64::from(x.to_bits());
    let upper = |x: bf16| u64::from(x.to_bits());
    // Fewer than a line of 16 bytes, some lines with a rest, and many.
    for len in [1, 7, 33, 5001] {
        let close = |r, i| f16::from_f64(fraction(r, i));
        let any = |r, i| f16::from_bits(half(r, i));
        reduced(len, Op::Sum, close, |a, b| a + b, wide);
        reduced(len, Op::Sum, any, |a, b| a + b, wide);
        reduced(len, Op::Prod, any, |a, b| a * b, wide);
        reduced(len, Op::Min, any, f16::min, wide);
        reduced(len, Op::Max, any, f16::max, wide);
        let close = |r, i| bf16::from_f64(fraction(r, i));
        let any = |r, i| bf16::from_bits(half(r, i));
        reduced(len, Op::Sum, close, |a, b| a + b, upper);
        reduced(len, Op::Sum, any, |a, b| a + b, upper);
        reduced(len, Op::Prod, close, |a, b| a * b, upper);
        reduced(len, Op::Min, any, bf16::min, upper);
        reduced(len, Op::Max, any, bf16::max, upper);
    }
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn sums_of_several_numbers_are_those_of_the_host_to_the_bit() {
    for len in [1, 33, 5000] {
        let complex = |r, i| {
            let number = fraction(r, i) as f32;
            Complex::new(number, 1.0 / number)
        };
        let both = |x: Complex<f32>| (u64::from(x.re.to_bits()) << 32) | u64::from(x.im.to_bits());
        reduced(len, Op::Sum, complex, |a, b| a + b, both);
        let array = |r, i| {
            [0, 1, 2].map(|part| Complex::new(bf16::from_f64(fraction(r, 3 * i + part)), bf16::ONE))
        };
        let each = |a: [Complex<bf16>; 3], b: [Complex<bf16>; 3]| {
            std::array::from_fn(|part| {
                let (a, b) = (a[part], b[part]);
                Complex::new(a.re + b.re, a.im + b.im)
            })
        };
        let bits = |x: [Complex<bf16>; 3]| {
            let fold = |all: u64, one: Complex<bf16>| {
                let number = (u64::from(one.re.to_bits()) << 16) | u64::from(one.im.to_bits());
                all.rotate_left(17) ^ number
            };
            x.into_iter().fold(0, fold)
        };
        reduced(len, Op::Sum, array, each, bits);
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
