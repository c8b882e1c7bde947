//! One case, on one rank.

use super::{Case, Order};
use crate::device::{BenchDevice, Words, WordsIn, WordsOut};
use crate::results::{Meter, RankSample};
use tidegate_core::window::{Access, BySlot, Slot, Window, exchange};
use tidegate_core::{Error, Graph, Region, Result, Stream, World, stream};

/// What an epoch needs.
type Lent<'s, D> = (Words<'s, D>, WordsIn<'s, D>, WordsOut<'s, D>);

/// Which epochs of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    First,
    Last,
}

struct Engine<'a, 's, D: BenchDevice> {
    case: &'a Case,
    gather: &'a D::Gather,
    stream: &'a mut Stream<'s, D>,
    lent: Option<Lent<'s, D>>,
    graph: Option<Graph<'s, D>>,
    /// What was received, to be looked at.
    seen: Option<Words<'s, D>>,
    launches: u64,
}

/// Measures a case on this rank; collective. `step` is called after every run.
///
/// # Errors
///
/// What the library refused, or what became of the peers.
pub(super) fn measure<D: BenchDevice>(
    world: &World<D>,
    gather: &D::Gather,
    case: &Case,
    step: &mut dyn FnMut(),
) -> Result<RankSample> {
    stream!(let s = world.named_stream("exchange")?);
    let mut engine = Engine {
        case,
        gather,
        stream: &mut s,
        lent: None,
        graph: None,
        seen: None,
        launches: 0,
    };
    let (counts, rank) = (case.counts, world.rank());
    let mut meter = Meter::default();
    let mut sample = RankSample::new(rank);
    // Epochs before the clock starts, so that ranks begin together, whatever each of them did before: news of the
    // slowest travel at least one rank an epoch.
    let ahead = (world.size() as u64).next_multiple_of(case.recorded.max(1));
    let mut run = 0;
    for k in 0..counts.nk {
        engine.build(world)?;
        for j in 0..=counts.nj {
            run += 1;
            engine.fill(rank, run)?;
            engine.epochs(ahead, Part::First)?;
            engine.stream.synchronize()?;
            let launches = engine.launches;
            let mut clock = meter.start();
            engine.epochs(counts.ni, Part::Last)?;
            clock.enqueued();
            engine.stream.synchronize()?;
            let time = clock.stop(engine.launches - launches);
            if j > 0 {
                meter.add(time);
            }
            if let Err(wrong) = engine.check(run)? {
                sample.fail(format!("run {j} of build {k}: {wrong}"));
            }
            step();
        }
    }
    meter.note(&mut sample, counts.timed_shares() * case.order.hops());
    Ok(sample)
}

/// One epoch, as one batch. Nothing here waits.
fn epoch<'s, D: BenchDevice>(
    case: &Case,
    s: &Stream<'s, D>,
    (source, inbox, outbox): Lent<'s, D>,
) -> Result<Lent<'s, D>> {
    let epoch = access(case, &source, outbox)?;
    let (inbox, outbox) = exchange(s, inbox, epoch)?;
    Ok((source, inbox, outbox))
}

/// The puts of an epoch.
fn access<'s, 'b, D: BenchDevice>(
    case: &Case,
    source: &'b Words<'s, D>,
    outbox: WordsOut<'s, D>,
) -> Result<Access<'s, 'b, u64, BySlot, D>> {
    let mut epoch = outbox.start();
    for (slot, message) in (0..).map(Slot).zip(&case.pattern.outbound) {
        epoch.put(source.slice(message.range.clone())?, slot)?;
    }
    Ok(epoch)
}

impl<'s, D: BenchDevice> Engine<'_, 's, D> {
    fn lent(&mut self) -> Result<Lent<'s, D>> {
        self.lent
            .take()
            .ok_or_else(|| Error::Invalid("an earlier error has ended this case".into()))
    }

    fn build(&mut self, world: &World<D>) -> Result<()> {
        (self.lent, self.graph, self.seen) = (None, None, None);
        let (case, s) = (self.case, &mut *self.stream);
        let mut window = Window::by_slot("exchange").buffers(case.buffers);
        for message in &case.pattern.inbound {
            window = window.slot_from(message.peer, message.key, message.range.len());
        }
        for message in &case.pattern.outbound {
            window = window.slot_to(message.peer, message.key);
        }
        let source = Region::zeroed(world, case.pattern.words)?.on(s)?;
        self.seen = Some(Region::zeroed(world, case.pattern.received())?.on(s)?);
        let (inbox, outbox) = window.open(s)?;
        let mut lent = (source, inbox, outbox);
        if case.recorded > 0 {
            let (graph, back) = s.capture(lent, |s, mut lent| {
                for _ in 0..case.recorded {
                    lent = epoch(case, s, lent)?;
                }
                Ok(lent)
            })?;
            self.graph = Some(graph);
            lent = back;
        }
        self.lent = Some(lent);
        Ok(())
    }

    /// Gives the messages the contents of this run.
    fn fill(&mut self, rank: usize, run: u64) -> Result<()> {
        let (source, inbox, outbox) = self.lent()?;
        let mut source = source.into_host(self.stream)?;
        let run = if self.case.spoil { !run } else { run };
        source.write(0, &self.case.pattern.fill(rank, run))?;
        self.lent = Some((source.on(self.stream)?, inbox, outbox));
        Ok(())
    }

    /// Enqueues epochs, the `first` of a run or its `last`.
    ///
    /// Who answers waits first, and puts last: each of its epochs answers what the one before has waited for, and exposes
    /// for what comes next. So all are one batch on either side, and the first few are not recorded.
    fn epochs(&mut self, count: u64, part: Part) -> Result<()> {
        let mut lent = self.lent()?;
        let (case, s) = (self.case, &*self.stream);
        let answers = case.order == Order::Turns && s.world().rank() == 1;
        let mut left = count;
        if answers && part == Part::First {
            lent.1 = lent.1.expose(s)?;
            let eagerly = case.recorded.max(1);
            for _ in 1..eagerly {
                lent = epoch(case, s, lent)?;
            }
            left -= eagerly;
            self.launches += eagerly;
        }
        if let Some(graph) = &self.graph {
            let times = left / case.recorded;
            lent = graph.replay(s, lent, times)?;
            self.launches += times;
        } else {
            for _ in 0..left {
                lent = epoch(case, s, lent)?;
            }
            self.launches += left;
        }
        if answers && part == Part::Last {
            let (source, inbox, outbox) = lent;
            let outbox = access(case, &source, outbox)?.complete(s)?;
            lent = (source, inbox, outbox);
            self.launches += 1;
        }
        self.lent = Some(lent);
        Ok(())
    }

    /// Compares what the last epoch brought with what it should have.
    fn check(&mut self, run: u64) -> Result<std::result::Result<(), String>> {
        let (source, inbox, outbox) = self.lent()?;
        let (case, s) = (self.case, &*self.stream);
        let mut seen = match self.seen.take() {
            Some(seen) => seen,
            None => Region::zeroed(s.world(), case.pattern.received())?.on(s)?,
        };
        D::gather(self.gather, s, &inbox, &mut seen)?;
        let seen = seen.into_host(s)?;
        let mut verdict = Err("nothing was looked at".to_owned());
        D::look(&seen, &mut |words| {
            verdict = case.pattern.check(words, run);
        })?;
        self.seen = Some(seen.on(s)?);
        self.lent = Some((source, inbox, outbox));
        Ok(verdict)
    }
}
