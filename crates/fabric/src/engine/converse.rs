//! A firing that updates elements of the peer: its requests, one after the other, each with its answer.
//!
//! # Model
//!
//! The requests go when all pieces of the firing have been delivered. Each is a write to the peer's mail, with a notice
//! that counts it there. The answer is a write to this rank's mail, and its notice counts it here. So no request is
//! sent before the one before it was answered, and each room is free again when it is used. The last request names the
//! notice of the firing's signal, which the peer's engine carries out itself.
//!
//! # Failure
//!
//! A lost connection may swallow a request or an answer without a word. So if an answer does not come for the allowed
//! silence, the control plane is asked whether the peer is there. If it is, and the answer still does not come for as
//! long, the firing has failed. A request is never sent twice, because it may have been applied.

use std::time::Instant;

use tidegate_hal::batch::{POISON, QUANTUM};

use super::contact::Route;
use super::firing::{Asked, Fate, Flight, Progress};
use super::gather::Source;
use super::program::script;
use super::queue::Ring;
use super::queues::QueueState;
use super::silence::Silence;
use super::state::Engine;
use crate::mail::Letter;
use crate::notice::numbered;
use crate::wire::{Op, Posted, Wire};

impl<W: Wire> Engine<W> {
    /// Takes a firing's requests one step on. Returns whether there may be another.
    pub(super) fn converse(&mut self, index: usize) -> bool {
        let agenda = self.queues.get(index);
        let QueueState::Firing(firing) = &mut agenda.state else {
            return false;
        };
        let program = firing.program.clone();
        let (script, nothing) = (script::<W>(&program), firing.under_way == 0);
        let (Progress::Requesting { next, asked }, Some(requests)) =
            (&mut firing.progress, &script.requests)
        else {
            return false;
        };
        let request = &requests.all[*next];
        let count = requests.mail.count(requests.line, Letter::Answer).load();
        let answered = (count & !POISON) / QUANTUM;
        match asked {
            Asked::Yes { .. } if answered < agenda.requested => {
                if count & POISON != 0 && nothing {
                    firing.fate = Fate::Failed;
                    return true;
                }
                false
            }
            // The operation has not ended here, although its answer has come.
            Asked::Yes { .. } if !nothing => false,
            Asked::Yes { .. } => {
                // SAFETY: the answer was counted when it had come, and `load` has acquired that. The results may be
                // written until the firing is through, by the promise of `NicQueue::prepare`.
                unsafe { request.read(requests.mail.room(requests.line, Letter::Answer)) };
                (*next, *asked) = (*next + 1, Asked::No(None));
                if *next == requests.all.len() {
                    firing.progress = Progress::Signalled;
                }
                true
            }
            Asked::No(source) => {
                let is_last = *next + 1 == requests.all.len();
                if source.is_none() {
                    let Some(lent) = self.pool.lend(request.bytes(), nothing) else {
                        self.queues.stalled.push(index);
                        return false;
                    };
                    let notice = if is_last {
                        script.notice(firing.number)
                    } else {
                        0
                    };
                    // SAFETY: the buffer has as many bytes. The operands may be read until the firing is through, by
                    // the promise of `NicQueue::prepare`.
                    unsafe { request.write(agenda.requested, notice, lent.address) };
                    *source = Some(lent);
                }
                let peer = agenda.queue.peer;
                let from = source.as_ref().map(|Source { address, .. }| *address);
                let op = Op::Write {
                    from: from.expect("it was lent").cast_const(),
                    bytes: request.bytes(),
                    to: &requests.to.remote,
                    offset: requests.room,
                    notice: Some(numbered(requests.notice, agenda.requested)),
                };
                // SAFETY: the buffer is held until the operation is over. The room belongs to this queue, and the
                // request before was answered, so the peer has read it.
                let why = match unsafe { self.wire.post(peer, op, self.flights.next()) } {
                    Ok(Posted::Taken) => {
                        let lent = source.take().and_then(|source| source.lent);
                        *asked = Asked::Yes {
                            since: Silence::new(),
                            question: None,
                        };
                        firing.under_way += 1;
                        agenda.requested += 1;
                        let along = None;
                        self.flights.add(Flight::Own {
                            queue: index,
                            along,
                            lent,
                        });
                        self.taken_by(peer);
                        return false;
                    }
                    Ok(Posted::Full) => self.refused_by(peer),
                    Err(error) => Some(error.to_string()),
                };
                match why {
                    None => self.queues.stalled.push(index),
                    Some(why) => self.spoil(index, &why),
                }
                false
            }
        }
    }

    /// Begins the requests of a firing whose pieces are delivered. Returns whether it has any.
    pub(super) fn begins_requests(&mut self, index: usize) -> bool {
        let Some((firing, _)) = self.queues.firing(index) else {
            return false;
        };
        let is_due = firing.under_way == 0 && firing.ring() == Ring::Whole;
        let has_any = script::<W>(&firing.program).requests.is_some();
        if has_any && is_due {
            firing.progress = Progress::Requesting {
                next: 0,
                asked: Asked::No(None),
            };
        }
        has_any && is_due
    }

    /// An answer has come for a queue.
    pub(super) fn answered_by(&mut self, index: usize) {
        let peer = self.queues.get(index).queue.peer;
        self.peers.contact.answers(Route::own(peer));
        self.queues.make_ready(index);
    }

    /// Looks for answers that have not come for too long. To be called regularly.
    pub(super) fn await_letters(&mut self) {
        let now = Instant::now();
        for index in 0..self.queues.all.numbers() {
            let Some((firing, queue)) = self.queues.firing(index) else {
                continue;
            };
            let Progress::Requesting {
                asked: Asked::Yes { since, question },
                ..
            } = &mut firing.progress
            else {
                continue;
            };
            // Its own operation is watched as all others are.
            let (peer, is_well) = (queue.peer, matches!(firing.fate, Fate::Well));
            if firing.under_way > 0 || !is_well || !since.look(now, self.peers.silence) {
                continue;
            }
            match *question {
                None => {
                    *question = Some(self.peers.departures.question(peer));
                    since.ends();
                }
                Some(asked) if self.peers.departures.is_answered(asked) => {
                    self.goes_wrong(index, "was not answered");
                    self.queues.make_ready(index);
                }
                Some(_) => {}
            }
        }
    }
}
