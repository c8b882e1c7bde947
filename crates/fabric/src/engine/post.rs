//! What goes to the wires: the pieces of a firing, its signal with the last or in parts with all of them, and signals
//! that have no data.
//!
//! # Failure
//!
//! What the wire refuses for good, or for too long, spoils the firing: its queue gives up when nothing of it is under way
//! and it is known that the peer has not left ([`departure`](super::departure)).

use tidegate_hal::nic::Direction;

use super::firing::{Fate, Firing, Flight, Held};
use super::gather::{Pool, Source};
use super::program::{Script, ScriptPiece, operation_at, script};
use super::rail::Job;
use super::state::Engine;
use crate::notice::Notice;
use crate::wire::{Op, Posted, Wire};

/// The most bytes of a write that takes the signal of another queue along: a longer one would keep it back for longer
/// than a message of its own costs.
const ALONG: usize = 64 << 10;

impl Firing {
    /// Its next piece.
    fn piece<W: Wire>(&self) -> &ScriptPiece<W> {
        &script::<W>(&self.program).pieces[self.next]
    }

    /// Its next piece is under way, and with the last part of a signal all of that.
    fn posted<W: Wire>(&mut self) {
        let script = script::<W>(&self.program);
        self.under_way += 1;
        self.next += 1;
        self.signalled = script.parts.is_some() && self.next == script.pieces.len();
    }

    /// Where the bytes of its next piece are: that is found out once, however often the wire refuses it.
    fn source_of<W: Wire>(&mut self, pool: &mut Pool) -> Option<Source> {
        let (odd, nothing) = (self.is_odd(), self.under_way == 0);
        self.source.take().or_else(|| {
            // SAFETY: as for the post in `advance`.
            unsafe { pool.source::<W>(&self.program, self.next, odd, nothing) }
        })
    }
}

impl<W: Wire> Engine<W> {
    /// Posts the next operation of a firing; `false` if it must wait.
    pub(super) fn advance(&mut self, index: usize) -> bool {
        let agenda = self.queues.get(index).expect("it is worked on");
        let peer = agenda.queue.peer;
        let firing = agenda.firing.as_mut().expect("there is one");
        let script: &Script<W> = script(&firing.program);
        let left = script.pieces.len() - firing.next;
        let Some(piece) = script.pieces.get(firing.next) else {
            // The signal alone, when all else is done.
            if firing.under_way > 0 || firing.rung.is_some() {
                return false;
            }
            self.held.push(Held {
                queue: index,
                peer,
                notice: script.notice(firing.number),
            });
            firing.signalled = true;
            firing.under_way = 1;
            return false;
        };
        let is_last = left == 1 && piece.direction == Direction::Put;
        if is_last && firing.rung.is_some() {
            return false;
        }
        if is_last && script.parts.is_none() {
            if firing.under_way == 0 {
                self.late.push(index);
            } else if firing.source.is_none() {
                // It waits for the others; what is to be copied is copied meanwhile.
                firing.source = firing.source_of::<W>(&mut self.pool);
            }
            return false;
        }
        if firing
            .rung
            .is_some_and(|parts| parts <= u64::from(piece.stage))
        {
            return false;
        }
        // Half of the room is left for others: a long put would keep their short ones back until it is over.
        let posted = firing.under_way - firing.by_rails;
        if posted >= (self.wire.limits().depth / 2).max(1) {
            return false;
        }
        let notice = script.part(firing.number);
        let Some(source) = firing.source_of::<W>(&mut self.pool) else {
            self.stalled.push(index);
            return false;
        };
        let piece = firing.piece::<W>();
        let op = operation_at(piece, firing.is_odd(), source.address, notice);
        let cookie = self.flights.next() as u64;
        let number = piece.rail;
        let rail = number.checked_sub(1).map(|rail| &self.rails[rail]);
        if let Some(rail) = rail.filter(|rail| rail.has_room()) {
            let job = Job::new(&agenda.queue, piece, &op, cookie);
            // SAFETY: as for the post.
            unsafe { rail.hand(job) };
            firing.posted::<W>();
            firing.by_rails += 1;
            self.handed += 1;
            self.flights.add(Flight::Handed(index, number));
            self.heard += 1;
            self.contact.asks(peer);
            return true;
        }
        // SAFETY: `NicQueue::prepare` promised this for the time between the ring, which was acquired when the doorbell
        // was read, and the signal, which is posted last, or is there when all of its parts are; the program keeps the
        // memory, and stands in its queue until this is over, or the wire is dropped. What was gathered stays for as
        // long.
        let posted = unsafe { self.wire.post(peer, op, cookie) };
        match posted {
            Ok(Posted::Taken) => {
                firing.posted::<W>();
                self.flights.add(Flight::Of(index, source.lent));
                self.taken_by(peer);
                true
            }
            Ok(Posted::Full) => {
                firing.source = Some(source);
                match self.refused_by(peer) {
                    None => {
                        self.stalled.push(index);
                        false
                    }
                    Some(why) => {
                        self.spoil(index, &why);
                        true
                    }
                }
            }
            Err(error) => {
                self.spoil(index, &error.to_string());
                true
            }
        }
    }

