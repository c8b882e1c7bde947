//! The messages of the control plane and their encoding.
//!
//! # Model
//!
//! A message is one byte of kind and its fields: integers little-endian, texts and byte strings with a `u32` length
//! in front. The last byte string of a message needs no other end than the message's. There is exactly one
//! encoding of a message, and the decoder refuses everything else, including bytes left over.
//!
//! # Failure
//!
//! [`decode`] is total: any bytes give a message or a [`Malformed`]. It never allocates more than the bytes it was
//! given justify: a length is compared with what is there before anything is reserved.

use tidegate_hal::control::Packet;

/// The most ranks of a job; what keeps lists of ranks within a frame.
pub const MAX_RANKS: usize = 4096;
/// The longest label of an exchange.
pub(crate) const MAX_LABEL: usize = 4096;
/// Reasons are for people; longer ones are cut.
pub(crate) const MAX_REASON: usize = 1024;
/// The longest encoded message: a full packet, and room for the other fields.
pub(crate) const MAX_MESSAGE: usize = Packet::MAX_BYTES + (64 << 10);

/// What identifies a node: a hash of facts about the host.
pub(crate) type NodeId = [u8; 32];
/// The random name of a node's socket.
pub(crate) type DoorName = [u8; 16];

/// What travels between rank 0, the hub, and the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// To the hub, first: on which node this rank runs.
    Join { node: NodeId },
    /// From the hub, when all have joined: the node of each rank.
    Start { nodes: Vec<u32> },
    /// From a node's leader by way of the hub to its node: where to connect.
    Door { name: DoorName },
    /// To the hub: this rank can exchange descriptors with its node.
    Ready,
    /// From the hub: all are ready.
    Go,
    /// From the hub: the job cannot start.
    Abort { reason: String },
    /// Both ways: still here.
    Beat,
    /// A rank's part of an exchange.
    Contribution {
        rank: u32,
        round: u64,
        handles: u8,
        label: String,
        bytes: Vec<u8>,
    },
    /// From the hub to the contributor: its part of this round has its place in the order of all.
    Accepted { round: u64 },
    /// A rank takes part in no exchange any more.
    Withdrawn { rank: u32, reason: String },
    /// To the hub with the receivers (none: all others), from the hub without.
    Notify {
        from: u32,
        to: Option<Vec<u32>>,
        bytes: Vec<u8>,
    },
    /// From the hub.
    Lost { rank: u32, reason: String },
    /// From the hub.
    Left { rank: u32 },
    /// To the hub: leaving in good order.
    Leave,
    /// To the hub: ending in bad order, and able to say so.
    Fail { reason: String },
    /// From the hub: the answer to `Leave` and `Fail`; the connection may be closed.
    Bye,
}

/// Bytes that are no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed message: {0}")]
pub(crate) struct Malformed(&'static str);

const JOIN: u8 = 1;
const START: u8 = 2;
const DOOR: u8 = 3;
const READY: u8 = 4;
const GO: u8 = 5;
const ABORT: u8 = 6;
const BEAT: u8 = 7;
const CONTRIBUTION: u8 = 8;
const WITHDRAWN: u8 = 9;
const NOTIFY: u8 = 10;
const LOST: u8 = 11;
const LEFT: u8 = 12;
const LEAVE: u8 = 13;
const FAIL: u8 = 14;
const BYE: u8 = 15;
const ACCEPTED: u8 = 16;

/// Cuts a text to `limit` bytes, at a border of characters.
fn cut(text: &str, limit: usize) -> &str {
    let mut end = text.len().min(limit);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn put_ranks(out: &mut Vec<u8>, ranks: &[u32]) {
    out.extend_from_slice(&(ranks.len() as u32).to_le_bytes());
    for rank in ranks {
        out.extend_from_slice(&rank.to_le_bytes());
    }
}

impl Message {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Message::Join { node } => {
                out.push(JOIN);
                out.extend_from_slice(node);
            }
            Message::Start { nodes } => {
                out.push(START);
                put_ranks(&mut out, nodes);
            }
            Message::Door { name } => {
                out.push(DOOR);
                out.extend_from_slice(name);
            }
            Message::Ready => out.push(READY),
            Message::Go => out.push(GO),
            Message::Abort { reason } => {
                out.push(ABORT);
                put_text(&mut out, cut(reason, MAX_REASON));
            }
            Message::Beat => out.push(BEAT),
            Message::Contribution {
                rank,
                round,
                handles,
                label,
                bytes,
            } => {
                out.reserve(32 + label.len() + bytes.len());
                out.push(CONTRIBUTION);
                out.extend_from_slice(&rank.to_le_bytes());
                out.extend_from_slice(&round.to_le_bytes());
                out.push(*handles);
                put_text(&mut out, label);
                out.extend_from_slice(bytes);
            }
            Message::Accepted { round } => {
                out.push(ACCEPTED);
                out.extend_from_slice(&round.to_le_bytes());
            }
            Message::Withdrawn { rank, reason } => {
                out.push(WITHDRAWN);
                out.extend_from_slice(&rank.to_le_bytes());
                put_text(&mut out, cut(reason, MAX_REASON));
            }
            Message::Notify { from, to, bytes } => {
                out.reserve(32 + bytes.len());
                out.push(NOTIFY);
                out.extend_from_slice(&from.to_le_bytes());
                out.push(u8::from(to.is_some()));
                if let Some(to) = to {
                    put_ranks(&mut out, to);
                }
                out.extend_from_slice(bytes);
            }
            Message::Lost { rank, reason } => {
                out.push(LOST);
                out.extend_from_slice(&rank.to_le_bytes());
                put_text(&mut out, cut(reason, MAX_REASON));
            }
            Message::Left { rank } => {
                out.push(LEFT);
                out.extend_from_slice(&rank.to_le_bytes());
            }
            Message::Leave => out.push(LEAVE),
            Message::Fail { reason } => {
                out.push(FAIL);
                put_text(&mut out, cut(reason, MAX_REASON));
            }
            Message::Bye => out.push(BYE),
        }
        out
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (head, tail) = self
            .0
            .split_at_checked(len)
            .ok_or(Malformed("it is cut short"))?;
        self.0 = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, tail) = self
            .0
            .split_first_chunk::<N>()
            .ok_or(Malformed("it is cut short"))?;
        self.0 = tail;
        Ok(*head)
    }

    fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn text(&mut self, limit: usize) -> Result<String, Malformed> {
        let len = self.u32()? as usize;
        if len > limit {
            return Err(Malformed("a text is too long"));
        }
        match std::str::from_utf8(self.take(len)?) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(Malformed("a text is not UTF-8")),
        }
    }

    fn ranks(&mut self) -> Result<Vec<u32>, Malformed> {
        let count = self.u32()? as usize;
        if count > MAX_RANKS {
            return Err(Malformed("a list of ranks is too long"));
        }
        let (list, _) = self.take(4 * count)?.as_chunks::<4>();
        Ok(list.iter().map(|rank| u32::from_le_bytes(*rank)).collect())
    }

    fn rest(&mut self) -> Result<Vec<u8>, Malformed> {
        let rest = std::mem::take(&mut self.0);
        if rest.len() > Packet::MAX_BYTES {
            return Err(Malformed("a packet is too long"));
        }
        Ok(rest.to_vec())
    }
}

