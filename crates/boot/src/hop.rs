//! What neighbours of the tree send each other, and its encoding.
//!
//! # Model
//!
//! A [`Hop`] goes over one connection. Most hops carry [`Message`]s: up to rank 0 ([`Up`]), or down from it ([`Down`]).
//!
//! # Failure
//!
//! [`decode`] returns a hop or [`Malformed`] for any bytes. It refuses extra bytes at the end, and fields that are longer
//! than their limits.

use crate::fields::{MAX_REASON, shortened};
use crate::set::RankSet;
use crate::tally::Tally;
use crate::wire::{MAX_RANKS, Malformed, Message, NodeId};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::Arc;

/// About how many bytes of messages go into one hop, if there are several.
pub(crate) const BUNDLE: usize = 2 << 20;

/// What neighbours send each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Hop {
    /// To rank 0, from a rank that joins: its node, and the port at which it listens for other ranks.
    Join { node: NodeId, port: u16 },
    /// To rank 0, from a rank that has lost its parent.
    Resume,
    /// From rank 0: the rank that is the parent now, and where it listens. Rank 0 has no address, since this connection
    /// is good for that.
    Place {
        parent: u32,
        address: Option<SocketAddr>,
    },
    /// To rank 0: the parent cannot be reached.
    Unreached,
    /// To rank 0: this rank has its parent, and the connection ends.
    Placed,
    /// To the parent, as the first hop: up to which number the rank has heard the messages, and up to which number all
    /// ranks from here downwards have. That may be less, since messages to them may be on their way.
    Attach { heard: u64, all_heard: u64 },
    /// To the parent, towards rank 0.
    Up(Up),
    /// To a child, from rank 0.
    Down(Down),
    /// To a child that was active before its parent found a new one: what has not been answered must be said again.
    Again,
    /// To a child: the sender is alive, and so much has been sent. The child answers by [`Hop::Up`].
    Beat { upto: u64 },
    /// To a child: rank 0 is lost.
    Cut {
        #[serde(serialize_with = "shortened")]
        reason: String,
    },
    /// To a child, or from rank 0: the receiver was given up.
    GivenUp {
        #[serde(serialize_with = "shortened")]
        reason: String,
    },
    /// From rank 0 to a rank without a parent: the job cannot start.
    Abort {
        #[serde(serialize_with = "shortened")]
        reason: String,
    },
}

/// What ranks say to rank 0, on its way over one connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Up {
    /// How often the parent has asked for everything again on this connection.
    pub(crate) epoch: u32,
    /// All ranks from here downwards have heard the messages up to this number.
    pub(crate) heard: u64,
    pub(crate) items: Vec<Arc<Item>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Item {
    /// What one rank says. It numbers these from 1, and may repeat them.
    Said {
        from: u32,
        seq: u64,
        message: Message,
    },
    /// Ranks that come to a round of all ranks. Each comes after its letters.
    Votes { round: u64, tally: Tally },
    /// Ranks that are ready to begin.
    Ready { ranks: RankSet },
}

/// What rank 0 says to ranks, on its way over one connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Down {
    /// With these messages, the receiver has everything up to this number that is for it and the ranks below it.
    pub(crate) upto: u64,
    pub(crate) items: Vec<Arc<Passed>>,
}

/// A message of rank 0. They are numbered from 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Passed {
    pub(crate) number: u64,
    /// It was sent before, and is for this rank and the ranks below it, which may have missed it.
    pub(crate) below: Option<u32>,
    pub(crate) to: To,
    pub(crate) message: Message,
}

/// The receivers of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum To {
    All,
    Others(u32),
    One(u32),
    Ranks(Vec<u32>),
}

impl Item {
    /// About how many bytes the encoded item takes.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Item::Said { message, .. } => message.weight(),
            Item::Votes { tally, .. } => tally.weight(),
            Item::Ready { ranks } => ranks.weight(),
        }
    }

    fn exceeds(&self) -> Option<&'static str> {
        match self {
            Item::Said { message, .. } => message.exceeds(),
            Item::Votes { tally, .. } => tally.exceeds(MAX_RANKS),
            Item::Ready { ranks } if !ranks.is_within(MAX_RANKS) => {
                Some("a set of ranks is too large")
            }
            Item::Ready { .. } => None,
        }
    }
}

