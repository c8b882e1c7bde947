//! What has become of operations, and what that is to the firings that they belong to.

use super::contact::Way;
use super::departure::Stage;
use super::flights::Flight;
use super::gather::Lent;
use super::program::script;
use super::state::Engine;
use crate::wire::Wire;

impl<W: Wire> Engine<W> {
    /// An operation is over.
    pub(super) fn landed(&mut self, cookie: u64, failed: Option<String>) {
        self.heard += 1;
        let came = |lent: Option<Lent>| {
            if let (Some(lent), None) = (lent, &failed) {
                // SAFETY: `NicQueue::prepare` promised where gets write, until the firing is through, which it is not
                // before `over`.
                unsafe { lent.came::<W>() };
            }
        };
        match self.flights.take(cookie) {
            Some(Flight::Own { queue, along, lent }) => {
                came(lent);
                if let Some(along) = along {
                    // That signal is not posted again either. An operation that is reported as failed may have arrived
                    // all the same, and a second quantum would expose memory that is in use.
                    self.over(along, 0, failed.clone());
                }
                self.over(queue, 0, failed);
            }
            Some(Flight::Handed { queue, rail }) => self.over(queue, rail, failed),
            Some(Flight::Poisoning(poisoning)) => {
                self.peers.contact.answers(Way::own(poisoning.peer));
                self.told(poisoning, failed.as_deref());
            }
            Some(Flight::Look(look)) => self.looked(&look, failed),
            // What was under way when the wire broke is nobody's any more.
            None if self.is_broken() => {}
            None => self
                .strays
                .drops("an operation is over that nobody has begun"),
        }
    }

    /// An operation of a queue's firing is over, which went by this rail.
    pub(super) fn over(&mut self, index: usize, rail: usize, failed: Option<String>) {
        let Some((firing, queue)) = self.queues.firing(index) else {
            debug_assert!(self.is_broken(), "a queue stays as long as it has a firing");
            return;
        };
        let peer = queue.peer;
        let way = Way { peer, rail };
        firing.lands(rail);
        let in_parts = script::<W>(&firing.program).parts.is_some();
        let contact = &mut self.peers.contact;
        if failed.is_some() || !(firing.has_signalled() || in_parts) {
            contact.answers(way);
        } else {
            contact.is_through(way);
            if firing.under_way > 0 {
                contact.asks(peer);
            }
        }
        if let Some(why) = failed {
            self.goes_wrong(index, &format!("failed: {why}"));
        }
        self.queues.make_ready(index);
    }

    /// A rail has not begun what it was handed, and will not: which is no answer of the peer's.
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
}