/// Decodes one message.
pub(crate) fn decode(body: &[u8]) -> Result<Message, Malformed> {
    let mut reader = Reader(body);
    let message = match reader.u8()? {
        JOIN => Message::Join {
            node: reader.array()?,
        },
        START => Message::Start {
            nodes: reader.ranks()?,
        },
        DOOR => Message::Door {
            name: reader.array()?,
        },
        READY => Message::Ready,
        GO => Message::Go,
        ABORT => Message::Abort {
            reason: reader.text(MAX_REASON)?,
        },
        BEAT => Message::Beat,
        CONTRIBUTION => {
            let rank = reader.u32()?;
            let round = u64::from_le_bytes(reader.array()?);
            let handles = reader.u8()?;
            if usize::from(handles) > Packet::MAX_HANDLES {
                return Err(Malformed("too many handles"));
            }
            let label = reader.text(MAX_LABEL)?;
            let bytes = reader.rest()?;
            Message::Contribution {
                rank,
                round,
                handles,
                label,
                bytes,
            }
        }
        ACCEPTED => Message::Accepted {
            round: u64::from_le_bytes(reader.array()?),
        },
        WITHDRAWN => Message::Withdrawn {
            rank: reader.u32()?,
            reason: reader.text(MAX_REASON)?,
        },
        NOTIFY => {
            let from = reader.u32()?;
            let to = match reader.u8()? {
                0 => None,
                1 => Some(reader.ranks()?),
                _ => return Err(Malformed("a flag is neither 0 nor 1")),
            };
            let bytes = reader.rest()?;
            Message::Notify { from, to, bytes }
        }
        LOST => Message::Lost {
            rank: reader.u32()?,
            reason: reader.text(MAX_REASON)?,
        },
        LEFT => Message::Left {
            rank: reader.u32()?,
        },
        LEAVE => Message::Leave,
        FAIL => Message::Fail {
            reason: reader.text(MAX_REASON)?,
        },
        BYE => Message::Bye,
        _ => return Err(Malformed("its kind is unknown")),
    };
    if !reader.0.is_empty() {
        return Err(Malformed("bytes are left over"));
    }
    Ok(message)
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
            (any::<u32>(), reason()).prop_map(|(rank, reason)| Message::Lost { rank, reason }),
            any::<u32>().prop_map(|rank| Message::Left { rank }),
            Just(Message::Leave),
            reason().prop_map(|reason| Message::Fail { reason }),
            Just(Message::Bye),
        ]
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(message in any_message()) {
            let body = message.encode();
            prop_assert_eq!(decode(&body), Ok(message));
            // No shorter and no longer one is a message of the same kind with a fixed end.
            let mut longer = body.clone();
            longer.push(0);
            if let Ok(other) = decode(&longer) {
                prop_assert_eq!(other.encode(), longer);
            }
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(body in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(message) = decode(&body) {
                prop_assert_eq!(message.encode(), body);
            }
        }

        #[test]
        fn a_damaged_message_is_decoded_or_refused(
            message in any_message(), at in any::<prop::sample::Index>(), bit in 0u8..8, keep in any::<prop::sample::Index>()
        ) {
            let mut body = message.encode();
            let at = at.index(body.len());
            body[at] ^= 1 << bit;
            let _ = decode(&body);
            let _ = decode(&body[..keep.index(body.len())]);
        }
    }

    #[test]
    fn claimed_lengths_are_not_believed() {
        for kind in [ABORT, START, LOST] {
            let mut body = vec![kind];
            body.extend_from_slice(&[0xff; 8]);
            assert!(decode(&body).is_err());
        }
    }

    #[test]
    fn long_reasons_are_cut_between_characters() {
        let reason = "é".repeat(MAX_REASON);
        let body = Message::Fail { reason }.encode();
        assert!(
            matches!(decode(&body), Ok(Message::Fail { reason }) if reason.len() == MAX_REASON)
        );
    }
}