impl Passed {
    /// About how many bytes the encoded message takes, with its receivers.
    pub(crate) fn weight(&self) -> usize {
        let ranks = match &self.to {
            To::Ranks(ranks) => 3 * ranks.len(),
            To::All | To::Others(_) | To::One(_) => 4,
        };
        ranks + self.message.weight()
    }

    fn exceeds(&self) -> Option<&'static str> {
        match &self.to {
            To::Ranks(ranks) if ranks.len() > MAX_RANKS => Some("a list of ranks is too long"),
            _ => self.message.exceeds(),
        }
    }
}

impl Hop {
    pub(crate) fn encode(&self) -> Vec<u8> {
        // What grows by doubling takes up to three times as much at its end.
        let room = match self {
            Hop::Up(up) => up.items.iter().map(|item| item.weight()).sum(),
            Hop::Down(down) => down.items.iter().map(|item| item.weight()).sum(),
            _ => 0,
        };
        let bytes = Vec::with_capacity(room + 32);
        postcard::to_extend(self, bytes).expect("a vector takes anything")
    }

    fn exceeds(&self) -> Option<&'static str> {
        match self {
            Hop::Cut { reason } | Hop::GivenUp { reason } | Hop::Abort { reason }
                if reason.len() > MAX_REASON =>
            {
                Some("a reason is too long")
            }
            Hop::Up(up) => up.items.iter().find_map(|item| item.exceeds()),
            Hop::Down(down) => down.items.iter().find_map(|item| item.exceeds()),
            _ => None,
        }
    }
}

/// Decodes one hop.
pub(crate) fn decode(body: &[u8]) -> Result<Hop, Malformed> {
    match postcard::take_from_bytes::<Hop>(body) {
        Err(_) => Err(Malformed("its bytes are no message")),
        Ok((_, [_, ..])) => Err(Malformed("bytes are left over")),
        Ok((hop, [])) => match hop.exceeds() {
            None => Ok(hop),
            Some(limit) => Err(Malformed(limit)),
        },
    }
}

