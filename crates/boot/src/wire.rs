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

use serde::{Deserialize, Serialize, Serializer};
use tidegate_hal::control::Packet;

/// The most ranks of a job. It keeps lists of ranks within a frame.
pub const MAX_RANKS: usize = 4096;
/// The longest label of an exchange.
pub(crate) const MAX_LABEL: usize = 4096;
/// The longest reason. Reasons are for people, and longer ones are cut.
pub(crate) const MAX_REASON: usize = 1024;
/// The longest encoded message: a full packet, and room for the other fields.
pub(crate) const MAX_MESSAGE: usize = Packet::MAX_BYTES + (64 << 10);

/// What identifies a node: a hash of facts about the host.
pub(crate) type NodeId = [u8; 32];
/// The random name of a node's socket.
pub(crate) type DoorName = [u8; 16];

/// A message between the hub, which is rank 0, and the other ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Message {
    /// To the hub, as the first message: the node on which this rank runs.
    Join { node: NodeId },
    /// From the hub, when all have joined: the node of each rank.
    Start { nodes: Vec<u32> },
    /// From a node's leader, through the hub, to its node: where to connect.
    Door { name: DoorName },
    /// To the hub: this rank can exchange descriptors with its node.
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
    /// A rank's contribution to an exchange.
    Contribution {
        rank: u32,
        round: u64,
        handles: u8,
        label: String,
        #[serde(with = "bytes")]
        bytes: Vec<u8>,
    },
    /// From the hub to the contributor: its contribution to this round has a place in the common order.
    Accepted { round: u64 },
    /// The rank takes part in no exchange any more.
    Withdrawn {
        rank: u32,
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
    /// From the hub.
    Left { rank: u32 },
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

/// Bytes that are no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed message: {0}")]
pub(crate) struct Malformed(&'static str);

/// Writes a reason, cut to its limit between two characters.
fn shortened<S: Serializer>(reason: &str, to: S) -> Result<S::Ok, S::Error> {
    let mut end = reason.len().min(MAX_REASON);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    to.serialize_str(&reason[..end])
}

/// Encodes bytes as a whole, and not one by one.
mod bytes {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(bytes)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        <&[u8]>::deserialize(from).map(<[u8]>::to_vec)
    }
}

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
                if reason.len() > MAX_REASON =>
            {
                Some("a reason is too long")
            }
            Message::Start { nodes: ranks }
            | Message::Notify {
                to: Some(ranks), ..
            } if ranks.len() > MAX_RANKS => Some("a list of ranks is too long"),
            Message::Contribution { label, .. } if label.len() > MAX_LABEL => {
                Some("a label is too long")
            }
            Message::Contribution { handles, .. }
                if usize::from(*handles) > Packet::MAX_HANDLES =>
            {
                Some("too many handles")
            }
            Message::Contribution { bytes, .. } | Message::Notify { bytes, .. }
                if bytes.len() > Packet::MAX_BYTES =>
            {
                Some("a packet is too long")
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
    use proptest::prelude::*;

    pub(crate) fn any_message() -> impl Strategy<Value = Message> {
        let reason = || "\\PC{0,40}";
        let bytes = || prop::collection::vec(any::<u8>(), 0..64);
        let ranks = || prop::collection::vec(any::<u32>(), 0..9);
        prop_oneof![
            any::<[u8; 32]>().prop_map(|node| Message::Join { node }),
            ranks().prop_map(|nodes| Message::Start { nodes }),
            any::<[u8; 16]>().prop_map(|name| Message::Door { name }),
            Just(Message::Ready),
            Just(Message::Go),
            reason().prop_map(|reason| Message::Abort { reason }),
            Just(Message::Beat),
            (any::<u32>(), any::<u64>(), 0u8..=8, reason(), bytes()).prop_map(
                |(rank, round, handles, label, bytes)| Message::Contribution {
                    rank,
                    round,
                    handles,
                    label,
                    bytes
                }
            ),
            any::<u64>().prop_map(|round| Message::Accepted { round }),
            (any::<u32>(), reason()).prop_map(|(rank, reason)| Message::Withdrawn { rank, reason }),
            (any::<u32>(), prop::option::of(ranks()), bytes())
                .prop_map(|(from, to, bytes)| Message::Notify { from, to, bytes }),
            (any::<u32>(), reason(), any::<Option<u32>>()).prop_map(|(rank, reason, first)| {
                Message::Lost {
                    rank,
                    reason,
                    first,
                }
            }),
            any::<u32>().prop_map(|rank| Message::Left { rank }),
            Just(Message::Leave),
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
        let with = |label: usize, handles, bytes| Message::Contribution {
            rank: 0,
            round: 0,
            handles,
            label: "x".repeat(label),
            bytes: vec![0; bytes],
        };
        let most = Packet::MAX_HANDLES as u8;
        for (message, is_good) in [
            (
                Message::Start {
                    nodes: ranks(MAX_RANKS),
                },
                true,
            ),
            (
                Message::Start {
                    nodes: ranks(MAX_RANKS + 1),
                },
                false,
            ),
            (with(MAX_LABEL, most, 0), true),
            (with(MAX_LABEL + 1, most, 0), false),
            (with(MAX_LABEL, most + 1, 0), false),
            (with(0, 0, Packet::MAX_BYTES), true),
            (with(0, 0, Packet::MAX_BYTES + 1), false),
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
