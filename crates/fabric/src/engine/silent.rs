//! What the engine does when a peer is silent: see [`contact`](super::contact).

use std::time::Duration;

use tidegate_hal::tell;

use super::contact::{Load, Silent, Way};
use super::departure::Stage;
use super::firing::Flight;
use super::program::script;
use super::state::Engine;
use crate::base::lock;
use crate::wire::Wire;

/// Why a peer that does not answer is a failure.
fn silent(peer: usize, limit: Duration) -> String {
    format!("the NIC of rank {peer} has not answered for {limit:?}")
}

impl<W: Wire> Engine<W> {
    /// Looks for how long peers have said nothing to what the wire has taken.
    pub(super) fn await_answers(&mut self) {
        let operation = |peer: usize, bytes: u64| {
            let load = Load {
                operation: bytes,
                ..Load::default()
            };
            (Way::own(peer), load)
        };
        let flights = self.flights.iter().filter_map(|flight| match flight {
            Flight::Of(index, _) | Flight::With(index, ..) => {
                let agenda = self.queues.at(*index)?;
                let script = script::<W>(&agenda.firing.as_ref()?.program);
                Some(operation(agenda.queue.peer, script.longest()))
            }
            // Perhaps a rail has not posted it yet: see below.
            Flight::Handed(..) => None,
            Flight::Poisoning(poisoning) => Some(operation(poisoning.peer, 0)),
            Flight::Look(look) => Some(operation(look.peer, 0)),
        });
        let rails = self.rails.iter().flat_map(|rail| rail.under_way());
        let rails = rails.map(|(way, bytes)| {
            let (_, load) = operation(way.peer, bytes);
            (way, load)
        });
        let chained = self.queues.iter().filter_map(|agenda| {
            let load = Load {
                fired: lock(agenda.chained.as_ref()?).under_way(&agenda.queue)?,
                ..Load::default()
            };
            Some((Way::own(agenda.queue.peer), load))
        });
        let over = self.contact.awaits(flights.chain(rails).chain(chained));
        for (peer, limit) in over {
            match self.departures.of(peer).stage() {
                Stage::Here => self.falls_silent(peer, limit),
                // When it has left, that has its time.
                Stage::Leaving => {}
                Stage::Left | Stage::Lost => self.strand(peer),
            }
        }
    }

    /// A peer says nothing for too long: that is a failure if it is there.
    pub(super) fn falls_silent(&mut self, peer: usize, limit: Duration) {
        if self.silent.iter().all(|silent| silent.peer != peer) {
            self.silent.push(Silent {
                peer,
                question: self.departures.question(peer),
                why: silent(peer, limit),
            });
        }
    }

    /// Whether silent peers are there.
    pub(super) fn judge_silent(&mut self) {
        let Engine {
            silent, departures, ..
        } = self;
        silent.retain(|silent| departures.of(silent.peer).stage() == Stage::Here);
        let is_there = |silent: &Silent| self.departures.is_answered(silent.question);
        if let Some(at) = self.silent.iter().position(is_there) {
            let why = self.silent.swap_remove(at).why;
            self.failure.get_or_insert(why);
        }
    }

    /// What is under way towards a peer that has left, or is lost, does not come to its end. It may still be read, so its queues
    /// cannot go on; but nobody is to wait for them, nor to stay awake for what nothing more is added to.
    fn strand(&mut self, peer: usize) {
        for index in 0..self.queues.numbers() {
            let Some(agenda) = self.queues.get(index) else {
                continue;
            };
            let queue = &agenda.queue;
            let waits = agenda.firing.as_mut().filter(|one| one.under_way > 0);
            let Some(firing) = waits.filter(|_| queue.peer == peer) else {
                continue;
            };
            if !std::mem::replace(&mut firing.is_stranded, true) {
                self.stranded += 1;
            }
            if !queue.is_abandoned() {
                tell(|| {
                    tracing::warn!("what is under way to rank {peer}, which is gone, does not end")
                });
                queue.lose();
            }
        }
        let adrift = self.flights.numbered();
        let adrift = adrift.filter(|(_, flight)| match flight {
            Flight::Of(index, _) | Flight::With(index, ..) | Flight::Handed(index, _) => {
                let agenda = self.queues.at(*index);
                agenda.is_some_and(|agenda| agenda.queue.peer == peer)
            }
            Flight::Poisoning(poisoning) => poisoning.peer == peer,
            Flight::Look(look) => look.peer == peer,
        });
        self.adrift.extend(adrift.map(|(cookie, _)| cookie));
    }
}
