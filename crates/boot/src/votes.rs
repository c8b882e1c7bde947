//! What ranks say in a round, and what they hear at its end.

use crate::fields::{bytes, shortened};
use serde::{Deserialize, Serialize};
use tidegate_hal::control::{ControlError, Decision, Group, Proposal};

/// The two collective calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    Exchange,
    Confer,
}

/// What a rank calls: the kind of call, and the label that people read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Call {
    pub(crate) kind: Kind,
    pub(crate) label: String,
}

impl Call {
    pub(crate) fn new(kind: Kind, label: impl Into<String>) -> Self {
        let label = label.into();
        Self { kind, label }
    }
}

/// What a rank contributes to a decision: a [`Proposal`] without its letters. In an exchange it is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Vote {
    #[serde(with = "bytes")]
    pub(crate) header: Vec<u8>,
    /// How many bytes of the header must be the same on all ranks.
    pub(crate) alike: u32,
    pub(crate) flags: u32,
    /// The kind of this rank's objection, if it objects.
    pub(crate) objects: Option<u8>,
    /// The reason of the objection.
    #[serde(with = "bytes")]
    pub(crate) reason: Vec<u8>,
}

impl Vote {
    /// Takes the vote out of a proposal. The letters stay.
    pub(crate) fn take(proposal: &mut Proposal) -> Self {
        let alike = proposal.compared().len() as u32;
        let objection = proposal.objection.take();
        Self {
            header: std::mem::take(&mut proposal.header),
            alike,
            flags: proposal.flags,
            objects: objection.as_ref().map(|objection| objection.kind),
            reason: objection.map_or_else(Vec::new, |objection| objection.reason),
        }
    }

    pub(crate) fn compared(&self) -> &[u8] {
        let alike = self.header.len().min(self.alike as usize);
        &self.header[..alike]
    }
}

/// The end of a round, which is the same for all ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    /// Also the outcome of an exchange to which all have come.
    Agreed {
        flags: u32,
    },
    Differs {
        #[serde(with = "bytes")]
        first: Vec<u8>,
        rank: u32,
        #[serde(with = "bytes")]
        other: Vec<u8>,
    },
    Refused {
        kind: u8,
        ranks: Vec<u32>,
        #[serde(with = "bytes")]
        reason: Vec<u8>,
    },
    Failed(Failure),
}

impl Outcome {
    /// The decision for a rank that makes this call. `Agreed` has no letters yet.
    pub(crate) fn decision(self, call: &Call) -> Result<Decision, ControlError> {
        Ok(match self {
            Outcome::Agreed { flags } => Decision::Agreed {
                flags,
                letters: Vec::new(),
            },
            Outcome::Differs { first, rank, other } => Decision::Differs {
                first,
                rank: rank as usize,
                other,
            },
            Outcome::Refused {
                kind,
                ranks,
                reason,
            } => Decision::Refused {
                kind,
                ranks: ranks.into_iter().map(|rank| rank as usize).collect(),
                reason,
            },
            Outcome::Failed(failure) => return Err(failure.error(call)),
        })
    }
}

/// Why a round failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Failure {
    /// Two ranks, in ascending order, and what they call.
    Mismatch(Box<[(u32, Call); 2]>),
    /// Two ranks, and the different teams that they make.
    Teams(Box<[(u32, Founders); 2]>),
    /// A rank that will not come.
    Lost {
        rank: u32,
        #[serde(serialize_with = "shortened")]
        reason: String,
    },
}

/// The team that a rank makes: its name, and its ranks in the order of the team.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Founders {
    pub(crate) name: String,
    pub(crate) ranks: Vec<u32>,
}

impl Founders {
    pub(crate) fn new(name: &str, ranks: &[usize]) -> Self {
        Self {
            name: name.to_owned(),
            ranks: ranks.iter().map(|rank| *rank as u32).collect(),
        }
    }

