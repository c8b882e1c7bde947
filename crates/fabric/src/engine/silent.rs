//! What the engine does when a peer is silent: see [`contact`](super::contact).

use tidegate_hal::tell;

use super::contact::{Load, Way};
use super::departure::Stage;
use super::flights::Flight;
use super::program::script;
use super::state::Engine;
use crate::base::lock;
use crate::wire::Wire;

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
        let queues = &self.queues.all;
        let flights = self.flights.iter().filter_map(|flight| match flight {
            Flight::Own { queue, .. } => {
                let agenda = queues.at(*queue)?;
                let script = script::<W>(&agenda.firing()?.program);
                Some(operation(agenda.queue.peer, script.longest()))
            }
            // Perhaps a rail has not posted it yet: see below.
            Flight::Handed { .. } => None,
            Flight::Poisoning(poisoning) => Some(operation(poisoning.peer, 0)),
            Flight::Look(look) => Some(operation(look.peer, 0)),
        });
        let rails = self.rails.iter().flat_map(|rail| rail.under_way());
        let rails = rails.map(|(way, bytes)| {
            let (_, load) = operation(way.peer, bytes);
            (way, load)
        });
        let chained = queues.iter().filter_map(|agenda| {
            let load = Load {
                fired: lock(agenda.chained()?).under_way(&agenda.queue)?,
                ..Load::default()
            };
            Some((Way::own(agenda.queue.peer), load))
        });
        let over = self
            .peers
            .contact
            .awaits(flights.chain(rails).chain(chained));
        for (peer, limit) in over {
            match self.peers.stage(peer) {
                Stage::Here => self.peers.falls_silent(peer, limit),
                // When it has left, that has its time.
                Stage::Leaving => {}
                Stage::Left | Stage::Lost => self.strand(peer),
            }
        }
    }

    /// What is under way towards a peer that has left, or is lost, does not come to its end. It may still be read, so its queues
    /// cannot go on; but nobody is to wait for them, nor to stay awake for what nothing more is added to.
    fn strand(&mut self, peer: usize) {
        for index in self.queues.towards(peer) {
            if !self.queues.strand(index) {
                continue;
            }
            let queue = &self.queues.get(index).queue;
            if !queue.is_abandoned() {
                tell(|| {
                    tracing::warn!("what is under way to rank {peer}, which is gone, does not end")
                });
                queue.lose();
            }
        }
        let queues = &self.queues.all;
        self.flights.set_adrift(|flight| match flight {
            Flight::Own { queue, .. } | Flight::Handed { queue, .. } => {
                let agenda = queues.at(*queue);
                agenda.is_some_and(|agenda| agenda.queue.peer == peer)
            }
            Flight::Poisoning(poisoning) => poisoning.peer == peer,
            Flight::Look(look) => look.peer == peer,
        });
    }
}
