//! The messages of the control plane: what ranks say to rank 0, and what it says to them.
//!
//! # Model
//!
//! Messages go from rank to rank along the tree, several of them in one [`Hop`](crate::hop::Hop), which is encoded by
//! `postcard`. Each connection authenticates what it carries before that is decoded: see [`link`](crate::link).
//!
//! # Failure
//!
//! Fields have limits ([`Message::exceeds`]). What exceeds one is refused.

use crate::fields::{MAX_LABEL, MAX_REASON, bytes, shortened, shortened_if_any};
use crate::rounds::{Failure, Founders, Outcome, Vote};
use serde::{Deserialize, Serialize};
use tidegate_hal::control::{Decision, Packet};
use tidegate_hal::ids::TeamId;

/// The most ranks of a job. It keeps lists of ranks within a frame.
pub const MAX_RANKS: usize = 65536;
/// The longest encoded hop: others' messages, two headers that differ, and room for the other fields.
pub(crate) const MAX_MESSAGE: usize = 2 * Packet::MAX_BYTES + (2 << 20);

/// What identifies a node: a hash of facts about the host.
pub(crate) type NodeId = [u8; 32];
/// The name of a rank's door, which nobody else can guess.
pub(crate) type DoorName = [u8; 16];

/// A message between the hub, which is on rank 0, and the ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Message {
    /// From the hub, when all have joined: the node of each rank, and random bytes for the names of the doors.
    Start { nodes: Vec<u32>, seed: DoorName },
    /// To the hub: this rank's door is open for its node.
    Ready,
    /// From the hub: all are ready.
    Go,
    /// From the hub: the job cannot start.
    Abort {
        #[serde(serialize_with = "shortened")]
        reason: String,
    },
    /// To the hub: a rank has found a parent, which says so. It has heard the messages up to this number.
    Attached { rank: u32, heard: u64 },
    /// From the hub to the parent, and for all on the way: these ranks are below this child now.
    Joined { child: u32, below: Vec<u32> },
    /// From the hub to the parent: what its child had missed has been sent. `seq` is the number of `Attached`.
    Welcome { child: u32, seq: u64 },
    /// To the hub: the connection to a child has ended. `heard` is how much all ranks there are known to have heard.
    Gone {
        rank: u32,
        #[serde(serialize_with = "shortened")]
        reason: String,
        heard: u64,
    },
    /// From the hub to the parent, and for all on the way: these ranks are not below it any more.
    Parted { below: Vec<u32> },
    /// From the hub: it has received what this rank has said up to this number. Most messages have another answer.
    Heard { seq: u64 },
    /// To the hub: what a rank tells all others in an exchange.
    Exchange {
        round: u64,
        label: String,
        #[serde(with = "bytes")]
        bytes: Vec<u8>,
    },
    /// From the hub: what some ranks tell all others.
    Said { round: u64, said: Vec<Said> },
    /// To the hub with the receiver, from the hub with the sender.
    Letter {
        rank: u32,
        round: u64,
        handles: u8,
        /// Why the handles are lost, if they are.
        #[serde(serialize_with = "shortened_if_any")]
        lost: Option<String>,
        #[serde(with = "bytes")]
        bytes: Vec<u8>,
    },
    /// To the hub, after the letters of the same round.
    Confer {
        round: u64,
        label: String,
        vote: Box<Vote>,
    },
    /// From the hub, after all letters and all that was said in the same round.
    Decided { round: u64, outcome: Outcome },
    /// To the hub: the rank asks for a team.
    Found { founders: Founders },
    /// From the hub, to a rank that has asked for a team.
    Founded { team: Result<TeamId, Failure> },
    /// To the hub: the rank takes part in no collective call of this team any more, or of no team.
    Withdrawn {
        team: Option<TeamId>,
        #[serde(serialize_with = "shortened")]
        reason: String,
    },
    /// To the hub with the receivers (none means all others), from the hub without.
    Notify {
        from: u32,
        to: Option<Vec<u32>>,
        #[serde(with = "bytes")]
        bytes: Vec<u8>,
    },
    /// From the hub. `first` is as in `Fail`.
    Lost {
        rank: u32,
        #[serde(serialize_with = "shortened")]
        reason: String,
        first: Option<u32>,
    },
    /// From the hub: these ranks have left.
    Left { ranks: Vec<u32> },
    /// To the hub: this rank leaves in good order.
    Leave,
    /// To the hub: this rank fails, and can still say so. If it fails because of another rank, `first` is that one.
    Fail {
        #[serde(serialize_with = "shortened")]
        reason: String,
        first: Option<u32>,
    },
    /// From the hub: the answer to `Leave` and `Fail`; the connection may be closed.
    Bye,
}

