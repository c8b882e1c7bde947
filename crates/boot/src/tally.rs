//! What some of the ranks have said in a round, in so far as its outcome may have to say it.
//!
//! Tallies of any sets of ranks can be merged, in any order and grouping, and a rank may be in several of them: the
//! result is the tally of all of them. So a decision can be prepared in many places and made in one, and what may have
//! been lost on the way can be said again.

use crate::fields::MAX_LABEL;
use crate::set::RankSet;
use crate::votes::{Call, Outcome, Vote};
use serde::{Deserialize, Serialize};
use tidegate_hal::control::{Decision, Packet};

/// The lowest of some ranks, and the lowest one whose value differs from that one's.
///
/// These two suffice to compare all ranks with the lowest one. Of two sets of ranks, one has the lower lowest rank. The
/// lowest rank of the other set whose value differs from that one's is the other set's lowest, if that one differs.
/// Otherwise the two lowest ranks have the same value, and it is the one that differs in the other set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Lowest<V> {
    first: (u32, V),
    other: Option<(u32, V)>,
}

impl<V> Lowest<V> {
    fn of(rank: u32, value: V) -> Self {
        Self {
            first: (rank, value),
            other: None,
        }
    }

    fn merge(&mut self, mut that: Self, is_same: impl Fn(&V, &V) -> bool) {
        if that.first.0 < self.first.0 {
            std::mem::swap(self, &mut that);
        }
        let theirs = match is_same(&self.first.1, &that.first.1) {
            true => that.other,
            false => Some(that.first),
        };
        let both = self.other.take().into_iter().chain(theirs);
        self.other = both.min_by_key(|(rank, _)| *rank);
    }
}

/// The objections of the least kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Objections {
    kind: u8,
    /// The lowest ranks that object, in ascending order.
    ranks: Vec<u32>,
    /// The reason of the first of them.
    #[serde(with = "crate::fields::bytes")]
    reason: Vec<u8>,
}

impl Objections {
    fn merge(&mut self, that: Self) {
        if that.kind > self.kind {
            return;
        }
        if that.kind < self.kind {
            *self = that;
            return;
        }
        if that.ranks < self.ranks {
            self.reason = that.reason;
        }
        self.ranks.extend(that.ranks);
        self.ranks.sort_unstable();
        self.ranks.dedup();
        self.ranks.truncate(Decision::MOST_NAMED);
    }
}

/// What the ranks that have come say. If a rank has come, there is something in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tally(Option<Box<Said>>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Said {
    /// The ranks that have come.
    come: RankSet,
    calls: Lowest<Call>,
    votes: Lowest<Vote>,
    flags: u32,
    objections: Option<Objections>,
}

impl Tally {
    /// The tally of one rank.
    pub(crate) fn of(rank: u32, call: Call, mut vote: Vote) -> Self {
        let reason = std::mem::take(&mut vote.reason);
        let objections = vote.objects.map(|kind| Objections {
            kind,
            ranks: vec![rank],
            reason,
        });
        Self(Some(Box::new(Said {
            come: RankSet::of(rank),
            calls: Lowest::of(rank, call),
            flags: vote.flags,
            votes: Lowest::of(rank, vote),
            objections,
        })))
    }

    /// Adds the tally of other ranks.
    pub(crate) fn merge(&mut self, that: Self) {
        let Some(that) = that.0 else {
            return;
        };
        let Some(mine) = &mut self.0 else {
            self.0 = Some(that);
            return;
        };
        mine.come.unite(&that.come);
        mine.calls.merge(that.calls, |one, other| one == other);
        let is_same = |one: &Vote, other: &Vote| one.compared() == other.compared();
        mine.votes.merge(that.votes, is_same);
        mine.flags |= that.flags;
        match (&mut mine.objections, that.objections) {
            (Some(mine), Some(that)) => mine.merge(that),
            (Some(_), None) => {}
            (none, that) => *none = that,
        }
    }

    /// The ranks that have come.
    pub(crate) fn come(&self) -> &RankSet {
        static NONE: RankSet = RankSet::new();
        self.0.as_ref().map_or(&NONE, |said| &said.come)
    }

    /// How many ranks have come.
    pub(crate) fn count(&self) -> usize {
        self.come().len()
    }

