//! Telling peers of failures.
//!
//! # Model
//!
//! A queue that gives up poisons, at its peer, the word of every program that is armed and will not fire: by a notice,
//! or by a byte that the peer's memory gets. Nothing but poison is ever sent twice.
//!
//! A peer that is not told waits until its own limit, or for ever. The wire may say that the poison was sent, and still
//! have lost it with a connection. So the engine reads the word a moment later, and tells the peer again, with longer and
//! longer pauses, until the word is poisoned.
//!
//! # What a poison may hit
//!
//! It may come late, and more than once, when this end holds nothing of the window any more. It hits that window's word
//! nevertheless, or nothing, as long as the peer's endpoint is there:
//!
//! - *By a notice*: it names a registration by a number, which an endpoint gives once in its life
//!   ([`Regions::add`](crate::regions::Regions::add) only counts on, and refuses when there are no more). One that has
//!   ended is not found, and while it exists, so does its memory.
//! - *By a byte*: a provider may give a key again when a registration has ended. This one has not. A poisoning is made
//!   in [`Engine::give_up`] alone: of programs that were armed, and then
//!   [`Queue::give_up`](super::queue::Queue::give_up) has poisoned the queue's *sent* word before it hands them out; or
//!   of a signal that was lost, and then [`Queue::lose`](super::queue::Queue::lose) has. The queue holds what says to
//!   the peer that this rank is through with the window, for as long as there is a queue, so that goes after this, and
//!   where a *sent* word is poisoned it says nothing (core's `window/through.rs`). The peer keeps its registration till
//!   all neighbours have said it, or its endpoint is closed. So the word is registered, for nobody but that window.
//!   (Where the words are read, the same holds of them.)
//!
//! What stays open is what a peer's endpoint does not outlive. When the news of its departure is there nothing more is
//! posted ([`Engine::leaves`], [`Engine::told`]), but a poison may be on its way; and of a rank that dies there is no
//! such news, so it is told for as long as others are. If another endpoint has the address by then, and the provider
//! takes one for the other, numbers begin anew there, and so may keys that providers choose. That they tell them apart
//! is left to the provider (by its connections, or by what authorises a job).
//!
//! # Failure
//!
//! A peer that has not been told is told again, after pauses. If the wire refuses that for as long as it may be silent, or
//! the word is not poisoned for so long, the peer *cannot be told*. It may be gone, which is no fault of this end, so
//! the control plane is [asked](super::departure) first. If the peer is there, core tells it by the control plane, and the
//! wire is of no more use ([`tidegate_hal::nic::Connection::failed`]). The time in which it does not answer does not count,
//! since it may be stopped (see [`contact`](super::contact) for how long that may last).
//!
//! A word that cannot be read says nothing, and each read that is refused costs a connection, with what is on it: so
//! there is none where others were refused, and the poison itself may have been lost with the last. The peer is told
//! [so many](super::poisoning::TELL) times then, with pauses in which connections are made again, and is taken to have heard of it. One
//! that [leaves](super::departure), or is lost, is told nothing.

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
    /// Ends a queue: nothing of it is under way.
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
        // Poisoning twice is no different from once.
        poisons.sort_unstable_by_key(|one| one.poison);
        poisons.dedup_by_key(|one| one.poison);
        if agenda.queue.departure() == Stage::Here {
            let (poisons, looks) = (poisons.into_iter(), !agenda.doubt.is_refused);
            self.poisonings
                .extend(poisons.map(|one| Poisoning::new(peer, one, looks)));
        }
    }

    /// A peer has been told of a failure, as the wire says, or its word was read; or that has failed.
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
                // While nobody answers, nothing goes wrong: the peer may be stopped.
                missing.skips(Instant::now());
                told.goes_back(PoisonStep::Tell);
            }
        }
        self.poisonings.push_back(told);
    }

    /// Telling a peer of a failure has failed for too long. If the peer is there, the wire is reported as failed; returns
    /// `false` while that is not known.
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

    /// Tells peers of failures. One that takes nothing for now keeps no other's back, nor does what has a pause.
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
            // Counted once behind each pause.
            let is_late =
                poisoning.due.take().is_some() && poisoning.has_missed(self.peers.silence);
            if is_late && self.cannot_tell(&mut poisoning, "what was sent does not come") {
                continue;
            }
            let op = poisoning.op(self.wire.signals());
            // SAFETY: a notice names no memory of this end, and the byte lives for ever. The word is that of a
            // program, by the promise of `NicQueue::prepare`, and there still (see "What a poison may hit"). What is
            // read is written to memory that the flight keeps, and that nobody looks at before it is over; the flight
            // is kept as long as the endpoint is open (see `bequest`).
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
        // Those that are to be told again are behind these.
        waiting.append(&mut self.poisonings);
        self.poisonings = waiting;
    }
}
