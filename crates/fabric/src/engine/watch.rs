//! What the engine does for queues that hardware fires: see [`chained`](super::chained).

use std::sync::atomic::Ordering;

use tidegate_hal::tell;

use super::chained::Failure;
use super::contact::Way;
use super::departure::{Stage, never_comes};
use super::state::Engine;
use crate::base::lock;
use crate::wire::Wire;

impl<W: Wire> Engine<W> {
    /// A work of a chain has failed.
    pub(super) fn broke(&mut self, context: usize, why: &str) {
        self.heard += 1;
        let owner = self.queues.iter().find_map(|agenda| {
            let chained = agenda.chained.as_ref()?;
            let at = lock(chained).chain.failed(context)?;
            Some((chained, at))
        });
        match owner {
            Some((chained, at)) => lock(chained).fail(at, &why),
            None => tell(|| tracing::warn!("a work that nobody waits for has failed: {why}")),
        }
    }

    /// Peers' NICs may have added to words of this rank.
    pub(super) fn written(&mut self) {
        self.heard += 1;
        let mut last = None;
        for agenda in self.queues.iter() {
            // One bell a rank, mostly.
            if last != Some(agenda.queue.sleeper()) {
                last = Some(agenda.queue.sleeper());
                agenda.queue.wake();
            }
        }
    }

    /// Takes a queue that hardware fires as far as it goes; `false` when it has come to its end.
    pub(super) fn watch(&mut self, index: usize) -> bool {
        let Some(agenda) = self.queues.get(index) else {
            return false;
        };
        let (queue, chained) = (agenda.queue.clone(), agenda.chained.clone());
        let chained = chained.expect("it is one of those");
        // Before the doorbell: whoever closes it has rung all that it will ever ring.
        let closed = queue.closed.load(Ordering::Acquire);
        let mut chained = lock(&chained);
        let (rung, poisoned) = queue.rung_for();
        let departure = queue.departure();
        if departure == Stage::Left && !self.broken {
            let lets_go = chained.lets_go(&queue, rung);
            let all = chained.through == rung;
            drop(chained);
            if !lets_go {
                departure.says(false, &never_comes(queue.peer));
            }
            if !lets_go || (all && (closed || poisoned)) {
                self.give_up(index);
            }
            // What waits for a trigger slot.
            let busy = !queue.is_idle();
            if let Some(agenda) = self.queues.get(index) {
                agenda.busy = busy;
            }
            return !closed;
        }
        if chained.over {
            return !closed;
        }
        if departure == Stage::Lost {
            // Works keep what they name.
            chained.over = true;
            chained.chain.cancel();
            drop(chained);
            if let Some(agenda) = self.queues.get(index) {
                agenda.busy = false;
            }
            self.give_up(index);
            return !closed;
        }
        if self.broken {
            let through = chained.through;
            chained.fail(through, &"the wire is broken");
        }
        let (before, struck) = (chained.through, chained.strike(rung));
        if chained.advance(&queue) | struck {
            self.heard += 1;
        }
        chained.starves();
        chained.listens(rung);
        let waits = rung > chained.through;
        if chained.through > before {
            self.contact.answers(Way::own(queue.peer));
        }
        if let Some(agenda) = self.queues.get(index) {
            // A failure is looked after, too: what came before it may still come through.
            agenda.busy = waits || (chained.failed.is_some() && !chained.over);
        }
        self.full |= waits && chained.refused.is_some();
        // Towards a peer that is leaving nothing is said to have failed: when it has left, it has not. Of one that is
        // there, that must be known.
        let counts = departure == Stage::Here
            && chained.failed.as_mut().is_some_and(|failure| {
                let ask = || self.departures.question(queue.peer);
                let question = *failure.question.get_or_insert_with(ask);
                self.broken || self.departures.is_answered(question)
            });
        let failed = counts || queue.is_abandoned();
        let is_over = (closed || poisoned) && !waits;
        if !is_over && !(failed && (self.broken || chained.has_come_to_rest(rung))) {
            return true;
        }
        if let Some(Failure { why, .. }) = &chained.failed {
            // What waits for a get has failed when the peer has left, and not before.
            let what = format!("a transfer to rank {} failed: {why}", queue.peer);
            departure.says(true, &what);
        }
        chained.over = true;
        chained.chain.cancel();
        drop(chained);
        if let Some(agenda) = self.queues.get(index) {
            agenda.busy = false;
        }
        if self.broken {
            // Works keep what they name; nobody can be told.
            queue.give_up();
        } else {
            self.give_up(index);
        }
        !closed
    }
}
