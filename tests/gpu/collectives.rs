//! Collectives of GPUs: short ones, whose data lands with tags, and long ones in chunks and pieces.

use crate::vendor::prelude::*;
use tidegate::Choice;

use super::common::ranks;

const RANKS: usize = 3;

fn datum(rank: usize, at: usize) -> f64 {
    ((rank * 7919 + at * 104_729 + 17) % 10_007) as f64 * 0.1
}

fn data(rank: usize, range: std::ops::Range<usize>) -> Vec<f64> {
    range.map(|at| datum(rank, at)).collect()
}

/// The sum over some ranks, in their order.
fn sum(last: usize, at: usize) -> f64 {
    (1..=last).fold(datum(0, at), |all, rank| all + datum(rank, at))
}

fn on<'s>(s: &Stream<'s>, values: &[f64]) -> Region<f64, On<'s>> {
    Region::from_slice(s.world(), values)
        .unwrap()
        .on(s)
        .unwrap()
}

fn check<'s>(s: &Stream<'s>, x: &Region<f64, On<'s>>, expected: Vec<f64>, what: &str) {
    assert!(x.to_vec(s).unwrap() == expected, "{what}");
}

/// What is captured: two collectives and their buffers.
type Lent<'s> = (
    AllReduce<'s, f64>,
    AllGather<'s, f64>,
    Region<f64, On<'s>>,
    Region<f64, On<'s>>,
);

fn step<'s>(s: &Stream<'s>, lent: Lent<'s>) -> tidegate::Result<Lent<'s>> {
    let (mut sums, mut all, mut x, mut y) = lent;
    sums.reduce(s, &mut x, Op::Max)?;
    all.enqueue(s, &x, &mut y)?;
    Ok((sums, all, x, y))
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn collectives_are_those_of_the_host() {
    let pieces = Choice {
        short: 0,
        piece: 4 << 10,
        ..Choice::default()
    };
    for (len, choice) in [(3, Choice::default()), (3, pieces), (3000, pieces)] {
        ranks(RANKS, |world, _| {
            let (rank, all) = (world.rank(), 0..RANKS);
            stream!(let mut s = world.stream().unwrap());
            let gathered: Vec<_> = all.clone().flat_map(|it| data(it, 0..len)).collect();
            let sums: Vec<_> = (0..len).map(|at| sum(RANKS - 1, at)).collect();
            let (mine, wide) = (data(rank, 0..len), data(rank, 0..RANKS * len));
            let (x, w) = (on(&s, &mine), on(&s, &wide));
            let (mut y, mut z) = (on(&s, &vec![0.0; RANKS * len]), on(&s, &vec![0.0; len]));

            let mut news = Broadcast::open_with(&s, "broadcast", 1, len, choice).unwrap();
            let mut gather = AllGather::open_with(&s, "all-gather", len, choice).unwrap();
            let mut blocks = AllToAll::open_with(&s, "all-to-all", len, choice).unwrap();
            let mut total = AllReduce::open_with(&s, "all-reduce", len, choice).unwrap();
            let mut parts = ReduceScatter::open_with(&s, "reduce-scatter", len, choice).unwrap();
            let mut scan = Scan::open_with(&s, "scan", len, choice).unwrap();
            // Twice, so that both buffers are read.
            for _ in 0..2 {
                let mut n = on(&s, &mine);
                news.enqueue(&s, &mut n).unwrap();
                check(&s, &n, data(1, 0..len), "broadcast");
                gather.enqueue(&s, &x, &mut y).unwrap();
                check(&s, &y, gathered.clone(), "all-gather");
                blocks.enqueue(&s, &w, &mut y).unwrap();
                let block = |it| data(it, rank * len..(rank + 1) * len);
                check(&s, &y, all.clone().flat_map(block).collect(), "all-to-all");
                total.reduce_into(&s, &x, &mut z, Op::Sum).unwrap();
                check(&s, &z, sums.clone(), "all-reduce");
                parts.sum(&s, &w, &mut z).unwrap();
                let part = |at| sum(RANKS - 1, rank * len + at);
                check(&s, &z, (0..len).map(part).collect(), "reduce-scatter");
                scan.reduce_into(&s, &x, &mut z, Op::Sum).unwrap();
                let upto = (0..len).map(|at| sum(rank, at)).collect();
                check(&s, &z, upto, "scan");
            }
            let lent = (total, gather, x, y);
            let (graph, lent) = s.capture(lent, step).unwrap();
            let lent = step(&s, graph.replay(&s, lent, 3).unwrap()).unwrap();
            let most = |at| all.clone().map(|it| datum(it, at)).fold(0.0, f64::max);
            let most: Vec<_> = (0..len).map(most).collect();
            check(&s, &lent.3, most.repeat(RANKS), "replayed");
        });
    }
}