    /// About how many bytes the encoded tally takes.
    pub(crate) fn weight(&self) -> usize {
        let Some(said) = &self.0 else {
            return 0;
        };
        let calls = std::iter::once(&said.calls.first).chain(&said.calls.other);
        let calls = calls.map(|(_, call)| call.label.len());
        let votes = std::iter::once(&said.votes.first).chain(&said.votes.other);
        let votes = votes.map(|(_, vote)| vote.header.len() + vote.reason.len());
        let objections = said.objections.as_ref();
        let objections = objections.map_or(0, |it| it.reason.len() + 3 * it.ranks.len());
        calls.chain(votes).sum::<usize>() + objections + said.come.weight() + 64
    }

    /// The limit that it exceeds, if any, in a job with so many ranks at most.
    pub(crate) fn exceeds(&self, size: usize) -> Option<&'static str> {
        let Some(said) = &self.0 else {
            return Some("nobody has come");
        };
        let Lowest { first, other } = &said.calls;
        let mut calls = std::iter::once(first).chain(other);
        let votes = std::iter::once(&said.votes.first).chain(&said.votes.other);
        let objections = said.objections.as_ref();
        if !said.come.is_within(size) || said.come.is_empty() {
            Some("a set of ranks is too large, or empty")
        } else if calls.any(|(_, call)| call.label.len() > MAX_LABEL) {
            Some("a label is too long")
        } else if votes
            .map(|(_, vote)| vote.header.len() + vote.reason.len())
            .chain(objections.map(|objections| objections.reason.len()))
            .any(|len| len > Packet::MAX_BYTES)
        {
            Some("a proposal is too long")
        } else if objections.is_some_and(|objections| objections.ranks.len() > Decision::MOST_NAMED)
        {
            Some("a list of ranks is too long")
        } else {
            None
        }
    }

    /// Two ranks that make different calls, in ascending order, and what they call.
    pub(crate) fn mismatch(&self) -> Option<[(u32, Call); 2]> {
        let calls = &self.0.as_ref()?.calls;
        Some([calls.first.clone(), calls.other.clone()?])
    }

    /// The outcome, if these are all ranks and they make the same call.
    pub(crate) fn outcome(self) -> Outcome {
        let Some(Said {
            votes,
            flags,
            objections,
            ..
        }) = self.0.map(|said| *said)
        else {
            return Outcome::Agreed { flags: 0 };
        };
        if let Some((rank, other)) = votes.other {
            return Outcome::Differs {
                first: votes.first.1.header,
                rank,
                other: other.header,
            };
        }
        match objections {
            None => Outcome::Agreed { flags },
            Some(Objections {
                kind,
                ranks,
                reason,
            }) => Outcome::Refused {
                kind,
                ranks,
                reason,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::votes::Kind;
    use crate::votes::tests::{any_vote, model};
    use proptest::prelude::*;

    /// Votes of all ranks, and which tallies are merged, one pair after the other.
    fn any_merges() -> impl Strategy<Value = (Vec<(Vote, bool)>, Vec<[prop::sample::Index; 2]>)> {
        let votes = prop::collection::vec((any_vote(), prop::bool::weighted(0.9)), 1..60);
        votes.prop_flat_map(|votes| {
            let pair = any::<[prop::sample::Index; 2]>();
            let merges = prop::collection::vec(pair, votes.len() - 1);
            (Just(votes), merges)
        })
    }

    proptest! {
        #[test]
        fn tallies_of_any_sets_can_be_merged((votes, merges) in any_merges()) {
            let call = |usual| Call::new(Kind::Confer, if usual { "a" } else { "b" });
            let of = |(rank, (vote, usual)): (usize, &(Vote, bool))| {
                Tally::of(rank as u32, call(*usual), vote.clone())
            };
            let mut tallies: Vec<_> = votes.iter().enumerate().map(of).collect();
            let mut again = Vec::new();
            for [one, other] in merges {
                let other = tallies.swap_remove(other.index(tallies.len()));
                let one = one.index(tallies.len());
                again.push(other.clone());
                tallies[one].merge(other);
            }
            let mut tally = tallies.pop().unwrap();
            // What was said may be said again.
            again.into_iter().step_by(3).for_each(|said| tally.merge(said));
            prop_assert_eq!(tally.count(), votes.len());
            let first = votes[0].1;
            let differs = votes.iter().position(|(_, usual)| *usual != first);
            let mismatch = differs.map(|rank| [(0, call(first)), (rank as u32, call(!first))]);
            prop_assert_eq!(tally.mismatch(), mismatch);
            let votes: Vec<_> = votes.into_iter().map(|(vote, _)| vote).collect();
            prop_assert_eq!(tally.outcome(), model(&votes));
        }
    }
}
