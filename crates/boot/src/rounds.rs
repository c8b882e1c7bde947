//! The bookkeeping of collective exchanges, without any transport.
//!
//! # Model
//!
//! Each rank numbers its exchanges from 0, in the order of its calls. A round has one entry for each rank. The owner of
//! a [`Rounds`] feeds it contributions and ends in one order, and its verdicts depend only on that order. So ranks that
//! see the same order, which the hub makes, come to the same verdict without asking each other.
//!
//! # Failure
//!
//! A round fails when two labels differ, or when a rank ends that has not contributed. Both are final, because an entry
//! is filled once, and no rank comes back.

use std::collections::VecDeque;
use std::sync::Arc;
use tidegate_hal::control::ControlError;

/// One filled entry of a round.
#[derive(Debug)]
pub(crate) struct Contribution<P> {
    label: Arc<str>,
    /// The rank's contribution.
    pub(crate) payload: P,
}

/// The state of a round, as one rank sees it.
pub(crate) enum Verdict<'a, P> {
    /// Some ranks have not contributed.
    Pending,
    /// All ranks have contributed. The entries are in the order of ranks.
    Complete(Vec<&'a Contribution<P>>),
    /// The round can never complete.
    Failed(ControlError),
}

/// A contribution that no correct peer sends: to an entry that is filled, to a round that no rank can have reached, or
/// after the rank's end.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("contribution of rank {rank} to round {round} is out of order")]
pub(crate) struct OutOfOrder {
    rank: usize,
    round: u64,
}

#[derive(Debug)]
struct Ended {
    rank: usize,
    /// The rank that really ended. A rank can be unreachable because another rank ended.
    blamed: usize,
    reason: String,
}

/// A round that is not forgotten yet.
#[derive(Debug)]
struct Open<P> {
    entries: Vec<Option<Contribution<P>>>,
    /// How many entries are filled.
    come: usize,
    /// Whether all labels are the same.
    alike: bool,
}

#[derive(Debug)]
pub(crate) struct Rounds<P> {
    size: usize,
    /// Number of the round at the front of `open`.
    first: u64,
    open: VecDeque<Open<P>>,
    /// The ended ranks in the order of their ends, so that every rank blames the same one.
    ended: Vec<Ended>,
}

impl<P> Rounds<P> {
    pub(crate) fn new(size: usize) -> Self {
        Self {
            size,
            first: 0,
            open: VecDeque::new(),
            ended: Vec::new(),
        }
    }

    /// Fills the entry of `rank` in `round`.
    ///
    /// A rank can be at most one round ahead of another, since it needs all contributions to finish a round. So at most
    /// two rounds are open, and all others are refused. This bounds the memory.
    pub(crate) fn contribute(
        &mut self,
        rank: usize,
        round: u64,
        label: Arc<str>,
        payload: P,
    ) -> Result<(), OutOfOrder> {
        let refused = OutOfOrder { rank, round };
        let index = round
            .checked_sub(self.first)
            .ok_or(OutOfOrder { rank, round })?;
        if index > 1 || rank >= self.size || self.has_ended(rank) {
            return Err(refused);
        }
        let index = index as usize;
        while self.open.len() <= index {
            self.open.push_back(Open {
                entries: (0..self.size).map(|_| None).collect(),
                come: 0,
                alike: true,
            });
        }
        let open = &mut self.open[index];
        if open.entries[rank].is_some() {
            return Err(refused);
        }
        let other = open.entries.iter().flatten().next();
        open.alike &= other.is_none_or(|other| other.label == label);
        open.come += 1;
        open.entries[rank] = Some(Contribution { label, payload });
        Ok(())
    }

    /// Whether a round is decided, so that waiting calls should look at its verdict.
    pub(crate) fn is_decided(&self, round: u64) -> bool {
        let index = round
            .checked_sub(self.first)
            .and_then(|index| usize::try_from(index).ok());
        let open = index.and_then(|index| self.open.get(index));
        open.is_some_and(|open| open.come == self.size || !open.alike)
    }

    /// Notes that `rank` contributes nothing any more. If it is called again, the first reason stays.
    pub(crate) fn end(&mut self, rank: usize, reason: impl Into<String>) {
        self.end_because_of(rank, rank, reason);
    }

    /// Like [`Rounds::end`], but exchanges that fail because of it name `blamed`.
    pub(crate) fn end_because_of(&mut self, rank: usize, blamed: usize, reason: impl Into<String>) {
        if !self.has_ended(rank) {
            self.ended.push(Ended {
                rank,
                blamed,
                reason: reason.into(),
            });
        }
    }

