//! The collectives of this library.

use super::args::{By, CollectivesArgs};
use super::case::Case;
use super::kind::{Kind, all_sent, rows};
use super::table::Measured;
use crate::device::BenchDevice;
use std::error::Error;
use std::time::Instant;
use tidegate_core::capture::Visitor;
use tidegate_core::{
    AllGather, AllReduce, AllToAll, Barrier, Broadcast, Carry, Choice, CountedAllToAll, Gather, On,
    Reduce, ReduceScatter, Region, Result, Scan, Scatter, Stream, Team, stream,
};
use tidegate_hal::batch::Op;
use tidegate_hal::device::Device;

/// An open collective of any kind.
enum Open<'s, D: Device> {
    Barrier(Barrier<'s, D>),
    Broadcast(Broadcast<'s, f32, D>),
    Reduce(Reduce<'s, f32, D>),
    AllReduce(AllReduce<'s, f32, D>),
    Gather(Gather<'s, f32, D>),
    Scatter(Scatter<'s, f32, D>),
    AllGather(AllGather<'s, f32, D>),
    ReduceScatter(ReduceScatter<'s, f32, D>),
    AllToAll(AllToAll<'s, f32, D>),
    Scan(Scan<'s, f32, D>),
    DispatchCombine(Box<Counted<'s, D>>),
}

/// Dispatch and combine, with the numbers of rows in device memory.
struct Counted<'s, D: Device> {
    dispatch: CountedAllToAll<'s, f32, D>,
    combine: CountedAllToAll<'s, f32, D>,
    counts: Region<u64, On<'s, D>>,
    came: Region<f32, On<'s, D>>,
    received: Region<u64, On<'s, D>>,
    returned: Region<u64, On<'s, D>>,
}

impl<'s, D: Device> Counted<'s, D> {
    fn open(team: &Team<D>, s: &Stream<'s, D>, case: &Case) -> Result<Self> {
        let (world, (most, width)) = (s.world(), rows(case.count));
        let counts = all_sent(case.rank, case.ranks, case.count);
        Ok(Counted {
            dispatch: CountedAllToAll::open(&team.on(s), "dispatch", most, width)?,
            combine: CountedAllToAll::open(&team.on(s), "combine", most, width)?,
            counts: Region::from_slice(world, &counts)?.on(s)?,
            came: Region::zeroed(world, case.ranks * most * width)?.on(s)?,
            received: Region::zeroed(world, case.ranks)?.on(s)?,
            returned: Region::zeroed(world, case.ranks)?.on(s)?,
        })
    }

    fn enqueue(
        &mut self,
        s: &Stream<'s, D>,
        x: &Numbers<'s, D>,
        y: &mut Numbers<'s, D>,
    ) -> Result<()> {
        let (came, received) = (&mut self.came, &mut self.received);
        self.dispatch.enqueue(s, x, &self.counts, came, received)?;
        self.combine
            .enqueue(s, came, received, y, &mut self.returned)
    }
}

// SAFETY: this is what `#[derive(Carry)]` would write. `At` is the same struct with another brand; each field is `Carry`,
// and is visited once.
unsafe impl<'s, D: Device> Carry<'s, D> for Counted<'s, D> {
    type At<'t> = Counted<'t, D>;

    fn visit(&mut self, visitor: &mut Visitor<'_, D>) {
        self.dispatch.visit(visitor);
        self.combine.visit(visitor);
        self.counts.visit(visitor);
        self.came.visit(visitor);
        self.received.visit(visitor);
        self.returned.visit(visitor);
    }
}

// SAFETY: this is what `#[derive(Carry)]` would write for an enum. `At` is the same enum with another brand; the one
// field of each variant is `Carry`, and is visited once.
unsafe impl<'s, D: Device> Carry<'s, D> for Open<'s, D> {
    type At<'t> = Open<'t, D>;

    fn visit(&mut self, visitor: &mut Visitor<'_, D>) {
        match self {
            Open::Barrier(it) => it.visit(visitor),
            Open::Broadcast(it) => it.visit(visitor),
            Open::Reduce(it) => it.visit(visitor),
            Open::AllReduce(it) => it.visit(visitor),
            Open::Gather(it) => it.visit(visitor),
            Open::Scatter(it) => it.visit(visitor),
            Open::AllGather(it) => it.visit(visitor),
            Open::ReduceScatter(it) => it.visit(visitor),
            Open::AllToAll(it) => it.visit(visitor),
            Open::Scan(it) => it.visit(visitor),
            Open::DispatchCombine(it) => it.visit(visitor),
        }
    }
}

impl<'s, D: Device> Open<'s, D> {
    fn new(team: &Team<D>, s: &Stream<'s, D>, case: &Case, choice: Choice) -> Result<Self> {
        let (name, len, on, op) = ("measured", case.count, &team.on(s), Op::Sum);
        Ok(match case.kind {
            Kind::Barrier => Open::Barrier(Barrier::open(on, name)?),
            Kind::Broadcast => Open::Broadcast(Broadcast::open_with(on, name, 0, len, choice)?),
            Kind::Reduce => Open::Reduce(Reduce::open_with(on, name, 0, len, op, choice)?),
            Kind::AllReduce => Open::AllReduce(AllReduce::open_with(on, name, len, op, choice)?),
            Kind::Gather => Open::Gather(Gather::open_with(on, name, 0, len, choice)?),
            Kind::Scatter => Open::Scatter(Scatter::open_with(on, name, 0, len, choice)?),
            Kind::AllGather => Open::AllGather(AllGather::open_with(on, name, len, choice)?),
            Kind::ReduceScatter => {
                Open::ReduceScatter(ReduceScatter::open_with(on, name, len, op, choice)?)
            }
            Kind::AllToAll => Open::AllToAll(AllToAll::open_with(on, name, len, choice)?),
            Kind::Scan => Open::Scan(Scan::open_with(on, name, len, op, choice)?),
            Kind::DispatchCombine => Open::DispatchCombine(Box::new(Counted::open(team, s, case)?)),
        })
    }
}

type Numbers<'s, D> = Region<f32, On<'s, D>>;
type Lent<'s, D> = (Open<'s, D>, Numbers<'s, D>, Numbers<'s, D>);

/// So many calls. Nothing here waits, but on an inline stream.
fn calls<'s, D: Device>(s: &Stream<'s, D>, lent: &mut Lent<'s, D>, count: u64) -> Result<()> {
    let (open, x, y) = lent;
    for _ in 0..count {
        match open {
            Open::Barrier(it) => it.enqueue(s)?,
            Open::Broadcast(it) => it.enqueue(s, y)?,
            Open::Reduce(it) => it.enqueue(s, y)?,
            Open::AllReduce(it) => it.enqueue_into(s, x, y)?,
            Open::Gather(it) => it.enqueue(s, x, y)?,
            Open::Scatter(it) => it.enqueue(s, x, y)?,
            Open::AllGather(it) => it.enqueue(s, x, y)?,
            Open::ReduceScatter(it) => it.enqueue(s, x, y)?,
            Open::AllToAll(it) => it.enqueue(s, x, y)?,
            Open::Scan(it) => it.enqueue_into(s, x, y)?,
            Open::DispatchCombine(it) => it.enqueue(s, x, y)?,
        }
    }
    Ok(())
}

/// Measures all calls, on this rank; collective.
pub(super) fn measure<D: BenchDevice>(
    team: &Team<D>,
    by: By,
    case: &Case,
    args: &CollectivesArgs,
) -> std::result::Result<Measured, Box<dyn Error>> {
    let world = team.world();
    let stream = match by {
        By::Inline => world.inline_stream()?,
        _ => world.named_stream("measured")?,
    };
    stream!(let s = stream);
    let [x, y] = &*case.brings(1);
    let x = Region::from_slice(world, x)?.on(&s)?;
    let y = Region::from_slice(world, y)?.on(&s)?;
    let mut lent = (Open::new(team, &s, case, args.choice(&s))?, x, y);
    let mut graph = None;
    if by == By::StGraph {
        let (recorded, back) = s.capture(lent, |s, mut lent| {
            calls(s, &mut lent, case.unroll)?;
            Ok(lent)
        })?;
        (graph, lent) = (Some(recorded), back);
    }
    let times = |mut lent, count: u64| match &graph {
        Some(graph) => graph.replay(&s, lent, (count / case.unroll) as usize),
        None => {
            calls(&s, &mut lent, count)?;
            Ok(lent)
        }
    };
    // Several calls in a row, so that one that reads or writes too early shows.
    let turn = case.turns();
    for turn in 1..=turn {
        if turn > 1 {
            lent = write(&s, lent, case, turn)?;
        }
        lent = times(lent, case.unroll)?;
        lent = check::<D>(&s, lent, case, turn, case.unroll)?;
    }
    world.all_gather("measured", Vec::new())?;
    // A graph is prepared for a number of replays when it is first asked for it.
    let ahead = match graph {
        Some(_) => case.calls,
        None => case.ahead(),
    };
    lent = times(lent, ahead)?;
    s.synchronize()?;
    let start = Instant::now();
    lent = times(lent, case.calls)?;
    s.synchronize()?;
    let seconds = start.elapsed().as_secs_f64();
    check::<D>(&s, lent, case, turn, case.unroll + ahead + case.calls)?;
    let blocks = Some(s.widest()).filter(|blocks| *blocks != 0);
    Ok(Measured { seconds, blocks })
}

/// Writes what this rank brings in a turn.
fn write<'s, D: BenchDevice>(
    s: &Stream<'s, D>,
    lent: Lent<'s, D>,
    case: &Case,
    turn: u32,
) -> Result<Lent<'s, D>> {
    let (open, x, y) = lent;
    let mut on_host = (x.into_host(s)?, y.into_host(s)?);
    let [x, y] = &*case.brings(turn);
    on_host.0.write(0, x)?;
    on_host.1.write(0, y)?;
    Ok((open, on_host.0.on(s)?, on_host.1.on(s)?))
}

/// Compares the output with the expected one.
fn check<'s, D: BenchDevice>(
    s: &Stream<'s, D>,
    lent: Lent<'s, D>,
    case: &Case,
    turn: u32,
    calls: u64,
) -> std::result::Result<Lent<'s, D>, Box<dyn Error>> {
    let (open, x, y) = lent;
    let y = y.into_host(s)?;
    let mut verdict = Err("nothing was looked at".to_owned());
    D::look(&y, &mut |found| verdict = case.check(turn, calls, found))?;
    verdict?;
    Ok((open, x, y.on(s)?))
}

/// One call, for an observer.
pub(super) fn once<D: BenchDevice>(
    team: &Team<D>,
    case: &Case,
    args: &CollectivesArgs,
) -> std::result::Result<(), Box<dyn Error>> {
    let world = team.world();
    stream!(let s = world.named_stream("measured")?);
    let [x, y] = &*case.brings(1);
    let x = Region::from_slice(world, x)?.on(&s)?;
    let y = Region::from_slice(world, y)?.on(&s)?;
    let mut lent = (Open::new(team, &s, case, args.choice(&s))?, x, y);
    calls(&s, &mut lent, 1)?;
    check::<D>(&s, lent, case, 1, 1)?;
    Ok(())
}