    /// About how many bytes they take when they are encoded.
    pub(crate) fn weight(&self) -> usize {
        self.name.len() + 3 * self.ranks.len()
    }

    fn group(&self) -> Group {
        Group {
            name: self.name.clone(),
            ranks: self.ranks.iter().map(|rank| *rank as usize).collect(),
        }
    }

    /// The call, for an error about a rank that will not come.
    pub(crate) fn call(&self) -> Call {
        Call::new(Kind::Confer, format!("making the team `{}`", self.name))
    }
}

impl Failure {
    /// About how many bytes the encoded failure takes.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Failure::Mismatch(calls) => calls.iter().map(|(_, call)| call.label.len()).sum(),
            Failure::Teams(sides) => sides.iter().map(|(_, founders)| founders.weight()).sum(),
            Failure::Lost { reason, .. } => reason.len(),
        }
    }

    /// The error of a rank that makes this team.
    pub(crate) fn founding_error(&self, mine: &Founders) -> ControlError {
        let Failure::Teams(sides) = self else {
            return self.error(&mine.call());
        };
        let [one, other] = &**sides;
        let (rank, theirs) = if one.1 == *mine { other } else { one };
        ControlError::Teams {
            rank: *rank as usize,
            mine: Box::new(mine.group()),
            theirs: Box::new(theirs.group()),
        }
    }

    /// The error of a rank that makes this call.
    pub(crate) fn error(&self, mine: &Call) -> ControlError {
        match self {
            Failure::Mismatch(calls) => {
                let [low, high] = &**calls;
                let (rank, theirs) = if low.1 == *mine { high } else { low };
                let mut told = theirs.label.clone();
                if told == mine.label {
                    told.push_str(match theirs.kind {
                        Kind::Exchange => " (an exchange)",
                        Kind::Confer => " (no exchange)",
                    });
                }
                ControlError::Mismatch {
                    rank: *rank as usize,
                    mine: mine.label.clone(),
                    theirs: told,
                }
            }
            Failure::Lost { rank, reason } => ControlError::PeerLost {
                rank: *rank as usize,
                label: mine.label.clone(),
                reason: reason.clone(),
            },
            Failure::Teams(sides) => {
                let [(rank, founders), _] = &**sides;
                ControlError::Mismatch {
                    rank: *rank as usize,
                    mine: mine.label.clone(),
                    theirs: founders.call().label,
                }
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The decision about all votes, in the order of ranks.
    pub(crate) fn model(votes: &[Vote]) -> Outcome {
        let differs = votes
            .iter()
            .position(|vote| vote.compared() != votes[0].compared());
        if let Some(rank) = differs {
            return Outcome::Differs {
                first: votes[0].header.clone(),
                rank: rank as u32,
                other: votes[rank].header.clone(),
            };
        }
        let Some(kind) = votes.iter().filter_map(|vote| vote.objects).min() else {
            let flags = votes.iter().fold(0, |flags, vote| flags | vote.flags);
            return Outcome::Agreed { flags };
        };
        let mut ranks: Vec<_> = (0..votes.len() as u32).collect();
        ranks.retain(|rank| votes[*rank as usize].objects == Some(kind));
        ranks.truncate(Decision::MOST_NAMED);
        let reason = votes[ranks[0] as usize].reason.clone();
        Outcome::Refused {
            kind,
            ranks,
            reason,
        }
    }

    /// Votes that are often alike.
    pub(crate) fn any_vote() -> impl Strategy<Value = Vote> {
        let header = prop_oneof![5 => Just(vec![0, 0]), 1 => prop::collection::vec(0u8..2, 0..3)];
        let objects = prop_oneof![3 => Just(None), 1 => (1u8..4).prop_map(Some)];
        (header, 0u32..3, 0u32..8, objects, any::<u8>()).prop_map(
            |(header, alike, flags, objects, reason)| Vote {
                header,
                alike,
                flags,
                objects,
                reason: objects.map_or_else(Vec::new, |_| vec![reason]),
            },
        )
    }
}