    pub(crate) fn has_ended(&self, rank: usize) -> bool {
        self.ended.iter().any(|ended| ended.rank == rank)
    }

    /// The verdict for a rank that calls `label` in `round`.
    pub(crate) fn verdict(&self, label: &str, round: u64) -> Verdict<'_, P> {
        let entries = round
            .checked_sub(self.first)
            .and_then(|index| self.open.get(usize::try_from(index).ok()?))
            .map(|open| &open.entries);
        let present: Vec<_> = entries.into_iter().flatten().flatten().collect();
        let entry = |rank: usize| entries.and_then(|entries| entries[rank].as_ref());
        let differs = |rank: &usize| entry(*rank).is_some_and(|c| *c.label != *label);
        if let Some(rank) = (0..self.size).find(differs) {
            return Verdict::Failed(ControlError::Mismatch {
                rank,
                mine: label.to_owned(),
                theirs: entry(rank).map(|c| c.label.to_string()).unwrap_or_default(),
            });
        }
        if present.len() == self.size {
            return Verdict::Complete(present);
        }
        match self.ended.iter().find(|ended| entry(ended.rank).is_none()) {
            Some(ended) => Verdict::Failed(ControlError::PeerLost {
                rank: ended.blamed,
                label: label.to_owned(),
                reason: ended.reason.clone(),
            }),
            None => Verdict::Pending,
        }
    }

    /// Forgets all rounds before `round`, since no call will ask for them.
    pub(crate) fn forget_before(&mut self, round: u64) {
        while self.first < round {
            self.open.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn label(text: &str) -> Arc<str> {
        Arc::from(text)
    }

    #[test]
    fn completes_in_rank_order_whatever_the_order_of_arrival() {
        let mut rounds = Rounds::new(3);
        for rank in [2, 0, 1] {
            assert!(matches!(rounds.verdict("a", 0), Verdict::Pending));
            rounds.contribute(rank, 0, label("a"), rank * 10).unwrap();
        }
        let Verdict::Complete(all) = rounds.verdict("a", 0) else {
            panic!("complete")
        };
        assert_eq!(
            all.iter().map(|c| c.payload).collect::<Vec<_>>(),
            [0, 10, 20]
        );
    }

    #[test]
    fn a_waiting_call_looks_when_all_have_come_or_two_differ() {
        let mut rounds = Rounds::new(3);
        rounds.contribute(2, 0, label("a"), ()).unwrap();
        rounds.contribute(0, 0, label("a"), ()).unwrap();
        assert!(!rounds.is_decided(0));
        rounds.contribute(1, 0, label("a"), ()).unwrap();
        assert!(rounds.is_decided(0) && !rounds.is_decided(1));
        rounds.contribute(1, 1, label("a"), ()).unwrap();
        rounds.contribute(0, 1, label("b"), ()).unwrap();
        assert!(rounds.is_decided(1));
        rounds.forget_before(1);
        assert!(!rounds.is_decided(0) && rounds.is_decided(1));
    }

    #[test]
    fn refuses_a_second_contribution_and_far_rounds() {
        let mut rounds = Rounds::new(2);
        rounds.contribute(0, 0, label("a"), ()).unwrap();
        assert!(rounds.contribute(0, 0, label("a"), ()).is_err());
        rounds.contribute(0, 1, label("a"), ()).unwrap();
        assert!(rounds.contribute(0, 2, label("a"), ()).is_err());
        assert!(rounds.contribute(7, 0, label("a"), ()).is_err());
        rounds.forget_before(1);
        assert!(rounds.contribute(1, 0, label("a"), ()).is_err());
        rounds.contribute(0, 2, label("a"), ()).unwrap();
    }

    proptest! {
        /// A verdict is final, and ranks with different labels never both succeed.
        #[test]
        fn verdicts_are_final(steps in prop::collection::vec((0usize..4, 0u8..8), 0..24)) {
            let mut rounds = Rounds::new(4);
            let mut last = [None; 2];
            for (rank, kind) in steps {
                match kind {
                    0 => rounds.end(rank, "gone"),
                    1 => { let _ = rounds.contribute(rank, 0, label("b"), ()); }
                    _ => { let _ = rounds.contribute(rank, 0, label("a"), ()); }
                }
                let now = ["a", "b"].map(|label| match rounds.verdict(label, 0) {
                    Verdict::Pending => None,
                    Verdict::Complete(_) => Some(true),
                    Verdict::Failed(_) => Some(false),
                });
                for (last, now) in last.iter().zip(now) {
                    prop_assert!(last.is_none() || *last == now);
                }
                last = now;
                prop_assert!(last != [Some(true), Some(true)]);
            }
        }
    }
}
