//! One case, on one rank.

use super::case::{Case, Order};
use crate::device::{BenchDevice, Words, WordsIn, WordsOut};
use crate::results::{Meter, RankSample};
use tidegate_core::window::{Access, BySlot, SlotWindow, exchange};
use tidegate_core::{Error, Graph, Region, Result, Stream, World, stream};

/// The source of an epoch, and the number of words of each message, for counted puts.
type Sent<'s, D> = (Words<'s, D>, Words<'s, D>);

/// The arguments of an epoch.
type Lent<'s, D> = (Sent<'s, D>, WordsIn<'s, D>, WordsOut<'s, D>);

struct Engine<'a, 's, D: BenchDevice> {
    case: &'a Case,
    gather: &'a D::Gather,
    stream: &'a mut Stream<'s, D>,
    lent: Option<Lent<'s, D>>,
    /// The source of the epochs before the clock: words that the check would find wrong.
    other: Option<Sent<'s, D>>,
    graph: Option<Graph<'s, D>>,
    /// A copy of the received words, for the check.
    seen: Option<Words<'s, D>>,
    launches: u64,
}

/// Measures a case on this rank; collective. `step` is called after every run.
///
/// # Errors
///
/// An error of the library, or of a peer.
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
        other: None,
        graph: None,
        seen: None,
        launches: 0,
    };
    let (counts, rank) = (case.counts, world.rank());
    let mut meter = Meter::default();
    let mut sample = RankSample::new(rank);
    // Epochs before the clock starts let ranks begin together: each epoch, the slowest rank holds up at least one rank
    // more. At least two epochs, so that both buffers of a slot hold words that the check would find wrong.
    let ahead = (world.size() as u64).max(2);
    let mut run = 0;
    for k in 0..counts.nk {
        engine.build(world)?;
        for j in 0..=counts.nj {
            run += 1;
            engine.fill(rank, run)?;
            engine.begin(ahead)?;
            engine.stream.synchronize()?;
            let launches = engine.launches;
            let mut clock = meter.start();
            engine.epochs(counts.ni)?;
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
    (source, count): &'b Sent<'s, D>,
    outbox: WordsOut<'s, D>,
) -> Result<Access<'s, 'b, u64, D, BySlot>> {
    let slots = outbox.slots();
    let mut epoch = outbox.start();
    for (slot, message) in slots.zip(&case.pattern.outbound) {
        let source = source.slice(message.range.clone())?;
        match case.counted {
            None => epoch.put(source, slot)?,
            Some(_) => epoch.put_counted(source, count, slot)?,
        }
    }
    Ok(epoch)
}

impl<'s, D: BenchDevice> Engine<'_, 's, D> {
    fn lent(&mut self) -> Result<Lent<'s, D>> {
        self.lent
            .take()
            .ok_or_else(|| Error::other("an earlier error has ended this case"))
    }

    fn other(&mut self) -> Result<Sent<'s, D>> {
        self.other
            .take()
            .ok_or_else(|| Error::other("an earlier error has ended this case"))
    }

    fn build(&mut self, world: &World<D>) -> Result<()> {
        (self.lent, self.other, self.graph, self.seen) = (None, None, None, None);
        let (case, s) = (self.case, &mut *self.stream);
        let mut window = SlotWindow::new("exchange").buffers(case.buffers);
        for message in &case.pattern.inbound {
            window.slot_from(message.peer, message.key, message.range.len());
        }
        for message in &case.pattern.outbound {
            window.slot_to(message.peer, message.key);
        }
        let sent = || -> Result<Sent<'s, D>> {
            let count = case.counted.unwrap_or(0) as u64;
            let count = Region::from_slice(world, &[count])?.on(s)?;
            Ok((Region::zeroed(world, case.pattern.words)?.on(s)?, count))
        };
        let source = sent()?;
        self.other = Some(sent()?);
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

    /// Gives the messages the words of this run, and the messages before the clock other words.
    fn fill(&mut self, rank: usize, run: u64) -> Result<()> {
        let (source, inbox, outbox) = self.lent()?;
        let other = self.other()?;
        let run = if self.case.spoil { !run } else { run };
        let source = self.write(source, rank, run)?;
        // No run has this number, nor its complement.
        self.other = Some(self.write(other, rank, run ^ (1 << 32))?);
        self.lent = Some((source, inbox, outbox));
        Ok(())
    }

    fn write(&mut self, (words, count): Sent<'s, D>, rank: usize, run: u64) -> Result<Sent<'s, D>> {
        let mut words = words.into_host(self.stream)?;
        words.write(0, &self.case.pattern.fill(rank, run))?;
        Ok((words.on(self.stream)?, count))
    }

    /// Whether this rank answers the other one's messages.
    fn answers(&self) -> bool {
        self.case.order == Order::Turns && self.stream.world().rank() == 1
    }

    /// Enqueues the epochs before the clock, which are not recorded.
    ///
    /// The answering rank waits first, and puts last: each of its epochs answers the message that its previous epoch waited
    /// for, and exposes for the next. So every epoch is one batch on both ranks.
    fn begin(&mut self, count: u64) -> Result<()> {
        let (source, mut inbox, outbox) = self.lent()?;
        let other = self.other()?;
        let answers = self.answers();
        let (case, s) = (self.case, &*self.stream);
        if answers {
            inbox = inbox.expose(s)?;
        }
        let mut lent = (other, inbox, outbox);
        let count = count - u64::from(answers);
        for _ in 0..count {
            lent = epoch(case, s, lent)?;
        }
        let (other, inbox, outbox) = lent;
        self.launches += count + u64::from(answers);
        self.other = Some(other);
        self.lent = Some((source, inbox, outbox));
        Ok(())
    }

    /// Enqueues the epochs that are timed.
    fn epochs(&mut self, count: u64) -> Result<()> {
        let mut lent = self.lent()?;
        let (case, s) = (self.case, &*self.stream);
        if let Some(graph) = &self.graph {
            let times = count / case.recorded;
            lent = graph.replay(s, lent, times as usize)?;
            self.launches += times;
        } else {
            for _ in 0..count {
                lent = epoch(case, s, lent)?;
            }
            self.launches += count;
        }
        if self.answers() {
            let (source, inbox, outbox) = lent;
            let outbox = access(case, &source, outbox)?.complete(s)?;
            lent = (source, inbox, outbox);
            self.launches += 1;
        }
        self.lent = Some(lent);
        Ok(())
    }

    /// Compares the slots after the last epoch with the words of this run.
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
            verdict = case.pattern.check(words, case.counted, run);
        })?;
        self.seen = Some(seen.on(s)?);
        self.lent = Some((source, inbox, outbox));
        Ok(verdict)
    }
}
