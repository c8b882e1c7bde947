//! The ways of this library.

use super::case::Case;
use super::{By, Test};
use crate::cli::BuffersOf;
use std::error::Error;
use std::time::Instant;
use tidegate_core::window::{Access, BySlot, Inbox, Outbox, SlotWindow, exchange};
use tidegate_core::{On, Region, Result, Stream, World, stream};
use tidegate_host::Host;

type Source<'s> = Region<u8, On<'s, Host>>;
type Lent<'s> = (
    Source<'s>,
    Inbox<'s, u8, Host, BySlot>,
    Outbox<'s, u8, Host, BySlot>,
);

/// Seconds of all iterations, on this rank; collective.
pub(super) fn measure(
    world: &World<Host>,
    by: By,
    case: &Case,
    buffers: BuffersOf,
) -> std::result::Result<f64, Box<dyn Error>> {
    let rank = world.rank();
    let stream = match by {
        By::Inline => world.inline_stream()?,
        _ => world.named_stream("osu")?,
    };
    stream!(let s = stream);
    let mut window = SlotWindow::new("osu").buffers(buffers.into());
    for key in 0..case.puts() as u64 {
        window.slot_from(1 - rank, key, case.bytes);
        window.slot_to(1 - rank, key);
    }
    let (inbox, outbox) = window.open(&s)?;
    let source = Region::from_slice(world, &case.pattern(rank))?.on(&s)?;
    let mut lent = (source, inbox, outbox);
    let mut graph = None;
    if by == By::StGraph {
        let (recorded, back) = s.capture(lent, |s, lent| epoch(s, case, lent))?;
        (graph, lent) = (Some(recorded), back);
    }
    let answers = case.test == Test::Latency && rank == 1;
    let epochs = |mut lent, count: u64| -> Result<Lent<'_>> {
        match &graph {
            Some(graph) => lent = graph.replay(&s, lent, count as usize)?,
            None => {
                for _ in 0..count {
                    lent = epoch(&s, case, lent)?;
                }
            }
        }
        Ok(lent)
    };
    // Both ranks begin together: within some milliseconds by this, and within an epoch by the epochs before the clock.
    world.all_gather("osu", Vec::new())?;
    // The answering rank waits first, and puts last: each of its epochs answers the message that its previous one waited for.
    let mut ahead = case.ahead();
    if answers {
        lent.1 = lent.1.expose(&s)?;
        ahead -= 1;
    }
    lent = epochs(lent, ahead)?;
    s.synchronize()?;
    let start = Instant::now();
    lent = epochs(lent, case.iterations)?;
    if answers {
        let (source, inbox, outbox) = lent;
        let outbox = access(case, &source, outbox)?.complete(&s)?;
        lent = (source, inbox, outbox);
    }
    s.synchronize()?;
    let seconds = start.elapsed().as_secs_f64();
    let (_, mut inbox, _) = lent;
    if case.test == Test::Latency || rank == 1 {
        for (number, slot) in inbox.read(&s)?.iter().enumerate() {
            case.check(rank, number * case.bytes, slot)?;
        }
    }
    // Neither rank goes on while the other one is still measuring.
    world.all_gather("osu over", Vec::new())?;
    Ok(seconds)
}

/// One iteration. Nothing here waits, but on an inline stream.
fn epoch<'s>(s: &Stream<'s, Host>, case: &Case, lent: Lent<'s>) -> Result<Lent<'s>> {
    let (source, inbox, outbox) = lent;
    let both = case.test == Test::Latency;
    if !both && s.world().rank() == 1 {
        return Ok((source, inbox.expose(s)?, outbox));
    }
    let epoch = access(case, &source, outbox)?;
    if !both {
        let outbox = epoch.complete(s)?;
        return Ok((source, inbox, outbox));
    }
    let (inbox, outbox) = exchange(s, inbox, epoch)?;
    Ok((source, inbox, outbox))
}

/// The puts of an iteration.
fn access<'s, 'b>(
    case: &Case,
    source: &'b Source<'s>,
    outbox: Outbox<'s, u8, Host, BySlot>,
) -> Result<Access<'s, 'b, u8, Host, BySlot>> {
    let slots = outbox.slots();
    let mut epoch = outbox.start();
    for (number, slot) in slots.enumerate() {
        let message = source.slice(number * case.bytes..(number + 1) * case.bytes)?;
        epoch.put(message, slot)?;
    }
    Ok(epoch)
}