impl Founders {
    pub(crate) fn are_too_long(&self) -> bool {
        self.name.len() > MAX_LABEL || self.ranks.len() > MAX_RANKS
    }
}

/// What a rank tells all others in an exchange.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Said {
    pub(crate) rank: u32,
    #[serde(with = "bytes")]
    pub(crate) bytes: Vec<u8>,
}

/// Bytes that are no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed message: {0}")]
pub(crate) struct Malformed(pub(crate) &'static str);

impl Message {
    /// About how many bytes the encoded message takes. All that has no fixed length counts, since otherwise a hop of
    /// many messages could become too long. A reason counts whole, though it is cut.
    pub(crate) fn weight(&self) -> usize {
        const REST: usize = 32;
        REST + match self {
            Message::Start { nodes: ranks, .. }
            | Message::Left { ranks }
            | Message::Joined { below: ranks, .. }
            | Message::Parted { below: ranks } => 3 * ranks.len(),
            Message::Exchange { label, bytes, .. } => label.len() + bytes.len(),
            Message::Said { said, .. } => said.iter().map(|said| REST + said.bytes.len()).sum(),
            Message::Letter { lost, bytes, .. } => {
                lost.as_ref().map_or(0, String::len) + bytes.len()
            }
            Message::Confer { label, vote, .. } => {
                label.len() + vote.header.len() + vote.reason.len()
            }
            Message::Decided { outcome, .. } => match outcome {
                Outcome::Agreed { .. } => 0,
                Outcome::Differs { first, other, .. } => first.len() + other.len(),
                Outcome::Refused { ranks, reason, .. } => 3 * ranks.len() + reason.len(),
                Outcome::Failed(failure) => failure.weight(),
            },
            Message::Found { founders } => founders.weight(),
            Message::Founded { team } => team.as_ref().map_or_else(Failure::weight, |_| 0),
            Message::Notify { to, bytes, .. } => 3 * to.as_ref().map_or(0, Vec::len) + bytes.len(),
            Message::Abort { reason }
            | Message::Gone { reason, .. }
            | Message::Withdrawn { reason, .. }
            | Message::Lost { reason, .. }
            | Message::Fail { reason, .. } => reason.len(),
            Message::Ready
            | Message::Go
            | Message::Attached { .. }
            | Message::Welcome { .. }
            | Message::Heard { .. }
            | Message::Leave
            | Message::Bye => 0,
        }
    }

    /// The limit that the message exceeds, if any.
    pub(crate) fn exceeds(&self) -> Option<&'static str> {
        match self {
            Message::Abort { reason }
            | Message::Withdrawn { reason, .. }
            | Message::Lost { reason, .. }
            | Message::Gone { reason, .. }
            | Message::Fail { reason, .. }
            | Message::Letter {
                lost: Some(reason), ..
            }
            | Message::Decided {
                outcome: Outcome::Failed(Failure::Lost { reason, .. }),
                ..
            } if reason.len() > MAX_REASON => Some("a reason is too long"),
            Message::Start { nodes: ranks, .. }
            | Message::Left { ranks }
            | Message::Joined { below: ranks, .. }
            | Message::Parted { below: ranks }
            | Message::Notify {
                to: Some(ranks), ..
            } if ranks.len() > MAX_RANKS => Some("a list of ranks is too long"),
            Message::Decided {
                outcome: Outcome::Refused { ranks, .. },
                ..
            } if ranks.len() > Decision::MOST_NAMED => Some("a list of ranks is too long"),
            Message::Found { founders } if founders.are_too_long() => Some("a team is too long"),
            Message::Founded {
                team: Err(Failure::Teams(sides)),
            } if sides.iter().any(|(_, founders)| founders.are_too_long()) => {
                Some("a team is too long")
            }
            Message::Founded {
                team: Err(Failure::Lost { reason, .. }),
            } if reason.len() > MAX_REASON => Some("a reason is too long"),
            Message::Exchange { label, .. } | Message::Confer { label, .. }
                if label.len() > MAX_LABEL =>
            {
                Some("a label is too long")
            }
            Message::Decided {
                outcome: Outcome::Failed(Failure::Mismatch(calls)),
                ..
            } if calls.iter().any(|(_, call)| call.label.len() > MAX_LABEL) => {
                Some("a label is too long")
            }
            Message::Said { said, .. }
                if said.iter().any(|said| said.bytes.len() > Packet::MAX_BYTES) =>
            {
                Some("a packet is too long")
            }
            Message::Letter { handles, .. } if usize::from(*handles) > Packet::MAX_HANDLES => {
                Some("too many handles")
            }
            Message::Exchange { bytes, .. }
            | Message::Letter { bytes, .. }
            | Message::Notify { bytes, .. }
                if bytes.len() > Packet::MAX_BYTES =>
            {
                Some("a packet is too long")
            }
            Message::Confer { vote, .. }
                if vote.header.len() + vote.reason.len() > Packet::MAX_BYTES =>
            {
                Some("a proposal is too long")
            }
            _ => None,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::hop::{self, Hop, Item, Up};
    use crate::votes::{Call, Kind, tests::any_vote};
    use proptest::prelude::*;
    use std::sync::Arc;

    fn any_outcome() -> impl Strategy<Value = Outcome> {
        let bytes = || prop::collection::vec(any::<u8>(), 0..64);
        let founders = || {
            let ranks = prop::collection::vec(any::<u32>(), 0..9);
            (any::<u32>(), "\\PC{0,40}", ranks)
                .prop_map(|(rank, name, ranks)| (rank, Founders { name, ranks }))
        };
        let call = || {
            let kind = prop::sample::select(vec![Kind::Exchange, Kind::Confer]);
            (any::<u32>(), kind, "\\PC{0,40}")
                .prop_map(|(rank, kind, label)| (rank, Call { kind, label }))
        };
        prop_oneof![
            any::<u32>().prop_map(|flags| Outcome::Agreed { flags }),
            (bytes(), any::<u32>(), bytes()).prop_map(|(first, rank, other)| Outcome::Differs {
                first,
                rank,
                other
            }),
            (
                any::<u8>(),
                prop::collection::vec(any::<u32>(), 1..9),
                bytes()
            )
                .prop_map(|(kind, ranks, reason)| Outcome::Refused {
                    kind,
                    ranks,
                    reason
                }),
            (call(), call())
                .prop_map(|(low, high)| Outcome::Failed(Failure::Mismatch(Box::new([low, high])))),
            (founders(), founders())
                .prop_map(|(one, other)| Outcome::Failed(Failure::Teams(Box::new([one, other])))),
            (any::<u32>(), "\\PC{0,40}")
                .prop_map(|(rank, reason)| Outcome::Failed(Failure::Lost { rank, reason })),
        ]
    }

    pub(crate) fn any_message() -> impl Strategy<Value = Message> {
        let reason = || "\\PC{0,40}";
        let bytes = || prop::collection::vec(any::<u8>(), 0..64);
        let ranks = || prop::collection::vec(any::<u32>(), 0..9);
        prop_oneof![
            (any::<u32>(), any::<u64>())
                .prop_map(|(rank, heard)| Message::Attached { rank, heard }),
            (any::<u32>(), ranks()).prop_map(|(child, below)| Message::Joined { child, below }),
            ranks().prop_map(|below| Message::Parted { below }),
            (any::<u32>(), any::<u64>()).prop_map(|(child, seq)| Message::Welcome { child, seq }),
            (any::<u32>(), reason(), any::<u64>()).prop_map(|(rank, reason, heard)| {
                Message::Gone {
                    rank,
                    reason,
                    heard,
                }
            }),
            any::<u64>().prop_map(|seq| Message::Heard { seq }),
            (ranks(), any::<[u8; 16]>()).prop_map(|(nodes, seed)| Message::Start { nodes, seed }),
            Just(Message::Ready),
            Just(Message::Go),
            reason().prop_map(|reason| Message::Abort { reason }),
            (any::<u64>(), reason(), bytes()).prop_map(|(round, label, bytes)| {
                Message::Exchange {
                    round,
                    label,
                    bytes,
                }
            }),
            (
                any::<u64>(),
                prop::collection::vec((any::<u32>(), bytes()), 0..5)
            )
                .prop_map(|(round, said)| {
                    let said = said.into_iter().map(|(rank, bytes)| Said { rank, bytes });
                    let said = said.collect();
                    Message::Said { round, said }
                }),
            (
                any::<u32>(),
                any::<u64>(),
                0u8..=8,
                prop::option::of(reason()),
                bytes()
            )
                .prop_map(|(rank, round, handles, lost, bytes)| Message::Letter {
                    rank,
                    round,
                    handles,
                    lost,
                    bytes
                }),
            (any::<u64>(), reason(), any_vote()).prop_map(|(round, label, vote)| Message::Confer {
                round,
                label,
                vote: Box::new(vote)
            }),
            (any::<u64>(), any_outcome())
                .prop_map(|(round, outcome)| Message::Decided { round, outcome }),
            (any::<u32>(), prop::option::of(ranks()), bytes())
                .prop_map(|(from, to, bytes)| Message::Notify { from, to, bytes }),
            (any::<u32>(), reason(), any::<Option<u32>>()).prop_map(|(rank, reason, first)| {
                Message::Lost {
                    rank,
                    reason,
                    first,
                }
            }),
            ranks().prop_map(|ranks| Message::Left { ranks }),
            Just(Message::Leave),
            ("\\PC{0,40}", ranks()).prop_map(|(name, ranks)| Message::Found {
                founders: Founders { name, ranks }
            }),
            (any::<u32>(), any_outcome()).prop_map(|(number, outcome)| Message::Founded {
                team: match outcome {
                    Outcome::Failed(failure) => Err(failure),
                    _ => Ok(TeamId::new(number % TeamId::MOST).unwrap()),
                }
            }),
            (any::<u32>(), reason()).prop_map(|(number, reason)| Message::Withdrawn {
                team: TeamId::new(number),
                reason,
            }),
            (reason(), any::<Option<u32>>())
                .prop_map(|(reason, first)| Message::Fail { reason, first }),
            Just(Message::Bye),
        ]
    }

    /// A hop that carries the message, which ends it.
    fn encode(message: &Message) -> Vec<u8> {
        let message = message.clone();
        let (from, seq) = (0, 1);
        let item = Arc::new(Item::Said { from, seq, message });
        let (epoch, heard, items) = (0, 0, vec![item]);
        Hop::Up(Up {
            epoch,
            heard,
            items,
        })
        .encode()
    }

    fn decode(body: &[u8]) -> Result<Message, Malformed> {
        match hop::decode(body)? {
            Hop::Up(up) => match &*up.items[0] {
                Item::Said { message, .. } => Ok(message.clone()),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn messages_that_are_too_long_are_refused() {
        let ranks = |len| vec![0; len];
        let exchange = |label: usize, bytes| Message::Exchange {
            round: 0,
            label: "x".repeat(label),
            bytes: vec![0; bytes],
        };
        let letter = |handles, bytes| Message::Letter {
            rank: 0,
            round: 0,
            handles,
            lost: None,
            bytes: vec![0; bytes],
        };
        let confer = |header, reason| Message::Confer {
            round: 0,
            label: "x".repeat(MAX_LABEL),
            vote: Box::new(Vote {
                header: vec![0; header],
                reason: vec![0; reason],
                objects: Some(1),
                ..Vote::default()
            }),
        };
        let decided = |outcome| Message::Decided { round: 0, outcome };
        let refused = |named| {
            decided(Outcome::Refused {
                kind: 1,
                ranks: ranks(named),
                reason: vec![0; Packet::MAX_BYTES],
            })
        };
        let header = || vec![0; Packet::MAX_BYTES];
        let most = Packet::MAX_HANDLES as u8;
        for (message, is_good) in [
            (
                Message::Start {
                    nodes: ranks(MAX_RANKS),
                    seed: [0; 16],
                },
                true,
            ),
            (
                Message::Start {
                    nodes: ranks(MAX_RANKS + 1),
                    seed: [0; 16],
                },
                false,
            ),
            (exchange(MAX_LABEL, 0), true),
            (exchange(MAX_LABEL + 1, 0), false),
            (exchange(0, Packet::MAX_BYTES), true),
            (exchange(0, Packet::MAX_BYTES + 1), false),
            (letter(most, Packet::MAX_BYTES), true),
            (letter(most + 1, 0), false),
            (letter(0, Packet::MAX_BYTES + 1), false),
            (confer(Packet::MAX_BYTES - 1, 1), true),
            (confer(Packet::MAX_BYTES, 1), false),
            (refused(Decision::MOST_NAMED), true),
            (refused(Decision::MOST_NAMED + 1), false),
            (
                decided(Outcome::Differs {
                    first: header(),
                    rank: u32::MAX,
                    other: header(),
                }),
                true,
            ),
        ] {
            let body = encode(&message);
            assert_eq!(decode(&body).is_ok(), is_good);
            assert!(!is_good || body.len() <= MAX_MESSAGE);
        }
        // Encoding cuts reasons, so only another program sends a longer one. This makes one: a text of that length
        // behind the kind.
        let mut body = encode(&Message::Fail {
            reason: String::new(),
            first: None,
        });
        body.truncate(body.len() - 2);
        body.extend(postcard::to_stdvec(&("x".repeat(MAX_REASON + 1), None::<u32>)).unwrap());
        assert!(decode(&body).is_err());
    }

    #[test]
    fn long_reasons_are_cut_between_characters() {
        let reason = "é".repeat(MAX_REASON);
        let first = None;
        let body = encode(&Message::Fail { reason, first });
        assert!(
            matches!(decode(&body), Ok(Message::Fail { reason, .. }) if reason.len() == MAX_REASON)
        );
    }
}
