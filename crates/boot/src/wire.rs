//! The messages of the control plane and their encoding.
//!
//! # Model
//!
//! A message is encoded by `postcard`. The connection authenticates each message before it is decoded: see
//! [`link`](crate::link).
//!
//! # Failure
//!
//! [`decode`] returns a message or [`Malformed`] for any bytes. It refuses extra bytes at the end, and fields that are
//! longer than their limits.

use crate::fields::{MAX_REASON, bytes, shortened, shortened_if_any};
use crate::rounds::{Failure, Founders, Outcome, Vote};
use serde::{Deserialize, Serialize};
use tidegate_hal::control::{Decision, Packet};
use tidegate_hal::ids::TeamId;

/// The most ranks of a job. It keeps lists of ranks within a frame.
pub const MAX_RANKS: usize = 4096;
/// The longest label of a collective call.
pub(crate) const MAX_LABEL: usize = 4096;
/// The longest encoded message: two headers that differ, and room for the other fields.
pub(crate) const MAX_MESSAGE: usize = 2 * Packet::MAX_BYTES + (64 << 10);

/// What identifies a node: a hash of facts about the host.
pub(crate) type NodeId = [u8; 32];
/// The name of a rank's door, which nobody else can guess.
pub(crate) type DoorName = [u8; 16];

/// A message between the hub, which is rank 0, and the other ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Message {
    /// To the hub, as the first message: the node on which this rank runs.
    Join { node: NodeId },
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
    /// In both directions: the sender is alive.
    Beat,
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
        vote: Vote,
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
pub(crate) struct Malformed(&'static str);

impl Message {
    pub(crate) fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("a vector takes any message")
    }

    /// The limit that the message exceeds, if any.
    fn exceeds(&self) -> Option<&'static str> {
        match self {
            Message::Abort { reason }
            | Message::Withdrawn { reason, .. }
            | Message::Lost { reason, .. }
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

/// Decodes one message.
pub(crate) fn decode(body: &[u8]) -> Result<Message, Malformed> {
    match postcard::take_from_bytes::<Message>(body) {
        Err(_) => Err(Malformed("its bytes are no message")),
        Ok((_, [_, ..])) => Err(Malformed("bytes are left over")),
        Ok((message, [])) => match message.exceeds() {
            None => Ok(message),
            Some(limit) => Err(Malformed(limit)),
        },
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::votes::{Call, Kind, tests::any_vote};
    use proptest::prelude::*;

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
                .prop_map(|(low, high)| Outcome::Failed(Failure::Mismatch([low, high]))),
            (founders(), founders())
                .prop_map(|(one, other)| Outcome::Failed(Failure::Teams([one, other]))),
            (any::<u32>(), "\\PC{0,40}")
                .prop_map(|(rank, reason)| Outcome::Failed(Failure::Lost { rank, reason })),
        ]
    }

    pub(crate) fn any_message() -> impl Strategy<Value = Message> {
        let reason = || "\\PC{0,40}";
        let bytes = || prop::collection::vec(any::<u8>(), 0..64);
        let ranks = || prop::collection::vec(any::<u32>(), 0..9);
        prop_oneof![
            any::<[u8; 32]>().prop_map(|node| Message::Join { node }),
            (ranks(), any::<[u8; 16]>()).prop_map(|(nodes, seed)| Message::Start { nodes, seed }),
            Just(Message::Ready),
            Just(Message::Go),
            reason().prop_map(|reason| Message::Abort { reason }),
            Just(Message::Beat),
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
                vote
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

    proptest! {
        #[test]
        fn encoded_messages_are_decoded(message in any_message()) {
            let body = message.encode();
            prop_assert_eq!(decode(&body), Ok(message));
            let mut longer = body.clone();
            longer.push(0);
            prop_assert!(decode(&longer).is_err());
            prop_assert!(decode(&body[..body.len() - 1]).is_err());
        }
    }

    #[test]
    fn claimed_lengths_are_not_believed() {
        for kind in 0..=u8::MAX {
            let mut body = vec![kind];
            body.extend_from_slice(&[0xff; 8]);
            assert!(decode(&body).is_err());
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
            vote: Vote {
                header: vec![0; header],
                reason: vec![0; reason],
                objects: Some(1),
                ..Vote::default()
            },
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
            let body = message.encode();
            assert_eq!(decode(&body).is_ok(), is_good);
            assert!(!is_good || body.len() <= MAX_MESSAGE);
        }
        // Encoding cuts reasons, so only another program sends a longer one. This makes one: a text of that length
        // behind the kind.
        let mut body = Message::Fail {
            reason: String::new(),
            first: None,
        }
        .encode();
        body.truncate(body.len() - 2);
        body.extend(postcard::to_stdvec(&("x".repeat(MAX_REASON + 1), None::<u32>)).unwrap());
        assert!(decode(&body).is_err());
    }

    #[test]
    fn long_reasons_are_cut_between_characters() {
        let reason = "é".repeat(MAX_REASON);
        let first = None;
        let body = Message::Fail { reason, first }.encode();
        assert!(
            matches!(decode(&body), Ok(Message::Fail { reason, .. }) if reason.len() == MAX_REASON)
        );
    }
}
