//! The decisions about collective calls, without any transport.
//!
//! # Model
//!
//! Each rank numbers its collective calls of a team in their order. Ranks that call in the same round must make the
//! same call. All rounds are decided in one place: by the hub, or under the lock that ranks share as threads. The owner
//! of a [`Rounds`] tells it which members come and which end, in one order, and passes on the [`Outcome`] to all
//! members. A rank needs the outcome of a round before it comes to the next one, so a team has one open round at a
//! time. The number of a round contains the team: see [`first_round`].
//!
//! # Memory
//!
//! A round keeps only what its outcome may have to say ([`Tally`]), and one number for each rank. So it does not matter
//! how much the ranks say.
//!
//! # Failure
//!
//! A round fails when two ranks make different calls, or when a rank ends that has not come. It fails at once, even if
//! no other rank has come yet, and no round follows it.

use crate::tally::Tally;
use std::sync::Arc;
use tidegate_hal::ids::TeamId;

pub(crate) use crate::votes::{Call, Failure, Founders, Kind, Outcome, Vote};

/// The number of a team's first round. The numbers of its other rounds follow, so a number tells the team.
pub(crate) const fn first_round(team: TeamId) -> u64 {
    (team.number() as u64) << ROUND_BITS
}

/// The team of a round. `None`: there can be no such round.
pub(crate) fn team_of(round: u64) -> Option<TeamId> {
    TeamId::new((round >> ROUND_BITS) as u32)
}

/// Whether it is a round of all ranks.
pub(crate) fn is_of_all(round: u64) -> bool {
    team_of(round) == Some(TeamId::WORLD)
}

/// A team has at most 2^40 rounds.
const ROUND_BITS: u32 = 40;

/// The ranks of a team, in ascending order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Members {
    /// So many ranks, from 0.
    First(usize),
    Some(Arc<[u32]>),
}

impl Members {
    pub(crate) fn new(ranks: &[u32]) -> Self {
        let mut ranks = ranks.to_vec();
        ranks.sort_unstable();
        Members::Some(ranks.into())
    }

