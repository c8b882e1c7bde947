//! Telling peers of failures.
//!
//! # Model
//!
//! A queue that gives up poisons words at its peer: the word of every program that is armed and will not fire. It does
//! so by a notice, or by a byte that is written to the peer's memory. Only poison is ever sent twice.
//!
//! A peer that is not told waits until its own limit, or for ever. The wire may report the poison as sent although a
//! lost connection has swallowed it. So the engine reads the word a moment later, and tells the peer again, with longer
//! and longer pauses, until the word is poisoned.
//!
//! # What a poison may hit
//!
//! A poison may arrive late, and more than once, when this end has long released the window. As long as the peer's
//! endpoint exists, it still hits that window's word or nothing:
//!
//! - *By a notice.* A notice names a registration by a number, which an endpoint gives only once
//!   ([`Regions::add`](crate::regions::Regions::add) only counts up, and refuses when no number is left). A
//!   registration that has ended is not found. One that exists has its memory.
//! - *By a byte.* A provider may reuse a key when a registration has ended. But this registration has not ended. Only
//!   [`Engine::give_up`] makes poisonings. Either the programs were armed, and
//!   [`Queue::give_up`](super::queue::Queue::give_up) poisons the queue's *sent* word before it hands them out. Or a
//!   signal was lost, and [`Queue::lose`](super::queue::Queue::lose) has poisoned the *sent* word. As long as the queue
//!   exists, it holds the message that tells the peer that this rank is through with the window. So that message goes
//!   out after the poisoning, and it is not sent at all if the *sent* word is poisoned (core's `window/through.rs`).
//!   The peer keeps its registration until all neighbours have sent that message, or its endpoint is closed. So the
//!   word is registered, and for that window only. (The same holds where words are read.)
//!
//! One case remains: the peer's endpoint has been closed. After the news of a departure, nothing more is posted
//! ([`Engine::leaves`], [`Engine::told`]), but a poison may still be on its way. There is no such news of a rank that
//! dies, so it is told for as long as others are. If another endpoint has the same address by then, its numbers begin
//! anew, and so may keys that providers choose. The provider must tell the two endpoints apart (by its connections, or
//! by what authorises a job).
//!
//! # Failure
//!
//! A peer *cannot be told* if the wire refuses the poison, or the word stays unpoisoned, for as long as a peer may be
//! silent. The peer may simply have gone, so the control plane is [asked](super::departure) first. If the peer is
//! there, core tells it over the control plane, and the wire is reported to be useless
//! ([`tidegate_hal::nic::Connection::failed`]). Time in which the peer does not answer does not count, because it may
//! be stopped (see [`contact`](super::contact) for how long that may last).
//!
//! A word that cannot be read proves nothing. Each refused read costs a connection, with everything on it, and perhaps
//! the poison as well. So words are not read again where reads were refused. The peer is then told a [fixed
//! number](super::poisoning::TELL) of times, with pauses in which connections are made again, and counts as told. A
//! peer that [leaves](super::departure), or is lost, is told nothing.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tidegate_hal::batch::POISON;
use tidegate_hal::tell;

use super::departure::Stage;
use super::firing::Flight;
use super::poisoning::{LOOKS, PAUSE, PoisonStep, Poisoning};
use super::program::{SignalWord, script};
use super::silence::Silence;
use super::state::Engine;
use crate::wire::{Posted, Wire};

impl<W: Wire> Engine<W> {
    /// Ends a queue that has nothing in progress.
    pub(super) fn give_up(&mut self, index: usize) {
        let Some(agenda) = self.queues.all.get(index) else {
            return;
        };
        let peer = agenda.queue.peer;
        let mut poisons: Vec<SignalWord<W>> = agenda
            .queue
            .give_up()
            .iter()
            .map(|program| script::<W>(program).signalled())
            .chain(agenda.doubt.take_lost())
            .collect();
        // To poison a word twice is the same as once.
        poisons.sort_unstable_by_key(|one| one.poison);
        poisons.dedup_by_key(|one| one.poison);
        if agenda.queue.departure() == Stage::Here {
            let (poisons, looks) = (poisons.into_iter(), !agenda.doubt.is_refused);
            self.poisonings
                .extend(poisons.map(|one| Poisoning::new(peer, one, looks)));
        }
    }

