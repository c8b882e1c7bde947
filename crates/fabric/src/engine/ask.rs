//! Finding out whether signals have come.
//!
//! # Model
//!
//! A write that brings a signal is through at this end once its source has been read. Waiting for its delivery would
//! cost a message back for each signal, which is most of the time of a short one. So a queue's signals are *in doubt*
//! until this end reads the word that they go to. That word counts the signals of this queue and nothing else. The
//! engine reads it
//!
//! - when the queue ends or gives up: memory may be freed then, and a poison must come last;
//! - when the rank leaves its job;
//! - once, when a queue has been quiet for a [tick](super::doubt::TICK). A connection that is lost and made again loses
//!   signals silently, and a peer may refuse what was reported as sent. But a lost signal is waited for (signals are
//!   numbered, so the next one does not replace it: [`crate::regions`]), and so the queue does become quiet;
//! - at the first tick, if a peer has never answered anything.
//!
//! Busy queues pay one comparison for each firing, and their signals are not asked for.
//!
//! # Failure
//!
//! A count that is too low is read again, after pauses: a notice may have arrived although the agent there has not yet
//! added to the word. A signal counts as *lost* when three things hold. The count has been too low for too long since
//! the first answer (not counting times without an answer), or the read has failed for as long. And the control plane
//! says that the peer is [there](super::departure). Then the queue gives up, and a poison tells the peer.
//!
//! Each refused read costs the connection it was made on, and whatever others have on it. So a queue of which something
//! has failed, and which gives up in any case, asks no more than [`REFUSALS`] times without success.
//!
//! A stopped peer does not answer. The engine waits for it, but not for ever (see [`contact`](super::contact)); the
//! control plane may give it up earlier. A peer that has left in good order, or is lost, is not asked. While a peer
//! leaves, no signal is lost, whatever it answers: see [`departure`](super::departure). Core poisons the sent word
//! towards a peer that is lost.

use std::time::Instant;

use tidegate_hal::tell;

use super::contact::Route;
use super::departure::Stage;
use super::doubt::{Answer, FAILED, InquiryStep, Look};
use super::firing::Flight;
use super::program::SignalWord;
use super::queues::QueueState;
use super::silence::Silence;
use super::state::Engine;
use crate::wire::{Op, Posted, Wire};

/// How many reads of a queue that gives up in any case may fail.
const REFUSALS: u32 = 5;

impl<W: Wire> Engine<W> {
    /// Notes that a signal of a queue is through at this end.
    pub(super) fn signalled(&mut self, index: usize, word: impl FnOnce() -> SignalWord<W>) {
        let Some(agenda) = self.queues.all.get(index) else {
            return;
        };
        agenda.doubt.adds(word);
        if !std::mem::replace(&mut agenda.doubt.is_listed, true) {
            self.queues.doubtful.push(index);
        }
    }

    /// Asks for the signals of queues that have been quiet since the last tick. Also takes further those queues that
    /// have nothing more to ask. To be called regularly while there are [doubts](super::rest::Need::Doubts).
    pub(super) fn tick(&mut self) {
        self.await_answers();
        let (mut quiet, mut over) = (Vec::new(), Vec::new());
        let mut doubtful = std::mem::take(&mut self.queues.doubtful);
        doubtful.retain(|index| {
            // Another queue may have got the number by now.
            let agenda = self.queues.all.get(*index);
            let Some(agenda) = agenda.filter(|one| one.doubt.is_listed) else {
                return false;
            };
            if !agenda.is_in_doubt() {
                agenda.doubt.is_listed = false;
                over.push(*index);
                return false;
            }
            if agenda.doubt.is_quiet() || !self.peers.contact.has_met(agenda.queue.peer) {
                quiet.push(*index);
            }
            true
        });
        self.queues.doubtful = doubtful;
        quiet.into_iter().for_each(|index| self.ask(index));
        over.into_iter()
            .for_each(|index| self.queues.make_ready(index));
        self.go_on();
    }

    /// Asks for all signals that are in doubt.
    pub(super) fn ask_all(&mut self) {
        for index in 0..self.queues.all.numbers() {
            let agenda = self.queues.all.at(index);
            if agenda.is_some_and(|agenda| agenda.is_in_doubt()) {
                self.ask(index);
            }
        }
    }

    /// Asks again for all queues whose pause is over.
    pub(super) fn ask_again(&mut self) {
        if self.queues.asking.is_empty() {
            return;
        }
        let now = Instant::now();
        let mut due = std::mem::take(&mut self.queues.asking);
        due.retain(|index| {
            let agenda = self.queues.all.get(*index);
            let inquiry = agenda.and_then(|agenda| agenda.doubt.inquiry());
            let early = inquiry.is_some_and(|inquiry| inquiry.due > now);
            if early {
                self.queues.asking.push(*index);
            }
            !early
        });
        due.into_iter().for_each(|index| self.ask(index));
    }

