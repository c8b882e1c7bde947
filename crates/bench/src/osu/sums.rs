//! Sums over all ranks, by this library.

use super::By;
use super::args::NUMBER;
use super::case::{Case, Numbers};
use crate::device::BenchDevice;
use std::error::Error;
use std::time::{Duration, Instant};
use tidegate_core::{AllReduce, On, Region, Result, Stream, World, stream};

/// Sums of a graph.
const RECORDED: u64 = 10;

type Lent<'s, D> = (Region<f64, On<'s, D>>, AllReduce<'s, f64, D>);

/// Seconds of all iterations, on this rank; collective.
///
/// The sums are made in place, one after the other. Before the numbers become too large, the clock stops and they begin
/// anew.
pub(super) fn measure<D: BenchDevice>(
    world: &World<D>,
    by: By,
    case: &Case,
) -> std::result::Result<f64, Box<dyn Error>> {
    let (rank, ranks) = (world.rank(), world.size());
    let len = case.bytes / NUMBER;
    let numbers = Numbers { ranks, len };
    let stream = match by {
        By::Inline => world.inline_stream()?,
        _ => world.named_stream("osu")?,
    };
    stream!(let s = stream);
    let first = numbers.of(rank);
    let x = Region::from_slice(world, &first)?.on(&s)?;
    let mut lent = (x, AllReduce::open(&s, "osu", len)?);
    let mut graph = None;
    if by == By::StGraph {
        let (recorded, back) = s.capture(lent, |s, lent| sums(s, lent, RECORDED))?;
        (graph, lent) = (Some(recorded), back);
    }
    let times = |lent, count| match &graph {
        Some(graph) => graph.replay(&s, lent, (count / RECORDED) as usize),
        None => sums(&s, lent, count),
    };
    // As many sums before the clock, so that ranks begin together. The first time a graph is asked for so many replays, it
    // is prepared for them, which takes longer than hundreds of sums.
    let most = numbers.most() / 2 / RECORDED * RECORDED;
    let mut time = Duration::ZERO;
    let mut left = case.iterations.next_multiple_of(RECORDED);
    while left > 0 {
        let count = left.min(most);
        left -= count;
        let (x, sum) = lent;
        let mut x = x.into_host(&s)?;
        x.write(0, &first)?;
        lent = (x.on(&s)?, sum);
        world.all_gather("osu", Vec::new())?;
        lent = times(lent, count)?;
        s.synchronize()?;
        let start = Instant::now();
        lent = times(lent, count)?;
        s.synchronize()?;
        time += start.elapsed();
        let x = lent.0.into_host(&s)?;
        let mut verdict = Err("nothing was looked at".to_owned());
        D::look(&x, &mut |found| {
            verdict = numbers.check(rank, 2 * count, found);
        })?;
        verdict?;
        lent.0 = x.on(&s)?;
    }
    // The time of the iterations that were asked for; some more were made.
    let made = case.iterations.next_multiple_of(RECORDED);
    Ok(time.as_secs_f64() * case.iterations as f64 / made as f64)
}

/// Nothing here waits, but on an inline stream.
fn sums<'s, D: BenchDevice>(
    s: &Stream<'s, D>,
    (mut x, mut sum): Lent<'s, D>,
    count: u64,
) -> Result<Lent<'s, D>> {
    for _ in 0..count {
        sum.sum(s, &mut x)?;
    }
    Ok((x, sum))
}