    /// Handles the end of a step: the wire says that the poison was sent, or the word was read, or that has failed.
    pub(super) fn told(&mut self, mut told: Poisoning<W>, failed: Option<&str>) {
        if self.peers.stage(told.peer) != Stage::Here {
            return;
        }
        match (told.step, failed) {
            (PoisonStep::Tell | PoisonStep::TellBlindly(_), Some(why)) => {
                let was_told = matches!(told.step, PoisonStep::TellBlindly(1..));
                let refused = told.refused.get_or_insert_with(Silence::new);
                if refused.look(Instant::now(), self.peers.silence)
                    && (was_told || self.cannot_tell(&mut told, why))
                {
                    return;
                }
                told.goes_back(told.step);
                tell(|| {
                    tracing::debug!("rank {} is to be told of a failure again: {why}", told.peer)
                });
            }
            (PoisonStep::TellBlindly(times), None) => {
                told.refused = None;
                if !told.tells_blindly(times) {
                    return;
                }
            }
            (PoisonStep::Tell, None) => {
                told.refused = None;
                told.goes_on(PoisonStep::Look(0), PAUSE);
            }
            (PoisonStep::Look(tries), Some(_)) if tries + 1 == LOOKS.0 => {
                told.missing = None;
                told.tells_blindly(0);
            }
            (PoisonStep::Look(tries), Some(_)) => {
                told.goes_on(PoisonStep::Look(tries + 1), LOOKS.1)
            }
            (PoisonStep::Look(_), None) => {
                if told.word_there.load(Ordering::Relaxed) & POISON != 0 {
                    return;
                }
                let missing = told.missing.get_or_insert_with(Silence::new);
                // Time without an answer does not count, because the peer may be stopped.
                missing.skips(Instant::now());
                told.goes_back(PoisonStep::Tell);
            }
        }
        self.poisonings.push_back(told);
    }

    /// Handles a peer that could not be told for too long. If the peer is there, the wire is reported as failed.
    /// Returns `false` while it is not known whether it is there.
    fn cannot_tell(&mut self, told: &mut Poisoning<W>, why: &str) -> bool {
        let peer = told.peer;
        let ask = || self.peers.departures.question(peer);
        let question = *told.question.get_or_insert_with(ask);
        let is_there = self.peers.departures.is_answered(question);
        if is_there {
            let why = || format!("rank {peer} could not be told of a failure: {why}");
            self.failure.get_or_insert_with(why);
        }
        is_there
    }

    /// Tells peers of failures. A peer that accepts nothing for now, or a task in its pause, delays no other.
    pub(super) fn send_poisonings(&mut self) {
        if self.poisonings.is_empty() {
            return;
        }
        let mut waiting: VecDeque<Poisoning<W>> = VecDeque::new();
        let mut full: Vec<usize> = Vec::new();
        while let Some(mut poisoning) = self.poisonings.pop_front() {
            let is_early = poisoning.due.is_some_and(|due| due > Instant::now());
            if is_early || full.contains(&poisoning.peer) {
                waiting.push_back(poisoning);
                continue;
            }
            // This counts once after each pause.
            let is_late =
                poisoning.due.take().is_some() && poisoning.has_missed(self.peers.silence);
            if is_late && self.cannot_tell(&mut poisoning, "what was sent does not come") {
                continue;
            }
            let op = poisoning.op(self.wire.signals());
            // SAFETY: a notice names no memory of this end, and the byte lives for ever. The word is that of a program,
            // by the promise of `NicQueue::prepare`, and is still there (see "What a poison may hit"). A read writes to
            // memory that the flight keeps, and that nobody looks at before the read is over. The flight is kept as
            // long as the endpoint is open (see `bequest`).
            let posted = unsafe { self.wire.post(poisoning.peer, op, self.flights.next()) };
            match posted {
                Ok(Posted::Taken) => {
                    self.taken_by(poisoning.peer);
                    self.flights.add(Flight::Poisoning(poisoning));
                }
                Ok(Posted::Full) => match self.refused_by(poisoning.peer) {
                    None => {
                        full.push(poisoning.peer);
                        waiting.push_back(poisoning);
                    }
                    Some(why) => self.told(poisoning, Some(&why)),
                },
                Err(error) => self.told(poisoning, Some(&error.to_string())),
            }
        }
        // Peers that must be told again come after these.
        waiting.append(&mut self.poisonings);
        self.poisonings = waiting;
    }
}
