//! Telling peers of failures.
//!
//! # Model
//!
//! A queue that gives up poisons, at its peer, the word of every program that is armed and will not fire: by a notice,
//! or by a byte that the peer's memory gets. Nothing but poison is ever sent twice.
//!
//! # Failure
//!
//! A peer that has not been told is told again, after pauses. One that cannot be told at all is core's affair: the wire
//! is of no more use then ([`tidegate_hal::nic::Connection::failed`]). One that [leaves](super::departure) is told
//! nothing.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tidegate_hal::batch::POISON;

use super::departure::Stage;
use super::doubt::Signalled;
use super::firing::Flight;
use super::program::script;
use super::work::Engine;
use crate::wire::chain::Signals;
use crate::wire::{Op, Posted, Wire};

/// How often a peer is told of a failure, if that fails: with pauses, each twice as long as the one before, since what
/// has failed may have taken the connection along, and another one takes a while. About a second in all.
const TELL: u32 = 10;
/// The first of these pauses.
const PAUSE: Duration = Duration::from_millis(1);
/// The byte of a word in which [`POISON`] stands alone.
static POISONED: u8 = 1 << (POISON.trailing_zeros() % 8);

/// A peer is to be told of a failure.
pub(super) struct Poisoning<W: Wire> {
    pub(super) peer: usize,
    what: Signalled<W>,
    /// How often that has failed.
    tries: u32,
    /// Not before.
    due: Option<Instant>,
}

impl<W: Wire> Poisoning<W> {
    pub(super) fn new(peer: usize, what: Signalled<W>) -> Self {
        Poisoning {
            peer,
            what,
            tries: 0,
            due: None,
        }
    }
}

impl<W: Wire> Engine<W> {
    /// Ends a queue: nothing of it is under way.
    pub(super) fn give_up(&mut self, index: usize) {
        let Some(agenda) = self.queues.get(index) else {
            return;
        };
        let peer = agenda.queue.peer;
        let mut poisons: Vec<Signalled<W>> = agenda
            .queue
            .give_up()
            .iter()
            .map(|program| script::<W>(program).signalled())
            .chain(agenda.doubt.unreached.take())
            .collect();
        // Poisoning twice is no different from once.
        poisons.sort_unstable_by_key(|one| one.poison);
        poisons.dedup_by_key(|one| one.poison);
        if agenda.queue.departure() == Stage::Here {
            let poisons = poisons.into_iter();
            self.notices
                .extend(poisons.map(|one| Poisoning::new(peer, one)));
        }
    }

    /// A peer has not been told of a failure. If it cannot be told at all, that is core's affair.
    pub(super) fn untold(&mut self, mut untold: Poisoning<W>, why: &str) {
        if self.departures.of(untold.peer).stage() != Stage::Here {
            return;
        }
        if untold.tries < TELL {
            untold.due = Some(Instant::now() + PAUSE * 2u32.pow(untold.tries));
            untold.tries += 1;
            self.notices.push_back(untold);
        } else {
            let peer = untold.peer;
            self.failure.get_or_insert_with(|| {
                format!("rank {peer} could not be told of a failure: {why}")
            });
        }
    }

    /// Tells peers of failures. One that takes nothing for now keeps no other's back.
    pub(super) fn send_notices(&mut self) {
        if self.notices.is_empty() {
            return;
        }
        let mut waiting: VecDeque<Poisoning<W>> = VecDeque::new();
        while let Some(poisoning) = self.notices.pop_front() {
            let is_early = poisoning.due.is_some_and(|due| due > Instant::now());
            if is_early || waiting.iter().any(|before| before.peer == poisoning.peer) {
                waiting.push_back(poisoning);
                continue;
            }
            let cookie = self.flights.next() as u64;
            let (region, offset) = &poisoning.what.word;
            let op = match self.wire.signals() {
                Signals::Notice => Op::Notify(poisoning.what.poison),
                // Behind all adds of this end to the word, which nobody else adds to.
                Signals::Add => Op::Write {
                    from: &POISONED,
                    bytes: 1,
                    to: &region.remote,
                    offset: offset + POISON.trailing_zeros() as usize / 8,
                    notice: None,
                },
            };
            // SAFETY: a notice names no memory of this end, and the byte lives for ever. The word is that of a
            // program, by the promise of `NicQueue::prepare`.
            let posted = unsafe { self.wire.post(poisoning.peer, op, cookie) };
            match posted {
                Ok(Posted::Taken) => {
                    self.taken_by(poisoning.peer);
                    self.flights.add(Flight::Poisoning(poisoning));
                }
                Ok(Posted::Full) => match self.refused_by(poisoning.peer) {
                    None => waiting.push_back(poisoning),
                    Some(why) => self.untold(poisoning, &why),
                },
                Err(error) => self.untold(poisoning, &error.to_string()),
            }
        }
        // Those that are to be told again are behind these.
        waiting.append(&mut self.notices);
        self.notices = waiting;
    }
}
