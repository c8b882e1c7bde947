//! Walks backwards through the work of a job: what had to end before something could go on.
//!
//! # Model
//!
//! A piece of work begins when the work in front of it on its stream has ended, when the work of other streams has that
//! it comes after, and when the program has enqueued it. A leg goes on when the signal has come for which it waits. So
//! from any work a way leads back, along its rank, and over signals to others. Each part of the way is a [`Step`] of one
//! rank.

use super::job::Job;
use super::rank::{LegRef, Time, Work};

/// A part of the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) rank: usize,
    pub(super) stream: usize,
    /// The item, or the one behind a gap.
    pub(super) item: usize,
    pub(super) kind: Kind,
    pub(super) begun: Time,
    pub(super) ended: Time,
    /// How long other threads had the processor meanwhile, as far as that is known.
    pub(super) lost: Time,
}

/// What a rank does meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    /// A kernel runs.
    Kernel,
    /// Data is moved and signals are sent, by the leg with this index.
    Move(usize),
    /// The leg has been told to go on, and has not noticed yet.
    Wake(usize),
    /// The leg waits for a signal that is not in the trace.
    Wait(usize),
    /// Nothing is enqueued: the stream waits for the program.
    Program,
    /// The program has waited for a stream, and returns from that.
    Return,
    /// The stream has work, and has not begun it yet.
    Start,
}

/// A way back.
pub(super) struct Walk<'a> {
    job: &'a Job,
    /// Where it goes on: rank, stream and item, and of a batch the leg.
    at: Option<(usize, usize, usize, Option<usize>)>,
    /// Everything behind this time has been passed.
    time: Time,
    /// Steps that have been found and not been taken.
    found: Vec<Step>,
    /// How many pieces of work it may still pass. A way passes each at most once, unless clocks contradict each other.
    left: usize,
}

impl<'a> Walk<'a> {
    /// The way from the end of an item.
    pub(super) fn from_item(job: &'a Job, (rank, stream, item): (usize, usize, usize)) -> Self {
        let mut walk = Walk {
            job,
            at: None,
            time: job.ranks[rank].streams[stream].items[item].ended,
            found: Vec::new(),
            left: job.pieces,
        };
        walk.enter(rank, stream, item);
        walk
    }

    /// The way from the end of a leg.
    pub(super) fn from_leg(job: &'a Job, at: LegRef) -> Self {
        Walk {
            job,
            at: Some((at.rank, at.stream, at.item, Some(at.leg))),
            time: job.leg(at).1.ended,
            found: Vec::new(),
            left: job.pieces,
        }
    }

    /// Goes on with an item: with that of its legs that has ended last.
    fn enter(&mut self, rank: usize, stream: usize, item: usize) {
        let leg = match &self.job.ranks[rank].streams[stream].items[item].work {
            Work::Batch(_, legs) => (0..legs.len()).max_by_key(|leg| legs[*leg].ended),
            _ => None,
        };
        self.at = Some((rank, stream, item, leg));
    }

    /// A step back to `begun`.
    fn step(&mut self, kind: Kind, begun: Time) {
        self.step_lost(kind, begun, 0);
    }

    /// Like [`Walk::step`], if other threads had the processor for the time `lost`.
    fn step_lost(&mut self, kind: Kind, begun: Time, lost: Time) {
        let Some((rank, stream, item, _)) = self.at else {
            return;
        };
        let begun = begun.min(self.time);
        let ended = std::mem::replace(&mut self.time, begun);
        if begun < ended {
            self.found.push(Step {
                rank,
                stream,
                item,
                kind,
                begun,
                ended,
                lost: lost.min(ended - begun),
            });
        }
    }

