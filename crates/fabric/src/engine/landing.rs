//! Ends of operations, and what they mean for the firings that the operations belong to. For operations that do not
//! end, see [`contact`](super::contact).

use tidegate_hal::tell;

use super::contact::{Load, Route};
use super::departure::Stage;
use super::firing::{Flight, Progress};
use super::gather::Lent;
use super::program::script;
use super::state::Engine;
use crate::base::lock;
use crate::wire::Wire;

impl<W: Wire> Engine<W> {
    /// Handles the end of an operation.
    pub(super) fn landed(&mut self, cookie: u64, failed: Option<String>) {
        self.heard += 1;
        let came = |lent: Option<Lent>| {
            if let (Some(lent), None) = (lent, &failed) {
                // SAFETY: `NicQueue::prepare` promised the destinations of gets until the firing is through, and that
                // is not before `over`.
                unsafe { lent.came::<W>() };
            }
        };
        match self.flights.take(cookie) {
            Some(Flight::Own { queue, along, lent }) => {
                came(lent);
                if let Some(along) = along {
                    // The signal that went along is not posted again either. A failed operation may have arrived all
                    // the same, and a second quantum would expose memory that is in use.
                    self.over(along, 0, failed.clone());
                }
                self.over(queue, 0, failed);
            }
            Some(Flight::Handed { queue, rail }) => self.over(queue, rail, failed),
            Some(Flight::Poisoning(poisoning)) => {
                self.peers.contact.answers(Route::own(poisoning.peer));
                self.told(poisoning, failed.as_deref());
            }
            Some(Flight::Look(look)) => self.looked(&look, failed),
            // Operations that were in progress when the wire broke belong to nobody any more.
            None if self.is_broken() => {}
            None => self
                .strays
                .drops("an operation is over that nobody has begun"),
        }
    }

    /// Handles the end of an operation of a queue's firing, which went by this rail.
    pub(super) fn over(&mut self, index: usize, rail: usize, failed: Option<String>) {
        let Some((firing, queue)) = self.queues.firing(index) else {
            debug_assert!(self.is_broken(), "a queue stays as long as it has a firing");
            return;
        };
        let peer = queue.peer;
        let route = Route { peer, rail };
        firing.lands(rail);
        // These operations bring notices, so their ends say nothing about the peer.
        let in_parts = script::<W>(&firing.program).parts.is_some()
            || matches!(firing.progress, Progress::Requesting { .. });
        let contact = &mut self.peers.contact;
        if failed.is_some() || !(firing.has_signalled() || in_parts) {
            contact.answers(route);
        } else {
            contact.is_through(route);
            if firing.under_way > 0 {
                contact.asks(peer);
            }
        }
        if let Some(why) = failed {
            self.goes_wrong(index, &format!("failed: {why}"));
        }
        self.queues.make_ready(index);
    }

    /// Handles an operation that a rail never began. That is no answer of the peer.
    pub(super) fn unsent(&mut self, cookie: u64, why: &str) {
        let Some(Flight::Handed { queue: index, rail }) = self.flights.take(cookie) else {
            debug_assert!(self.is_broken(), "nothing else is handed over");
            return;
        };
        self.heard += 1;
        let (firing, queue) = self
            .queues
            .firing(index)
            .expect("it stays until nothing is under way");
        firing.lands(rail);
        if queue.departure() != Stage::Left {
            self.spoil(index, why);
        }
        self.queues.make_ready(index);
    }

    /// Looks how long peers have been silent about operations that the wire has accepted.
    pub(super) fn await_answers(&mut self) {
        self.await_letters();
        let queues = &self.queues.all;
        let operation = |peer, bytes| (Route::own(peer), Load::operation(bytes));
        let flights = self.flights.iter().filter_map(|flight| match flight {
            Flight::Own { queue, .. } => {
                let agenda = queues.at(*queue)?;
                let script = script::<W>(&agenda.firing()?.program);
                Some(operation(agenda.queue.peer, script.longest()))
            }
            // A rail may not have posted it yet: see below.
            Flight::Handed { .. } => None,
            Flight::Poisoning(poisoning) => Some(operation(poisoning.peer, 0)),
            Flight::Look(look) => Some(operation(look.peer, 0)),
        });
        let rails = self.rails.iter().flat_map(|rail| rail.under_way());
        let rails = rails.map(|(route, bytes)| (route, Load::operation(bytes)));
        let chained = queues.iter().filter_map(|agenda| {
            let fired = lock(agenda.chained()?).under_way(&agenda.queue)?;
            Some((Route::own(agenda.queue.peer), Load::fired(fired)))
        });
        let over = self
            .peers
            .contact
            .awaits(flights.chain(rails).chain(chained));
        for (peer, limit) in over {
            match self.peers.stage(peer) {
                Stage::Here => self.peers.falls_silent(peer, limit),
                // The operations get their full time when the peer has left.
                Stage::Leaving => {}
                Stage::Left | Stage::Lost => self.strand(peer),
            }
        }
    }

    /// Operations towards a peer that has left, or is lost, do not end. They may still access memory, so their firings
    /// stay, and keep the programs. But the queues give up, because other queues need the trigger slots. Nobody waits
    /// for the operations, and no thread stays awake for them.
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
            }
            // The other programs have no operation in progress, and the peer is told nothing.
            drop(queue.give_up());
        }
        for rail in &self.rails {
            rail.set_adrift(peer);
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
