//! Whether signals have come.
//!
//! # Model
//!
//! A write that brings a signal is through at this end when its source has been read. To hear that it was delivered
//! would be a message back for each, which is most of what a short one takes. So a queue's signals are *in doubt* until
//! somebody reads the word that they go to: it counts what has come of this queue, and nothing else. That is done
//!
//! - when the queue ends, or gives up: memory may go then, and a poison is to be the last;
//! - when the rank leaves its job;
//! - when a queue has been quiet for a [`TICK`], once. A connection that is lost and made again loses signals without a
//!   word, and a peer may refuse what was reported as sent. But what is lost is waited for (signals are numbered, so the
//!   next is no stand-in: [`crate::regions`]), and the queue does grow quiet;
//! - at the first tick, where a peer has never answered anything.
//!
//! Queues that are not quiet pay a comparison for each firing, and none of their signals is asked for.
//!
//! # Failure
//!
//! A count that is too low is read again, after pauses: a notice has come before the agent over there has added to the
//! word. When that has lasted too long since the first answer (without the time in which there was none), or the read
//! has failed for as long, and the control plane says that the peer is [there](super::departure), a signal is *lost*: the
//! queue gives up, and the peer is told by a poison. Each read that is refused costs the connection that it was made on,
//! and what others have on it; so a queue of which something has failed, which gives up in any case, asks no more than
//! [`REFUSALS`] times in vain. A peer that does not answer, because it is stopped, is waited for; but not for ever (see
//! [`contact`](super::contact)): if the control plane gives it up, that comes first. A peer that has left in good order, or
//! is lost, is asked nothing, and while it leaves no signal is lost, whatever it answers: see
//! [`departure`](super::departure). Core poisons the sent word of one that is lost.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tidegate_hal::batch::{POISON, QUANTUM};
use tidegate_hal::tell;

use super::contact::Way;
use super::departure::Stage;
use super::doubt::{Asked, FAILED, Look};
use super::firing::Flight;
use super::program::SignalWord;
use super::silence::Silence;
use super::state::Engine;
use crate::wire::{Op, Posted, Wire};

/// Before a count is read again: each pause is twice as long as the one before, up to the second; so long is each
/// after a read that failed.
const PAUSES: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(20));
/// How often reads of a queue that gives up in any case may fail.
const REFUSALS: u32 = 5;

impl<W: Wire> Engine<W> {
    /// A signal of a queue is through at this end.
    pub(super) fn signalled(&mut self, index: usize, signalled: impl FnOnce() -> SignalWord<W>) {
        let Some(agenda) = self.queues.get(index) else {
            return;
        };
        let doubt = &mut agenda.doubt;
        doubt.signalled.get_or_insert_with(signalled);
        doubt.count += 1;
        if !std::mem::replace(&mut doubt.is_listed, true) {
            self.doubtful.push(index);
        }
    }

    /// Whether somebody has to [`tick`](Self::tick).
    pub(super) fn is_doubtful(&self) -> bool {
        !self.doubtful.is_empty()
    }

    /// Asks for the signals of queues that have been quiet since the last tick, and takes those further that nobody
    /// asks for any more.
    pub(super) fn tick(&mut self) {
        self.await_answers();
        let (mut quiet, mut over) = (Vec::new(), Vec::new());
        let mut doubtful = std::mem::take(&mut self.doubtful);
        doubtful.retain(|index| {
            // A number may have become another queue's.
            let Some(agenda) = self.queues.get(*index).filter(|one| one.doubt.is_listed) else {
                return false;
            };
            if !agenda.is_in_doubt() {
                agenda.doubt.is_listed = false;
                over.push(*index);
                return false;
            }
            let doubt = &mut agenda.doubt;
            let before = std::mem::replace(&mut doubt.before, doubt.count);
            if before == doubt.count || !self.contact.has_met(agenda.queue.peer) {
                quiet.push(*index);
            }
            true
        });
        self.doubtful = doubtful;
        quiet.into_iter().for_each(|index| self.ask(index));
        over.into_iter().for_each(|index| self.make_ready(index));
        self.go_on();
    }

    /// Asks for all signals that are in doubt.
    pub(super) fn ask_all(&mut self) {
        for index in 0..self.queues.numbers() {
            if self.queues.get(index).is_some_and(|one| one.is_in_doubt()) {
                self.ask(index);
            }
        }
    }

    /// Asks again where it is time to.
    pub(super) fn ask_again(&mut self) {
        if self.asking.is_empty() {
            return;
        }
        let now = Instant::now();
        let mut due = std::mem::take(&mut self.asking);
        due.retain(|index| {
            let asked = self.queues.get(*index).map(|one| &one.doubt.asked);
            let early = matches!(asked, Some(Some(asked)) if asked.due > now);
            if early {
                self.asking.push(*index);
            }
            !early
        });
        due.into_iter().for_each(|index| self.ask(index));
    }

