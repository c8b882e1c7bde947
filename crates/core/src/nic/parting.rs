//! How a rank leaves that peers reach by the NIC.
//!
//! # Model
//!
//! A rank's endpoint ends with the rank, and then transfers to it fail. So when everything that it sent has arrived, a
//! rank says that it *leaves* ([`Message::Leaves`]). It keeps its endpoint until the peers have heard that, or have
//! said the same. From then on a peer does not count a failed transfer to this rank as a failure. Only then does the
//! rank leave the control plane.
//!
//! # Failure
//!
//! A peer that is stopped does not answer, so a rank waits only for [a limited time](WHILE). Then the peer's NIC sees
//! transfers fail, and asks the control plane about the rank ([`tidegate_hal::nic::Connection::asks`]).

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use tidegate_hal::control::Control;
use tidegate_hal::tell;

use crate::ground::lock;
use crate::message::Message;
use tidegate_boot::starter::in_words;

/// How long a rank that leaves keeps its endpoint for peers that do not answer.
const WHILE: Duration = Duration::from_secs(2);

/// The peers that reach this rank by the NIC.
#[derive(Default)]
pub(crate) struct Parting {
    reaching: Mutex<Reaching>,
    changed: Condvar,
}

#[derive(Default)]
struct Reaching {
    all: BTreeSet<usize>,
    /// The peers for which this rank's endpoint may end: they have heard that this rank leaves, or no longer reach it.
    prepared: BTreeSet<usize>,
    /// Whether this rank has told all peers that were not prepared that it leaves.
    leaves: bool,
}

impl Parting {
    /// Notes that this rank and a peer reach each other.
    pub(crate) fn reaches(&self, peer: usize) {
        lock(&self.reaching).all.insert(peer);
    }

    /// The names of those peers.
    pub(crate) fn peers(&self, control: &dyn Control) -> String {
        let reaching = lock(&self.reaching);
        let others = reaching.all.iter().copied();
        let others: Vec<_> = others.filter(|peer| *peer != control.rank()).collect();
        in_words(&others)
    }

    /// Notes that a peer has heard that this rank leaves, or leaves itself, or is gone.
    pub(crate) fn prepares(&self, peer: usize) {
        lock(&self.reaching).prepared.insert(peer);
        self.changed.notify_all();
    }

    /// Notes that a peer leaves, and returns whether it needs an answer. It needs none if this rank tells it the same,
    /// as at the end of most jobs.
    pub(crate) fn is_to_answer(&self, peer: usize) -> bool {
        let mut reaching = lock(&self.reaching);
        reaching.prepared.insert(peer);
        let is_told = reaching.leaves && reaching.all.contains(&peer);
        drop(reaching);
        self.changed.notify_all();
        !is_told
    }

    /// Tells the peers that this rank leaves, and waits until they have heard it.
    pub(crate) fn leave(&self, control: &dyn Control) {
        if !self.leave_within(WHILE, control) {
            tell(|| tracing::debug!("not every peer has heard that this rank leaves"));
        }
    }

    /// Returns whether they have heard it within the limit.
    fn leave_within(&self, limit: Duration, control: &dyn Control) -> bool {
        let me = control.rank();
        let waits = |reaching: &mut Reaching| {
            let (all, prepared) = (&reaching.all, &reaching.prepared);
            let mut missing = all.difference(prepared).filter(|peer| **peer != me);
            missing.next().is_some()
        };
        let mut reaching = lock(&self.reaching);
        reaching.leaves = true;
        if !waits(&mut reaching) {
            return true;
        }
        let to: Vec<_> = reaching.all.difference(&reaching.prepared).collect();
        let to: Vec<_> = to.into_iter().copied().filter(|peer| *peer != me).collect();
        drop(reaching);
        // If the control plane is closed, its end tells the peers.
        if control
            .notify(Some(&to), &Message::Leaves.encode())
            .is_err()
        {
            return true;
        }
        let reaching = lock(&self.reaching);
        let waited = self.changed.wait_timeout_while(reaching, limit, waits);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tidegate_hal::control::Event;

    use super::*;

    /// Rank 0 of three reaches both others, and leaves. `answers` says which of them answer.
    fn leaves(answers: [bool; 2], limit: Duration) -> bool {
        let controls = tidegate_boot::local(3);
        let parting = Arc::new(Parting::default());
        (0..3).for_each(|peer| parting.reaches(peer));
        for (peer, answers) in (1..).zip(answers) {
            let parting = parting.clone();
            controls[peer].subscribe(Arc::new(move |event| {
                let said = match event {
                    Event::Message { from: 0, bytes } => Message::decode(&bytes),
                    _ => None,
                };
                if answers && matches!(said, Some(Message::Leaves)) {
                    parting.prepares(peer);
                }
            }));
        }
        parting.leave_within(limit, &controls[0])
    }

    #[test]
    fn a_rank_waits_for_those_that_reach_it_but_not_for_ever() {
        assert!(leaves([true, true], Duration::from_secs(600)));
        assert!(!leaves([true, false], Duration::from_millis(100)));
    }

    #[test]
    fn ranks_that_leave_together_need_no_answers() {
        let controls = tidegate_boot::local(2);
        let parting = Parting::default();
        assert!(parting.is_to_answer(1), "it does not leave yet");
        let parting = Parting::default();
        (0..2).for_each(|peer| parting.reaches(peer));
        assert!(!parting.leave_within(Duration::ZERO, &controls[0]));
        assert!(!parting.is_to_answer(1), "it was told");
        assert!(parting.leave_within(Duration::ZERO, &controls[0]));
        // A peer that was not told hears it by the answer.
        assert!(parting.is_to_answer(2));
    }

    #[test]
    fn a_rank_does_not_wait_for_those_that_are_gone() {
        let controls = tidegate_boot::local(2);
        let parting = Parting::default();
        (0..2).for_each(|peer| parting.reaches(peer));
        parting.prepares(1);
        assert!(parting.leave_within(Duration::ZERO, &controls[0]));
    }
}