    /// Asks how many of a queue's signals have come, unless a question is already open.
    pub(super) fn ask(&mut self, index: usize) {
        let Some(agenda) = self.queues.all.get(index) else {
            return;
        };
        let (peer, now) = (agenda.queue.peer, Instant::now());
        if !agenda.is_in_doubt() {
            agenda.doubt.rests();
            // The queue may have waited for its answer.
            self.queues.make_ready(index);
            return;
        }
        let Some(inquiry) = agenda.doubt.begins(now).filter(|one| one.due <= now) else {
            return;
        };
        match &inquiry.step {
            InquiryStep::Due => {}
            InquiryStep::Reads(_) => return,
            InquiryStep::Questions(question, why) => {
                if self.peers.departures.is_answered(*question) {
                    let why = why.clone();
                    self.loses(index, &why);
                } else {
                    self.pause(index)
                }
                return;
            }
        }
        let (word, offset, to) = agenda.doubt.place();
        let op = Op::Read {
            to,
            bytes: size_of::<u64>(),
            from: &word.remote,
            offset,
        };
        // SAFETY: the flight keeps the memory that is written, and nobody reads that before the operation is over. The
        // word is in the peer's memory, by the promise of `NicQueue::prepare`, and is only added to there. (Eight
        // aligned bytes are assumed to be read as one, as every processor and NIC does that this was built for.)
        match unsafe { self.wire.post(peer, op, self.flights.next()) } {
            Ok(Posted::Taken) => {
                self.flights.add(Flight::Look(Look {
                    index,
                    peer,
                    count_there: agenda.doubt.reads(now, self.peers.silence),
                    _word: word,
                }));
                self.taken_by(peer);
            }
            // Too much is in progress, which is no fault of this peer.
            Ok(Posted::Full) if self.has_too_much() => self.pause(index),
            Ok(Posted::Full) => self.not_known(index, "it takes nothing"),
            Err(error) => {
                self.queues.get(index).doubt.is_refused = true;
                self.not_known(index, &error.to_string());
            }
        }
    }

    /// Takes the result of a read of a count.
    pub(super) fn looked(&mut self, look: &Look<W>, failed: Option<String>) {
        self.peers.contact.answers(Route::own(look.peer));
        let Some(agenda) = self.queues.all.get(look.index) else {
            return;
        };
        if !agenda.doubt.is_read_by(look) {
            return;
        }
        match agenda.doubt.has_read(failed) {
            Answer::Known => self.queues.make_ready(look.index),
            Answer::Unknown(why) => self.not_known(look.index, &why),
            Answer::Stale => {}
        }
    }

    /// Asks again after a pause.
    fn pause(&mut self, index: usize) {
        if let Some(inquiry) = self.queues.get(index).doubt.inquiry() {
            inquiry.pauses();
            self.queues.asking.push(index);
        }
    }

    /// Handles an answer that leaves open whether signals have come: asks again after a pause, or gives up.
    fn not_known(&mut self, index: usize, why: &str) {
        let agenda = self.queues.get(index);
        // If the peer is not here, its connections may be ending, and no signal was lost. When it has left, nobody asks
        // any more.
        if agenda.queue.departure() == Stage::Here
            && let Some(inquiry) = agenda.doubt.inquiry()
        {
            let silence = self.peers.silence;
            // The failure has closed the connection, so it is known that something is wrong.
            let (limit, refusals) = match agenda.state {
                QueueState::Failing => (silence.min(FAILED), REFUSALS),
                _ => (silence, u32::MAX),
            };
            let since = inquiry.since.get_or_insert_with(Silence::new);
            if since.look(Instant::now(), limit) || inquiry.refusals >= refusals {
                let question = self.peers.departures.question(agenda.queue.peer);
                inquiry.step = InquiryStep::Questions(question, why.into());
            }
        }
        self.pause(index);
    }

    /// Declares a signal of a queue lost: nothing can be known of it, and the peer is there.
    fn loses(&mut self, index: usize, why: &str) {
        let agenda = self.queues.get(index);
        let peer = agenda.queue.peer;
        tell(|| tracing::error!("rank {peer} was not reached by signals that were sent: {why}"));
        agenda.doubt.loses();
        agenda.queue.lose();
        self.queues.fail(index);
    }
}

#[cfg(test)]
mod tests;