    /// Asks how many of a queue's signals have come, unless that is being found out.
    pub(super) fn ask(&mut self, index: usize) {
        let Some(agenda) = self.queues.get(index) else {
            return;
        };
        let (peer, in_doubt) = (agenda.queue.peer, agenda.is_in_doubt());
        let doubt = &mut agenda.doubt;
        if !in_doubt {
            doubt.asked = None;
            // It may have waited for that.
            self.make_ready(index);
            return;
        }
        let now = Instant::now();
        let asked = doubt.asked.get_or_insert(Asked {
            since: None,
            reads: None,
            due: now,
            pause: PAUSES.0,
            refusals: 0,
            question: None,
        });
        if asked.reads.is_some() || asked.due > now {
            return;
        }
        if let Some((question, why)) = &asked.question {
            match self.departures.is_answered(*question) {
                true => {
                    let why = why.clone();
                    self.loses(index, &why);
                }
                false => self.pause(index),
            }
            return;
        }
        let signalled = doubt.signalled.as_ref();
        let (word, offset) = signalled.expect("something was").word.clone();
        let op = Op::Read {
            to: doubt.count_there.as_ptr().cast(),
            bytes: size_of::<u64>(),
            from: &word.remote,
            offset,
        };
        let cookie = self.flights.next() as u64;
        // SAFETY: the flight keeps what is written, and nobody reads it before that is over. The word is one of the
        // peer's memory, by the promise of `NicQueue::prepare`, and is only added to there. (Eight bytes that are
        // aligned are taken to be read as one, as every processor and NIC does that this was built for.)
        match unsafe { self.wire.post(peer, op, cookie) } {
            Ok(Posted::Taken) => {
                if let Some(since) = &mut asked.since {
                    since.look(now, self.silence);
                }
                asked.reads = Some(doubt.count);
                let count_there = doubt.count_there.clone();
                self.flights.add(Flight::Look(Look {
                    index,
                    peer,
                    count_there,
                    _word: word,
                }));
                self.taken_by(peer);
            }
            // Too much is under way, which is no fault of this peer's.
            Ok(Posted::Full) if self.posted() >= self.wire.limits().depth => self.pause(index),
            Ok(Posted::Full) => self.not_known(index, "it takes nothing"),
            Err(error) => {
                let agenda = self.queues.get(index).expect("it is asked for");
                agenda.doubt.is_refused = true;
                self.not_known(index, &error.to_string());
            }
        }
    }

    /// A count has been read, or could not be.
    pub(super) fn looked(&mut self, look: &Look<W>, failed: Option<String>) {
        self.contact.answers(Way::own(look.peer));
        let Some(agenda) = self.queues.get(look.index) else {
            return;
        };
        let doubt = &mut agenda.doubt;
        if !Arc::ptr_eq(&doubt.count_there, &look.count_there) {
            return;
        }
        let sent = doubt.asked.as_mut().and_then(|asked| asked.reads.take());
        doubt.is_refused = failed.is_some();
        match (failed, sent) {
            (Some(why), _) => {
                if let Some(asked) = &mut doubt.asked {
                    // A connection takes its time to be made again.
                    asked.pause = PAUSES.1;
                    asked.refusals += 1;
                }
                self.not_known(look.index, &why);
            }
            (None, Some(sent)) => {
                // While nobody answers, nothing goes wrong: the peer may be stopped.
                if let Some(since) = doubt.asked.as_mut().and_then(|asked| asked.since.as_mut()) {
                    since.skips(Instant::now());
                }
                let there = (look.count_there.load(Ordering::Relaxed) & !POISON) / QUANTUM;
                let first = doubt.signalled.as_ref().map_or(0, |one| one.first);
                let come = there.saturating_sub(first).min(doubt.count);
                if std::mem::replace(&mut doubt.come, come) < come
                    && let Some(asked) = &mut doubt.asked
                {
                    asked.since = None;
                }
                if come < sent {
                    let missing = sent - doubt.come;
                    self.not_known(look.index, &format!("{missing} have not come"));
                } else {
                    doubt.asked = None;
                    self.make_ready(look.index);
                }
            }
            (None, None) => {}
        }
    }

    /// Asks again in a while.
    fn pause(&mut self, index: usize) {
        let agenda = self.queues.get(index).expect("it was asked for");
        if let Some(asked) = &mut agenda.doubt.asked {
            asked.due = Instant::now() + asked.pause;
            asked.pause = (2 * asked.pause).min(PAUSES.1);
            self.asking.push(index);
        }
    }

    /// That signals have come is not known; asks again in a while, or no more.
    fn not_known(&mut self, index: usize, why: &str) {
        let agenda = self.queues.get(index).expect("it was asked for");
        if agenda.queue.departure() != Stage::Here {
            // It may be the connections that end, and no signal that was lost. When it has left nobody asks any more.
            self.pause(index);
            return;
        }
        // What has failed has taken the connection along: it is known that something is wrong.
        let (limit, refusals) = match agenda.fails {
            true => (self.silence.min(FAILED), REFUSALS),
            false => (self.silence, u32::MAX),
        };
        let (peer, doubt) = (agenda.queue.peer, &mut agenda.doubt);
        let Some(asked) = &mut doubt.asked else {
            return;
        };
        let since = asked.since.get_or_insert_with(Silence::new);
        if !since.look(Instant::now(), limit) && asked.refusals < refusals {
            self.pause(index);
            return;
        }
        asked.question = Some((self.departures.question(peer), why.into()));
        self.pause(index);
    }

    /// A signal of a queue is lost: nothing can be known of it, and the peer is there.
    fn loses(&mut self, index: usize, why: &str) {
        let agenda = self.queues.get(index).expect("it was asked for");
        let (peer, doubt) = (agenda.queue.peer, &mut agenda.doubt);
        tell(|| tracing::error!("rank {peer} was not reached by signals that were sent: {why}"));
        doubt.asked = None;
        doubt.lost = true;
        doubt.unreached = doubt.signalled.clone();
        agenda.queue.lose();
        self.fail(index);
    }
}

#[cfg(test)]
mod tests;