    /// Takes the next part of the way.
    fn go(&mut self) {
        let Some((rank, stream, item, leg)) = self.at else {
            return;
        };
        let here = &self.job.ranks[rank].streams[stream].items[item];
        if let (Work::Batch(_, legs), Some(index)) = (&here.work, leg) {
            let leg = &legs[index];
            self.step(Kind::Move(index), leg.satisfied);
            if leg.waited() > 0 {
                let signal = leg.signal.map(|at| (at, self.job.leg(at).1.ended));
                match signal {
                    Some((at, told)) if told > leg.begun => {
                        self.step(Kind::Wake(index), told);
                        self.at = Some((at.rank, at.stream, at.item, Some(at.leg)));
                        return;
                    }
                    // The signal was there.
                    Some(_) => self.step(Kind::Wake(index), leg.begun),
                    None => self.step(Kind::Wait(index), leg.begun),
                }
            }
            let before = (0..index).rev().find(|other| {
                let lane = |leg: usize| self.lane(here, leg);
                lane(*other) == lane(index)
            });
            if let Some(before) = before {
                self.time = self.time.min(legs[before].ended);
                self.at = Some((rank, stream, item, Some(before)));
                return;
            }
        } else {
            self.step_lost(Kind::Kernel, here.begun, here.lost);
        }
        self.before(rank, stream, item);
    }

    fn lane(&self, item: &super::rank::Item, leg: usize) -> Option<u32> {
        match &item.work {
            Work::Batch(batch, legs) => Some(batch.parts[legs[leg].part].lane),
            _ => None,
        }
    }

    /// Goes on with what came before an item.
    fn before(&mut self, rank: usize, stream: usize, item: usize) {
        let streams = &self.job.ranks[rank].streams;
        let here = &streams[stream].items[item];
        let first = item.checked_sub(1).map(|before| (stream, before));
        let others = here.after.iter().copied();
        let ends = first
            .into_iter()
            .chain(others)
            .map(|(stream, item)| (streams[stream].items[item].ended, stream, item));
        let last = ends.max();
        let ready = last.map_or(self.job.ranks[rank].begun, |(ended, ..)| ended);
        if ready < self.time {
            if let Some(called) = here.called
                && called > ready
            {
                self.step(Kind::Start, called);
                if let Some(item) = self.program(rank, ready) {
                    return self.enter(rank, item.0, item.1);
                }
            } else {
                self.step(Kind::Start, ready);
            }
        }
        match last {
            Some((_, stream, item)) => self.enter(rank, stream, item),
            None => self.at = None,
        }
    }
}

impl Walk<'_> {
    /// Goes back through the calls of the program to the time `ready`. Returns the stream and item for which the program
    /// has waited meanwhile, if there is one.
    fn program(&mut self, rank: usize, ready: Time) -> Option<(usize, usize)> {
        let rank = &self.job.ranks[rank];
        let behind = rank.calls.partition_point(|call| call.at <= self.time);
        // The time of the call itself, unless clocks are off and the work seems to have begun before it.
        let last = behind.checked_sub(1).map(|at| rank.calls[at].at);
        let lost = rank.calls.get(behind).map_or(0, |call| call.lost);
        self.step_lost(Kind::Program, ready.max(last.unwrap_or(rank.begun)), lost);
        for at in (0..behind).rev() {
            let call = &rank.calls[at];
            if call.at <= ready {
                break;
            }
            if let Some((stream, begun)) = call.waited {
                let items = &rank.streams[stream].items;
                let item = items.partition_point(|item| item.ended <= call.at);
                if let Some(item) = item.checked_sub(1)
                    && items[item].ended > ready.max(begun)
                {
                    self.step(Kind::Return, items[item].ended);
                    return Some((stream, item));
                }
                self.step(Kind::Return, ready.max(begun));
            }
            let before = at.checked_sub(1).map_or(rank.begun, |at| rank.calls[at].at);
            self.step_lost(Kind::Program, ready.max(before), call.lost);
        }
        None
    }
}

impl Iterator for Walk<'_> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        while self.found.is_empty() && self.at.is_some() {
            self.left = self.left.checked_sub(1)?;
            self.go();
            // A leg may have several steps, in the order in which they were found.
            self.found.reverse();
        }
        self.found.pop()
    }
}