    /// Whether these are different ranks of a job of `size` ranks.
    pub(crate) fn are_of(&self, size: usize) -> bool {
        match self {
            Members::First(count) => *count <= size,
            Members::Some(ranks) => {
                ranks.is_sorted_by(|one, next| one < next)
                    && ranks.last().is_some_and(|last| (*last as usize) < size)
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Members::First(size) => *size,
            Members::Some(ranks) => ranks.len(),
        }
    }

    /// The place of a rank, if it is a member.
    pub(crate) fn place(&self, rank: usize) -> Option<usize> {
        match self {
            Members::First(size) => (rank < *size).then_some(rank),
            Members::Some(ranks) => ranks.binary_search(&u32::try_from(rank).ok()?).ok(),
        }
    }

    pub(crate) fn rank(&self, place: usize) -> usize {
        match self {
            Members::First(_) => place,
            Members::Some(ranks) => ranks[place] as usize,
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + use<> {
        let members = self.clone();
        (0..members.len()).map(move |place| members.rank(place))
    }
}

/// What no correct rank says: something about a round that is not open, a second vote, a letter to a rank that does not
/// exist, or letters that are not in ascending order.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("what rank {rank} says about round {round} is out of order")]
pub(crate) struct OutOfOrder {
    pub(crate) rank: usize,
    pub(crate) round: u64,
}

/// What is known of one rank in the open round.
#[derive(Clone, Copy, Debug)]
enum Here {
    /// It has not voted. Its next letter goes to this rank or a higher one.
    Before(u32),
    Voted,
}

/// What follows from a rank's coming.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// Nothing, since the round has failed, or the rank has ended.
    Late,
    /// It counts. This is the outcome of the round, if it is decided now.
    Counted(Option<Outcome>),
}

#[derive(Debug)]
pub(crate) struct Rounds {
    members: Members,
    /// The number of the open round, or of the one that failed.
    round: u64,
    open: Tally,
    /// By the places of the members.
    ranks: Vec<Here>,
    has_ended: Vec<bool>,
    /// The first rank that ended, and why. It comes to no later round. So if others have ended, too, they need not be
    /// known: the first call of the next round fails because of this one.
    ended: Option<Failure>,
    failed: bool,
}

impl Rounds {
    pub(crate) fn new(team: TeamId, members: Members) -> Self {
        let size = members.len();
        Self {
            members,
            round: first_round(team),
            open: Tally::default(),
            ranks: vec![Here::Before(0); size],
            has_ended: vec![false; size],
            ended: None,
            failed: false,
        }
    }

    pub(crate) fn round(&self) -> u64 {
        self.round
    }

    pub(crate) fn members(&self) -> &Members {
        &self.members
    }

    /// Whether no member comes to a round any more.
    pub(crate) fn is_over(&self) -> bool {
        self.has_ended.iter().all(|ended| *ended)
    }

    /// The place of a rank, if what it says about the round counts. After the round has failed, and from a rank that
    /// takes part in no call any more, it does not: that may have crossed with the news.
    fn counts(&self, rank: usize, round: u64) -> Result<Option<usize>, OutOfOrder> {
        match self.members.place(rank) {
            Some(place) if round == self.round => {
                Ok((!self.failed && !self.has_ended[place]).then_some(place))
            }
            _ => Err(OutOfOrder { rank, round }),
        }
    }

    /// Notes a letter of `rank`. Returns whether it has to be passed on.
    pub(crate) fn letter(
        &mut self,
        rank: usize,
        round: u64,
        to: usize,
    ) -> Result<bool, OutOfOrder> {
        let Some(place) = self.counts(rank, round)? else {
            return Ok(false);
        };
        match self.ranks[place] {
            Here::Before(next)
                if next as usize <= to && to != rank && self.members.place(to).is_some() =>
            {
                self.ranks[place] = Here::Before(to as u32 + 1);
                Ok(true)
            }
            Here::Before(_) | Here::Voted => Err(OutOfOrder { rank, round }),
        }
    }

    /// Notes that `rank` has come.
    pub(crate) fn come(
        &mut self,
        rank: usize,
        round: u64,
        call: Call,
        vote: Vote,
    ) -> Result<Came, OutOfOrder> {
        let Some(place) = self.counts(rank, round)? else {
            return Ok(Came::Late);
        };
        match (self.ranks[place], call.kind) {
            (Here::Before(_), Kind::Confer) | (Here::Before(0), Kind::Exchange) => {}
            _ => return Err(OutOfOrder { rank, round }),
        }
        self.ranks[place] = Here::Voted;
        Ok(Came::Counted(self.count(Tally::of(
            rank as u32,
            call,
            vote,
        ))))
    }

    /// Notes that several ranks have come, each after its letters. Some of it may be known already, and it may be about
    /// a round that has been decided.
    pub(crate) fn come_together(&mut self, round: u64, tally: Tally) -> Result<Came, OutOfOrder> {
        if round < self.round && team_of(round) == team_of(self.round) {
            return Ok(Came::Late);
        }
        for rank in tally.come().iter().map(|rank| rank as usize) {
            match self.members.place(rank) {
                Some(place) if round == self.round => self.ranks[place] = Here::Voted,
                _ => return Err(OutOfOrder { rank, round }),
            }
        }
        Ok(match self.failed {
            true => Came::Late,
            false => Came::Counted(self.count(tally)),
        })
    }

    /// Counts what ranks say. Returns the outcome, if the round is decided. The next round is open then, unless this
    /// one failed.
    fn count(&mut self, tally: Tally) -> Option<Outcome> {
        let is_first = self.open.count() == 0;
        self.open.merge(tally);
        if let Some(calls) = self.open.mismatch() {
            return Some(self.fail(Failure::Mismatch(Box::new(calls))));
        }
        if is_first && let Some(ended) = self.ended.take() {
            return Some(self.fail(ended));
        }
        if self.open.count() < self.members.len() {
            return None;
        }
        self.round += 1;
        self.ranks.fill(Here::Before(0));
        Some(std::mem::take(&mut self.open).outcome())
    }

    fn fail(&mut self, failure: Failure) -> Outcome {
        self.failed = true;
        self.open = Tally::default();
        Outcome::Failed(failure)
    }

    /// Notes that `rank` comes to no round any more. Returns the outcome, if that decides the open round.
    pub(crate) fn end(&mut self, rank: usize, reason: &str) -> Option<Outcome> {
        let place = self.members.place(rank)?;
        if std::mem::replace(&mut self.has_ended[place], true) || self.failed {
            return None;
        }
        let ended = Failure::Lost {
            rank: rank as u32,
            reason: reason.to_owned(),
        };
        if self.open.count() > 0 && !matches!(self.ranks[place], Here::Voted) {
            return Some(self.fail(ended));
        }
        self.ended.get_or_insert(ended);
        None
    }
}

#[cfg(test)]
pub(crate) mod tests;