    /// Posts the last piece of a firing with its signal, and with one that is held for the same peer.
    pub(super) fn bring(&mut self, index: usize) {
        let agenda = self.queues.get(index).expect("it has a firing");
        let peer = agenda.queue.peer;
        let firing = agenda.firing.as_mut().expect("it has a firing");
        let script: &Script<W> = script(&firing.program);
        let piece = &script.pieces[firing.next];
        let own = script.notice(firing.number);
        let mut along = None;
        if piece.bytes <= ALONG {
            let pairs = |held: &Held| {
                (held.peer == peer)
                    .then(|| Notice::pair(own, held.notice))
                    .flatten()
            };
            along = self
                .held
                .iter()
                .enumerate()
                .find_map(|(at, held)| Some((at, pairs(held)?)));
        }
        let notice = along.map_or(own, |(_, notice)| notice);
        let Some(source) = firing.source_of::<W>(&mut self.pool) else {
            self.stalled.push(index);
            return;
        };
        let piece = firing.piece::<W>();
        let op = operation_at(piece, firing.is_odd(), source.address, Some(notice));
        let cookie = self.flights.next() as u64;
        // SAFETY: as in `advance`.
        let posted = unsafe { self.wire.post(peer, op, cookie) };
        match posted {
            Ok(Posted::Taken) => {
                firing.under_way += 1;
                firing.next += 1;
                firing.signalled = true;
                let flight = match along {
                    None => Flight::Of(index, source.lent),
                    Some((at, _)) => Flight::With(index, self.held.swap_remove(at), source.lent),
                };
                self.flights.add(flight);
                self.taken_by(peer);
            }
            Ok(Posted::Full) => {
                firing.source = Some(source);
                match self.refused_by(peer) {
                    None => self.stalled.push(index),
                    Some(why) => {
                        self.spoil(index, &why);
                        self.make_ready(index);
                    }
                }
            }
            Err(error) => {
                self.spoil(index, &error.to_string());
                self.make_ready(index);
            }
        }
    }

    /// A queue cannot go on: it gives up when nothing of it is under way.
    pub(super) fn fail(&mut self, index: usize) {
        let agenda = self.queues.get(index).expect("it is there");
        match &mut agenda.firing {
            Some(firing) => firing.fate = Fate::Failed,
            None => agenda.fails = true,
        }
        self.make_ready(index);
    }

    /// A queue's firing cannot go on.
    pub(super) fn spoil(&mut self, index: usize, why: &str) {
        self.goes_wrong(index, &format!("was refused: {why}"));
    }

    /// A transfer of a queue's firing was refused, or has failed.
    pub(super) fn goes_wrong(&mut self, index: usize, how: &str) {
        let agenda = self.queues.get(index).expect("it has a firing");
        let peer = agenda.queue.peer;
        let firing = agenda.firing.as_mut().expect("it has a firing");
        if matches!(firing.fate, Fate::Well) {
            let what = format!("a transfer to rank {peer} {how}");
            firing.fate = Fate::Held(what, self.departures.question(peer));
        }
    }

    /// The wire has taken something towards a peer.
    pub(super) fn taken_by(&mut self, peer: usize) {
        self.heard += 1;
        self.contact.takes(peer);
    }

    /// The wire takes nothing towards a peer for now. Says why, if that has been so for too long. (That too much is
    /// under way is no fault of the peer's.)
    pub(super) fn refused_by(&mut self, peer: usize) -> Option<String> {
        self.full = true;
        if self.posted() >= self.wire.limits().depth {
            return None;
        }
        self.contact.refuses(peer)
    }

    /// Posts the signals that are held, by two where that can be; `false` if some must wait. A peer for which there is
    /// no room keeps back none but its own.
    pub(super) fn send_held(&mut self) -> bool {
        let mut waiting: Vec<Held> = Vec::new();
        while let Some(held) = self.held.pop() {
            if waiting.iter().any(|before| before.peer == held.peer) {
                waiting.push(held);
                continue;
            }
            let abandoned = |engine: &mut Self| {
                let agenda = engine.queues.get(held.queue);
                agenda.is_none_or(|agenda| agenda.queue.is_abandoned())
            };
            let pairs = |other: &Held| {
                (other.peer == held.peer)
                    .then(|| Notice::pair(held.notice, other.notice))
                    .flatten()
            };
            let other = self
                .held
                .iter()
                .enumerate()
                .find_map(|(at, other)| Some((at, pairs(other)?)));
            let notice = other.map_or(held.notice, |(_, notice)| notice);
            let cookie = self.flights.next() as u64;
            // SAFETY: a notice names no memory of this end.
            match unsafe { self.wire.post(held.peer, Op::Notify(notice), cookie) } {
                Ok(Posted::Taken) => {
                    let flight = match other {
                        None => Flight::Of(held.queue, None),
                        Some((at, _)) => Flight::With(held.queue, self.held.swap_remove(at), None),
                    };
                    self.flights.add(flight);
                    self.taken_by(held.peer);
                }
                Ok(Posted::Full) => {
                    let given_up = abandoned(self);
                    let given_up = given_up.then(|| "it was given up before it was sent".into());
                    match self.refused_by(held.peer).or(given_up) {
                        Some(why) => self.over(held.queue, Some(why)),
                        None => waiting.push(held),
                    }
                }
                Err(error) => self.over(held.queue, Some(error.to_string())),
            }
        }
        self.held = waiting;
        self.held.is_empty()
    }
}
