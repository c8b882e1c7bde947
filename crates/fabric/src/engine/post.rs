//! What is posted to the wires: the pieces of a firing, its signal (with the last piece, or in parts with all of them),
//! and signals without data.
//!
//! # Failure
//!
//! If the wire refuses an operation for good, or for too long, the firing is spoilt. Its queue gives up when nothing of
//! the firing is in progress and the peer is known not to have left ([`departure`](super::departure)).

use tidegate_hal::nic::Direction;

use super::firing::{Fate, Firing, Flight, Progress};
use super::gather::{Lent, Pool};
use super::program::{ScriptPiece, script};
use super::queue::Ring;
use super::queues::{Agenda, LoneSignal};
use super::rail::Job;
use super::state::Engine;
use crate::notice::Notice;
use crate::wire::{Op, Posted, Wire};

/// The most bytes of a write that takes another queue's signal along. A longer write would delay the signal by more
/// than a message of its own costs.
const ALONG: usize = 64 << 10;

impl Firing {
    /// The next piece to be posted, if there is one.
    fn next_piece<W: Wire>(&self) -> Option<&ScriptPiece<W>> {
        match self.progress {
            Progress::Posting { next, .. } => script::<W>(&self.program).pieces.get(next),
            Progress::Requesting { .. } | Progress::Signalled => None,
        }
    }

    /// The memory of its next piece. It is computed once, however often the wire refuses the piece.
    fn address<W: Wire>(&mut self, pool: &mut Pool) -> Option<*mut u8> {
        let (odd, nothing) = (self.is_odd(), self.under_way == 0);
        let Progress::Posting { next, source, .. } = &mut self.progress else {
            return None;
        };
        if source.is_none() {
            // SAFETY: as for the post in `advance`.
            *source = unsafe { pool.source::<W>(&self.program, *next, odd, nothing) };
        }
        source.as_ref().map(|source| source.address)
    }

    /// Notes that its next piece is in progress. A put that is the last piece brings the signal, or the last part of
    /// it. Returns the buffer of the operation.
    fn posted<W: Wire>(&mut self) -> Option<Lent> {
        let script = script::<W>(&self.program);
        let pieces = &script.pieces;
        let Progress::Posting { next, source, .. } = &mut self.progress else {
            return None;
        };
        let is_put = pieces[*next].direction == Direction::Put;
        let lent = source.take().and_then(|source| source.lent);
        self.under_way += 1;
        *next += 1;
        if is_put && *next == pieces.len() && script.requests.is_none() {
            self.progress = Progress::Signalled;
        }
        lent
    }
}

/// The first of these signals that can share a notice with another one to the same peer, and that notice.
fn pair(signals: &[LoneSignal], peer: usize, notice: u64) -> Option<(usize, u64)> {
    let same = signals
        .iter()
        .enumerate()
        .filter(|(_, one)| one.peer == peer);
    same.filter_map(|(at, one)| Some((at, Notice::pair(notice, one.notice)?)))
        .next()
}

impl<W: Wire> Engine<W> {
    /// Posts the next operation of a firing. Returns `false` if it must wait.
    pub(super) fn advance(&mut self, index: usize) -> bool {
        let (firing, queue) = self.queues.firing(index).expect("it is worked on");
        let (peer, script) = (queue.peer, script::<W>(&firing.program));
        let Progress::Posting { ring, next, source } = &firing.progress else {
            return self.converse(index);
        };
        let is_whole = *ring == Ring::Whole;
        let Some(piece) = script.pieces.get(*next) else {
            if script.requests.is_some() {
                return self.begins_requests(index);
            }
            // Post the signal alone when everything else is done.
            if firing.under_way == 0 && is_whole {
                let notice = script.notice(firing.number);
                firing.progress = Progress::Signalled;
                firing.under_way = 1;
                self.queues.signals.push(LoneSignal {
                    queue: index,
                    peer,
                    notice,
                });
            }
            return false;
        };
        let is_last = *next + 1 == script.pieces.len()
            && piece.direction == Direction::Put
            && script.requests.is_none();
        let is_due = match *ring {
            Ring::Whole => true,
            Ring::Parts(parts) => !is_last && parts > u64::from(piece.stage),
            Ring::Broken => false,
        };
        if !is_due {
            return false;
        }
        if is_last && script.parts.is_none() {
            if firing.under_way == 0 {
                self.queues.late.push(index);
            } else if source.is_none() {
                // The piece waits for the others. Copy its bytes meanwhile.
                firing.address::<W>(&mut self.pool);
            }
            return false;
        }
        // Leave half of the room for other queues. Otherwise a long put would delay their short ones until it is over.
        let posted = firing.under_way - firing.by_rails;
        if posted >= (self.wire.limits().depth / 2).max(1) {
            return false;
        }
        let (at, notice) = (*next, script.part(firing.number));
        let Some(address) = firing.address::<W>(&mut self.pool) else {
            self.queues.stalled.push(index);
            return false;
        };
        let piece = firing.next_piece::<W>().expect("it has an address");
        let (odd, number) = (firing.is_odd(), piece.rail);
        let cookie = self.flights.next();
        let rail = number.checked_sub(1).map(|rail| &self.rails[rail]);
        if let Some(rail) = rail.filter(|rail| rail.has_room()) {
            let job = Job {
                queue: queue.clone(),
                program: firing.program.clone(),
                piece: at,
                odd,
                notice,
                cookie,
            };
            // SAFETY: as for the post.
            unsafe { rail.hand(job) };
            firing.posted::<W>();
            firing.by_rails += 1;
            self.flights.add(Flight::Handed {
                queue: index,
                rail: number,
            });
            self.heard += 1;
            self.peers.contact.asks(peer);
            return true;
        }
        let op = piece.op(0, odd, address, notice);
        // SAFETY: `NicQueue::prepare` promised this for the time between the ring and the signal. The ring was acquired
        // when the doorbell was read. The signal is posted last, or is complete when all of its parts have arrived. The
        // program keeps the memory, and stays in its queue until this is over, or the wire is dropped. Gathered bytes
        // stay as long.
        let posted = unsafe { self.wire.post(peer, op, cookie) };
        let lent = matches!(posted, Ok(Posted::Taken)).then(|| firing.posted::<W>());
        match posted {
            Ok(Posted::Taken) => self.flies(index, peer, None, lent.flatten()),
            Ok(Posted::Full) => match self.refused_by(peer) {
                None => {
                    self.queues.stalled.push(index);
                    return false;
                }
                Some(why) => self.spoil(index, &why),
            },
            Err(error) => self.spoil(index, &error.to_string()),
        }
        true
    }

