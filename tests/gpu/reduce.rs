//! All-reduces of GPUs, beside what the host makes of the same vectors.

use tidegate::prelude::*;
use tidegate::{Arithmetic, Cuda, Element};

use super::common::{Kernels, R, S, ranks};

type Reduce<'s, T> = tidegate::AllReduce<'s, T, Cuda>;

/// What a rank has. Sums of these depend on their order; none of them is subnormal, and no two are zeros.
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

/// A vector, what it is made of, and what goes on with it.
type Lent<'s> = (Reduce<'s, u64>, R<'s, u64>, R<'s, u64>);

/// `next = (sum over ranks of scale * last) + 1`, in the first element.
fn step<'s>(s: &S<'s>, k: &Kernels, scale: u64, lent: Lent<'s>) -> Result<Lent<'s>> {
    let (mut reduce, mut x, mut last) = lent;
    s.launch(k.produce.threads(x.len(), 128), (&mut x, &mut last, scale))?;
    reduce.sum(s, &mut x)?;
    s.launch(
        k.produce.threads(last.len(), 128),
        (&mut last, &mut x, 1u64),
    )?;
    s.launch(k.tick.threads(1, 32), (&mut last,))?;
    Ok((reduce, x, last))
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn reductions_in_recordings() {
    const RANKS: usize = 3;
    const LEN: usize = 40;
    const ROUNDS: u64 = 60;
    let results = ranks(RANKS, |world, k| -> Result<_> {
        let scale = world.rank() as u64 * 2 + 3;
        stream!(let mut s = world.stream()?);
        let region = |value: u64| Region::from_slice(&world, &[value; LEN]);
        let reduce = Reduce::open(&s, "energy", LEN)?;
        let lent = (reduce, region(0)?.on(&s)?, region(1)?.on(&s)?);
        let (graph, mut lent) = s.capture(lent, |s, lent| step(s, &k, scale, lent))?;
        let mut steps = 0;
        for round in 0..ROUNDS {
            lent = graph.replay(&s, lent, round % 4)?;
            for _ in 0..round % 3 {
                lent = step(&s, &k, scale, lent)?;
            }
            steps += round % 4 + round % 3;
        }
        let (_reduce, _x, last) = lent;
        let mut back = [0; LEN];
        last.into_host(&s)?.read(0, &mut back)?;
        Ok((steps, back[0]))
    });
    for result in results {
        let (steps, last) = result.unwrap();
        let all: u64 = (0..RANKS as u64).map(|rank| rank * 2 + 3).sum();
        let expected = (0..steps).fold(1u64, |last, _| last.wrapping_mul(all).wrapping_add(1));
        assert_eq!(last, expected, "after {steps} steps");
    }
}
