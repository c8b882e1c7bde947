//! What has become of operations, and what that is to the firings that they belong to.

use super::agenda::Agenda;
use super::contact::Way;
use super::departure::Stage;
use super::firing::{Firing, Flight};
use super::gather::Lent;
use super::program::script;
use super::state::Engine;
use crate::wire::Wire;

impl<W: Wire> Engine<W> {
    /// An operation is over, whether or not somebody waits for it.
    fn lands(&mut self, cookie: u64) {
        if !self.adrift.is_empty() {
            self.adrift.remove(&(cookie as usize));
        }
    }

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
        self.lands(cookie);
        match self.flights.take(cookie as usize) {
            Some(Flight::Of(index, lent)) => {
                came(lent);
                self.over(index, failed);
            }
            Some(Flight::With(index, held, lent)) => {
                came(lent);
                // The signal is not posted again either. An operation that is reported as failed may have arrived all
                // the same, and a second quantum would expose memory that is in use.
                self.over(held.queue, failed.clone());
                self.over(index, failed);
            }
            Some(Flight::Handed(index, rail)) => {
                self.comes_back(index);
                self.over_by(index, rail, failed);
            }
            Some(Flight::Poisoning(poisoning)) => {
                self.contact.answers(Way::own(poisoning.peer));
                self.told(poisoning, failed.as_deref());
            }
            Some(Flight::Look(look)) => self.looked(&look, failed),
            // What was under way when the wire broke is nobody's any more.
            None if self.broken => {}
            None => self
                .strays
                .drops("an operation is over that nobody has begun"),
        }
    }

    /// An operation of a queue is over.
    pub(super) fn over(&mut self, index: usize, failed: Option<String>) {
        self.over_by(index, 0, failed);
    }

    /// An operation of a queue, which went by this rail, is over.
    fn over_by(&mut self, index: usize, rail: usize, failed: Option<String>) {
        let agenda = self.queues.get(index);
        let of_firing = agenda.and_then(|agenda| Some((agenda.firing.as_mut()?, &agenda.queue)));
        let Some((firing, queue)) = of_firing else {
            debug_assert!(self.broken, "a queue stays as long as it has a firing");
            return;
        };
        let peer = queue.peer;
        let way = Way { peer, rail };
        firing.under_way -= 1;
        let in_parts = script::<W>(&firing.program).parts.is_some();
        if failed.is_some() || !(firing.signalled || in_parts) {
            self.contact.answers(way);
        } else {
            self.contact.is_through(way);
            if firing.under_way > 0 {
                self.contact.asks(peer);
            }
        }
        if let Some(why) = failed {
            self.goes_wrong(index, &format!("failed: {why}"));
        }
        self.make_ready(index);
    }

    /// What a rail was handed is over, for a firing.
    fn comes_back(&mut self, index: usize) -> &mut Firing {
        self.handed -= 1;
        let agenda = self
            .queues
            .get(index)
            .expect("it stays as long as it has a firing");
        let firing = agenda
            .firing
            .as_mut()
            .expect("it stays until nothing is under way");
        firing.by_rails -= 1;
        firing
    }

    /// A rail has not begun what it was handed, and will not: which is no answer of the peer's.
    pub(super) fn unsent(&mut self, cookie: u64, why: &str) {
        self.lands(cookie);
        let Some(Flight::Handed(index, _)) = self.flights.take(cookie as usize) else {
            debug_assert!(self.broken, "nothing else is handed over");
            return;
        };
        self.heard += 1;
        self.comes_back(index).under_way -= 1;
        let has_left = |agenda: &Agenda<W>| agenda.queue.departure() == Stage::Left;
        if !self.queues.at(index).is_some_and(has_left) {
            self.spoil(index, why);
        }
        self.make_ready(index);
    }
}