    /// Posts the last piece of a firing with its signal, and with a held signal for the same peer.
    pub(super) fn bring(&mut self, index: usize) {
        let agenda = self.queues.all.get(index);
        let (firing, queue) = agenda.and_then(Agenda::split).expect("it has a firing");
        let peer = queue.peer;
        let Some(address) = firing.address::<W>(&mut self.pool) else {
            self.queues.stalled.push(index);
            return;
        };
        let piece = firing.next_piece::<W>().expect("it has an address");
        let own = script::<W>(&firing.program).notice(firing.number);
        let along = (piece.bytes <= ALONG)
            .then(|| pair(&self.queues.signals, peer, own))
            .flatten();
        let notice = along.map_or(own, |(_, both)| both);
        let op = piece.op(0, firing.is_odd(), address, Some(notice));
        // SAFETY: as in `advance`.
        let posted = unsafe { self.wire.post(peer, op, self.flights.next()) };
        let why = match posted {
            Ok(Posted::Taken) => {
                let lent = firing.posted::<W>();
                return self.flies(index, peer, along, lent);
            }
            Ok(Posted::Full) => self.refused_by(peer),
            Err(error) => Some(error.to_string()),
        };
        match why {
            None => self.queues.stalled.push(index),
            Some(why) => {
                self.spoil(index, &why);
                self.queues.make_ready(index);
            }
        }
    }

    /// Notes that the wire has accepted an operation of a queue, with the signal that goes along.
    fn flies(
        &mut self,
        queue: usize,
        peer: usize,
        along: Option<(usize, u64)>,
        lent: Option<Lent>,
    ) {
        let along = along.map(|(at, _)| self.queues.signals.swap_remove(at).queue);
        self.flights.add(Flight::Own { queue, along, lent });
        self.taken_by(peer);
    }

    /// Fails a queue's firing, which cannot go on.
    pub(super) fn spoil(&mut self, index: usize, why: &str) {
        self.goes_wrong(index, &format!("was refused: {why}"));
    }

    /// Handles a transfer of a queue's firing that was refused, or has failed.
    pub(super) fn goes_wrong(&mut self, index: usize, how: &str) {
        let (firing, queue) = self.queues.firing(index).expect("it has a firing");
        if let Fate::Well = firing.fate {
            let what = format!("a transfer to rank {} {how}", queue.peer);
            firing.fate = Fate::Asked(what, self.peers.departures.question(queue.peer));
        }
        // Post nothing more of this firing.
        if let Progress::Posting { source, .. } = &mut firing.progress {
            *source = None;
        }
    }

    /// Posts the held signals, two in one notice where possible. Returns `false` if some must wait. A peer for which
    /// there is no room delays only its own signals.
    pub(super) fn send_signals(&mut self) -> bool {
        let mut waiting: Vec<LoneSignal> = Vec::new();
        while let Some(signal) = self.queues.signals.pop() {
            let LoneSignal {
                queue,
                peer,
                notice,
            } = signal;
            if waiting.iter().any(|before| before.peer == peer) {
                waiting.push(signal);
                continue;
            }
            let along = pair(&self.queues.signals, peer, notice);
            let op = Op::Notify(along.map_or(notice, |(_, both)| both));
            // SAFETY: a notice names no memory of this end.
            let why = match unsafe { self.wire.post(peer, op, self.flights.next()) } {
                Ok(Posted::Taken) => {
                    self.flies(queue, peer, along, None);
                    continue;
                }
                Ok(Posted::Full) => self.refused_by(peer).or_else(|| {
                    let agenda = self.queues.all.at(queue);
                    let given_up = agenda.is_none_or(|agenda| agenda.queue.is_abandoned());
                    given_up.then(|| "it was given up before it was sent".into())
                }),
                Err(error) => Some(error.to_string()),
            };
            match why {
                Some(_) => self.over(queue, 0, why),
                None => waiting.push(signal),
            }
        }
        self.queues.signals = waiting;
        self.queues.signals.is_empty()
    }
}