/// Divides things among hops, none of which becomes much longer than [`BUNDLE`].
pub(crate) fn bundles<T>(things: Vec<T>, weight: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let mut bundles: Vec<Vec<T>> = Vec::new();
    let mut room = 0;
    for thing in things {
        let weight = weight(&thing);
        match bundles.last_mut() {
            Some(bundle) if weight <= room => bundle.push(thing),
            _ => {
                bundles.push(vec![thing]);
                room = BUNDLE;
            }
        }
        room = room.saturating_sub(weight);
    }
    bundles
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::votes::tests::any_vote;
    use crate::votes::{Call, Kind};
    use crate::wire::{MAX_MESSAGE, tests::any_message};
    use proptest::prelude::*;

    fn any_ranks() -> impl Strategy<Value = Vec<u32>> {
        prop::collection::vec(0..MAX_RANKS as u32, 0..9)
    }

    fn any_item() -> impl Strategy<Value = Item> {
        let said = (any::<u32>(), any::<u64>(), any_message());
        let votes = prop::collection::vec((0..200u32, any_vote()), 1..5);
        prop_oneof![
            3 => said.prop_map(|(from, seq, message)| Item::Said { from, seq, message }),
            1 => (any::<u64>(), votes).prop_map(|(round, votes)| {
                let mut tally = Tally::default();
                for (rank, vote) in votes {
                    tally.merge(Tally::of(rank, Call::new(Kind::Confer, "a"), vote));
                }
                Item::Votes { round, tally }
            }),
            1 => any_ranks().prop_map(|some| {
                let mut ranks = RankSet::default();
                some.into_iter().for_each(|rank| ranks.insert(rank));
                Item::Ready { ranks }
            }),
        ]
    }

    fn any_passed() -> impl Strategy<Value = Passed> {
        let to = prop_oneof![
            Just(To::All),
            any::<u32>().prop_map(To::Others),
            any::<u32>().prop_map(To::One),
            any_ranks().prop_map(To::Ranks)
        ];
        (any::<u64>(), any::<Option<u32>>(), to, any_message()).prop_map(
            |(number, below, to, message)| Passed {
                number,
                below,
                to,
                message,
            },
        )
    }

    pub(crate) fn any_hop() -> impl Strategy<Value = Hop> {
        let reason = || "\\PC{0,40}";
        let items = prop::collection::vec(any_item().prop_map(Arc::new), 0..4);
        let passed = prop::collection::vec(any_passed().prop_map(Arc::new), 0..4);
        prop_oneof![
            (any::<[u8; 32]>(), any::<u16>()).prop_map(|(node, port)| Hop::Join { node, port }),
            Just(Hop::Resume),
            Just(Hop::Unreached),
            Just(Hop::Placed),
            Just(Hop::Again),
            (any::<u32>(), any::<Option<([u8; 4], u16)>>()).prop_map(|(parent, address)| {
                let address = address.map(SocketAddr::from);
                Hop::Place { parent, address }
            }),
            (any::<u64>(), any::<u64>())
                .prop_map(|(heard, all_heard)| Hop::Attach { heard, all_heard }),
            any::<u64>().prop_map(|upto| Hop::Beat { upto }),
            reason().prop_map(|reason| Hop::Cut { reason }),
            reason().prop_map(|reason| Hop::GivenUp { reason }),
            reason().prop_map(|reason| Hop::Abort { reason }),
            (any::<u32>(), any::<u64>(), items).prop_map(|(epoch, heard, items)| {
                Hop::Up(Up {
                    epoch,
                    heard,
                    items,
                })
            }),
            (any::<u64>(), passed).prop_map(|(upto, items)| Hop::Down(Down { upto, items })),
        ]
    }

    /// How much longer than the weight of a message its hop may be: ranks that no job has take five bytes each.
    const MORE: usize = 128;

    proptest! {
        #[test]
        fn encoded_hops_are_decoded(hop in any_hop()) {
            let body = hop.encode();
            prop_assert_eq!(decode(&body), Ok(hop));
            let mut longer = body.clone();
            longer.push(0);
            prop_assert!(decode(&longer).is_err());
            prop_assert!(decode(&body[..body.len() - 1]).is_err());
        }

        #[test]
        fn what_is_encoded_is_not_much_longer_than_its_weight(item in any_item(), passed in any_passed()) {
            let (weight, items) = (item.weight(), vec![Arc::new(item)]);
            let (epoch, heard) = (u32::MAX, u64::MAX);
            let length = Hop::Up(Up { epoch, heard, items }).encode().len();
            prop_assert!(length <= weight + MORE, "{length} of {weight}");
            let (weight, items) = (passed.weight(), vec![Arc::new(passed)]);
            let length = Hop::Down(Down { upto: u64::MAX, items }).encode().len();
            prop_assert!(length <= weight + MORE, "{length} of {weight}");
        }

        #[test]
        fn bundles_keep_the_order_and_are_not_long(weights in prop::collection::vec(0..2 * BUNDLE, 0..20)) {
            let bundles = bundles(weights.clone(), |weight| *weight);
            for bundle in &bundles {
                prop_assert!(bundle.len() == 1 || bundle.iter().sum::<usize>() <= BUNDLE);
            }
            prop_assert_eq!(bundles.concat(), weights);
        }
    }

    /// If many ranks end at a time, all others hear of all of them.
    #[test]
    fn many_ranks_are_lost_in_hops_that_are_not_too_long() {
        let lost = |rank| {
            let message = Message::Lost {
                rank,
                reason: "x".repeat(200),
                first: None,
            };
            Arc::new(Passed {
                number: u64::from(rank),
                below: None,
                to: To::All,
                message,
            })
        };
        let lost = (0..60_000).map(lost).collect();
        for items in bundles(lost, |passed: &Arc<Passed>| passed.weight()) {
            let length = Hop::Down(Down { upto: 0, items }).encode().len();
            assert!(length <= MAX_MESSAGE, "{length}");
        }
    }

    /// Rank 0 keeps a letter of each rank to each of its neighbours until all have come. So what is seldom lies apart.
    #[test]
    fn what_waits_is_small() {
        assert!(size_of::<Message>() <= 72);
        assert!(size_of::<Item>() <= 88);
        assert!(size_of::<Passed>() <= 112);
    }

    #[test]
    fn claimed_lengths_are_not_believed() {
        for kind in 0..=u8::MAX {
            let mut body = vec![kind];
            body.extend_from_slice(&[0xff; 8]);
            assert!(decode(&body).is_err());
        }
    }
}
