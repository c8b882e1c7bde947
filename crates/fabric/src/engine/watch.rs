//! What the engine does for queues that hardware fires: see [`chained`](super::chained).

use std::sync::atomic::Ordering;

use super::chained::{Chained, Failure};
use super::contact::Route;
use super::departure::{Stage, never_comes};
use super::queue::Queue;
use super::state::Engine;
use crate::base::lock;
use crate::wire::Wire;

impl<W: Wire> Engine<W> {
    /// Handles a failed work of a chain.
    pub(super) fn broke(&mut self, context: usize, why: &str) {
        self.heard += 1;
        let owner = self.queues.all.iter().find_map(|agenda| {
            let chained = agenda.chained()?;
            let at = lock(chained).chain.failed(context)?;
            Some((chained, at))
        });
        match owner {
            Some((chained, at)) => lock(chained).fail(at, &why),
            None => {
                let what = format_args!("a work that nobody waits for has failed: {why}");
                self.strays.drops(what);
            }
        }
    }

    /// Rings the bells of this rank, because peers' NICs may have added to its words.
    pub(super) fn written(&mut self) {
        self.heard += 1;
        let mut last = None;
        for agenda in self.queues.all.iter() {
            // Most ranks have one bell for all queues.
            if last != Some(agenda.queue.sleeper()) {
                last = Some(agenda.queue.sleeper());
                agenda.queue.wake();
            }
        }
    }

    /// Takes a queue that hardware fires as far as possible. Returns `false` when it has come to its end.
    pub(super) fn watch(&mut self, index: usize) -> bool {
        let Some(agenda) = self.queues.all.get(index) else {
            return false;
        };
        let queue = agenda.queue.clone();
        let chained = agenda.chained().expect("it is one of those").clone();
        // Read this before the doorbell: when the owner closes the queue, it has rung for the last time.
        let closed = queue.closed.load(Ordering::Acquire);
        let mut chained = lock(&chained);
        let (rung, poisoned) = queue.rung_for();
        let departure = queue.departure();
        if departure == Stage::Left && !self.is_broken() {
            let lets_go = chained.lets_go(&queue, rung);
            let all = chained.through == rung;
            drop(chained);
            if !lets_go {
                departure.says(false, &never_comes(queue.peer));
            }
            if !lets_go || (all && (closed || poisoned)) {
                self.give_up(index);
            }
            // Some programs may wait for a trigger slot.
            self.queues.set_busy(index, !queue.is_idle());
            return !closed;
        }
        if chained.is_over() {
            return !closed;
        }
        if departure != Stage::Lost {
            let waits = self.watch_firings(index, &mut chained, (&queue, rung));
            let is_over = (closed || poisoned) && !waits;
            if !is_over && !self.is_given_up(&mut chained, (&queue, rung)) {
                return true;
            }
            if let Some(Failure { why, .. }) = chained.failure() {
                // A firing that waits for a get fails when the peer has left, and not before.
                let what = format!("a transfer to rank {} failed: {why}", queue.peer);
                departure.says(true, &what);
            }
        }
        chained.ends();
        drop(chained);
        self.queues.set_busy(index, false);
        if self.is_broken() {
            // Works keep the memory that they name, and no peer can be told.
            queue.give_up();
        } else {
            self.give_up(index);
        }
        !closed
    }

    /// Looks which firings of a queue were struck for, and which are through. Returns whether some that were rung for
    /// are not.
    fn watch_firings(
        &mut self,
        index: usize,
        chained: &mut Chained<W>,
        (queue, rung): (&Queue, u64),
    ) -> bool {
        if self.is_broken() {
            chained.fail(chained.through, &"the wire is broken");
        }
        let (before, struck) = (chained.through, chained.strike(rung));
        if chained.advance(queue) | struck {
            self.heard += 1;
        }
        chained.starves();
        chained.listens(rung);
        let waits = rung > chained.through;
        if chained.through > before {
            self.peers.contact.answers(Route::own(queue.peer));
        }
        // A failed chain still needs attention, because firings before the failure may still come through.
        self.queues.set_busy(index, waits || chained.has_failed());
        self.full |= waits && chained.refused.is_some();
        waits
    }

    /// Whether a chain has failed, or nobody waits for it any more, and nothing more will come through.
    fn is_given_up(&mut self, chained: &mut Chained<W>, (queue, rung): (&Queue, u64)) -> bool {
        // While the peer is leaving, nothing counts as failed, and once it has left, nothing has failed. If it is
        // there, that must be known.
        let counts = queue.departure() == Stage::Here
            && chained.failure().is_some_and(|failure| {
                let ask = || self.peers.departures.question(queue.peer);
                let question = *failure.question.get_or_insert_with(ask);
                self.is_broken() || self.peers.departures.is_answered(question)
            });
        (counts || queue.is_abandoned()) && (self.is_broken() || chained.has_come_to_rest(rung))
    }
}
