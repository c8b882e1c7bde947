//! Checks of what a file of events says, before anything is made of it.
//!
//! The numbers of a file become lengths of lists, and its times are added and subtracted. A file that is damaged, or
//! that no rank has written, must lead to an error, and not to a panic or to a lack of memory.

use tidegate_boot::starter::MAX_RANKS;
use tidegate_core::observe::{Event, Leg};

/// No job has more ranks. Lanes have lower numbers, too, since a lane is for a peer.
const MOST: u32 = MAX_RANKS as u32;
/// Later times would mean that a host has run for 18 years. Differences of times, and of differences, do not overflow.
pub(super) const LATEST: u64 = 1 << 59;

/// Whether a leg has times that no host can have. A stamp by a GPU has them if nobody could compare its clock with the
/// host's.
pub(super) fn is_timeless(leg: &Leg) -> bool {
    let times = [leg.begun, leg.satisfied, leg.moved, leg.ended];
    times.iter().any(|time| *time >= LATEST)
}

/// The first event that no rank can have written: its index, and what is wrong with it.
pub(super) fn flaw(events: &[Event]) -> Option<(usize, &'static str)> {
    // Each stream that was made has left an event, so there are no more streams than events. (The file of a rank that
    // made few may begin late.)
    let streams = MOST.max(u32::try_from(events.len()).unwrap_or(u32::MAX));
    let flaws = events.iter().map(|event| of(event, streams)).enumerate();
    let mut flaws = flaws.filter_map(|(index, flaw)| Some((index, flaw?)));
    flaws.next()
}

fn of(event: &Event, most_streams: u32) -> Option<&'static str> {
    let mut streams: Vec<u32> = Vec::new();
    let mut times: Vec<u64> = event.at().into_iter().collect();
    match event {
        Event::Joined(joined) if joined.ranks > MOST || joined.rank >= joined.ranks => {
            return Some("there is no such rank");
        }
        Event::Joined(joined) => {
            times.extend(joined.rounds.iter().flat_map(|(one, other)| [one, other]));
        }
        Event::Declared(batch) if batch.parts.iter().any(|part| part.lane >= MOST) => {
            return Some("there is no such lane");
        }
        Event::Recorded(recorded) => {
            streams.extend(recorded.steps.iter().map(|(stream, _)| stream));
        }
        Event::HandedOff { from, to, .. } => streams.extend([from, to]),
        Event::Ran {
            stream,
            begun,
            lost,
            ..
        }
        | Event::Synchronized {
            stream,
            begun,
            lost,
            ..
        } => {
            streams.push(*stream);
            times.extend([begun, lost]);
        }
        Event::Enqueued { stream, lost, .. } | Event::Launched { stream, lost, .. } => {
            streams.push(*stream);
            times.push(*lost);
        }
        Event::Replayed { lost, .. } => times.push(*lost),
        // The times of a leg, and the error of a clock, are without bounds if nobody could compare the clocks.
        Event::Leg { stream, .. }
        | Event::Clock { stream, .. }
        | Event::Made { stream, .. }
        | Event::Dropped { stream, .. }
        | Event::Failed { stream, .. } => streams.push(*stream),
        _ => {}
    }
    if streams.iter().any(|stream| *stream >= most_streams) {
        return Some("there is no such stream");
    }
    let late = times.iter().any(|time| *time >= LATEST);
    late.then_some("there is no such time")
}
