//! The messages of an epoch.

use crate::faces::layout::{Geometry, SLOT_ALIGN};
use std::ops::Range;

/// The messages that one rank sends and receives in an epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// The messages that it sends, in the order of its outbound slots.
    pub outbound: Vec<Message>,
    /// The messages that it receives, in the order of its inbound slots.
    pub inbound: Vec<Message>,
    /// Words of the buffer that all messages are sent out of.
    pub words: usize,
}

/// One message, as either side sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The rank at the other side.
    pub peer: usize,
    /// If a sender has several messages to one receiver, the key says which is which. It is the same on both sides.
    pub key: u64,
    /// Where it lies in the sender's buffer, or in the receiver's buffer of gathered slots.
    pub range: Range<usize>,
}

/// Why there is no such pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// A single rank has no peer.
    #[error("a rank alone has no neighbours")]
    Alone,
    /// Too few messages, or messages of nothing.
    #[error("{what} must be at least 1")]
    Nothing {
        /// The name of the number that is too small.
        what: &'static str,
    },
    /// Messages are made of words.
    #[error("messages are multiples of 8 bytes, and {0} is not")]
    NotWords(usize),
}

impl Pattern {
    /// The messages of Faces: one to each neighbour of a block, of its face, edge or corner.
    pub fn faces(geometry: &Geometry) -> Pattern {
        let mut end = 0;
        let inbound = geometry.neighbours().map(|(direction, peer)| {
            let start = end;
            end += geometry.message_len(direction);
            // It was sent in the opposite direction.
            let key = direction.opposite().index() as u64;
            Message {
                peer,
                key,
                range: start..end,
            }
        });
        let inbound = inbound.collect();
        let outbound = geometry.neighbours().map(|(direction, peer)| Message {
            peer,
            key: direction.index() as u64,
            range: geometry.slot(direction),
        });
        Pattern {
            outbound: outbound.collect(),
            inbound,
            words: geometry.packed_len(),
        }
    }

    /// `count` messages of so many bytes, to the other ranks by turns: the first to the next rank, the second to the
    /// one after it, and so on; several to each if there are more messages than other ranks.
    ///
    /// # Errors
    ///
    /// [`PatternError`].
    pub fn ring(
        ranks: usize,
        rank: usize,
        count: usize,
        bytes: usize,
    ) -> Result<Pattern, PatternError> {
        if ranks < 2 {
            return Err(PatternError::Alone);
        }
        if count == 0 {
            let what = "the number of neighbours";
            return Err(PatternError::Nothing { what });
        }
        if bytes == 0 {
            let what = "the bytes of a message";
            return Err(PatternError::Nothing { what });
        }
        if !bytes.is_multiple_of(8) {
            return Err(PatternError::NotWords(bytes));
        }
        let words = bytes / 8;
        let stride = words.next_multiple_of(SLOT_ALIGN);
        let step = |index: usize| 1 + index % (ranks - 1);
        let outbound = (0..count).map(|index| Message {
            peer: (rank + step(index)) % ranks,
            key: index as u64,
            range: index * stride..index * stride + words,
        });
        let inbound = (0..count).map(|index| Message {
            peer: (rank + ranks - step(index)) % ranks,
            key: index as u64,
            range: index * words..(index + 1) * words,
        });
        Ok(Pattern {
            outbound: outbound.collect(),
            inbound: inbound.collect(),
            words: count * stride,
        })
    }

    /// Words that are received, one message after the other.
    pub fn received(&self) -> usize {
        self.inbound.last().map_or(0, |message| message.range.end)
    }

    /// Bytes that are sent.
    pub fn sent_bytes(&self) -> u64 {
        let words: usize = self.outbound.iter().map(|m| m.range.len()).sum();
        words as u64 * 8
    }

    /// The buffer that `rank` sends from in the run with this number; words between the messages are zero.
    pub fn fill(&self, rank: usize, run: u64) -> Vec<u64> {
        let mut words = vec![0; self.words];
        for message in &self.outbound {
            let seed = seed(rank, message.key, run);
            for (index, word) in words[message.range.clone()].iter_mut().enumerate() {
                *word = content(seed, index);
            }
        }
        words
    }

    /// Compares the received words with those that the others sent in the run with this number: `counted` words of each
    /// message, or all.
    ///
    /// # Errors
    ///
    /// The first wrong word, and how many words are wrong.
    pub fn check(&self, received: &[u64], counted: Option<usize>, run: u64) -> Result<(), String> {
        for (slot, message) in self.inbound.iter().enumerate() {
            let seed = seed(message.peer, message.key, run);
            let words = received
                .get(message.range.clone())
                .ok_or_else(|| format!("{} words are too few", received.len()))?;
            let words = &words[..counted.map_or(words.len(), |some| some.min(words.len()))];
            let wrong = || {
                let words = words.iter().enumerate();
                words.filter(|(index, word)| **word != content(seed, *index))
            };
            if let Some((index, word)) = wrong().next() {
                return Err(format!(
                    "slot {slot} from rank {}: {} of {} words are wrong, first word {index}: {word:#x}, not {:#x}",
                    message.peer,
                    wrong().count(),
                    words.len(),
                    content(seed, index)
                ));
            }
        }
        Ok(())
    }
}

fn seed(rank: usize, key: u64, run: u64) -> u64 {
    mix(mix(mix(rank as u64 + 1) ^ key) ^ run)
}

fn content(seed: u64, index: usize) -> u64 {
    mix(seed.wrapping_add(index as u64))
}

/// Steele, Lea and Flood's mixer: every bit of the result depends on every bit of the argument.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faces::params::{Grid, Size};

    /// Carries all messages, and checks them on every rank.
    fn carry(patterns: &[Pattern]) {
        for (rank, pattern) in patterns.iter().enumerate() {
            let mut received = vec![0; pattern.received()];
            for message in &pattern.inbound {
                let from = &patterns[message.peer];
                let sent = |m: &&Message| (m.peer, m.key) == (rank, message.key);
                let mut matching = from.outbound.iter().filter(sent);
                let sent = matching.next().expect("somebody sends it");
                assert!(matching.next().is_none(), "only one does");
                received[message.range.clone()]
                    .copy_from_slice(&from.fill(message.peer, 3)[sent.range.clone()]);
            }
            assert_eq!(pattern.check(&received, None, 3), Ok(()));
            assert!(pattern.check(&received, None, 4).is_err());
            if let Some(last) = received.last_mut() {
                *last ^= 1;
                let error = pattern.check(&received, None, 3).unwrap_err();
                assert!(error.contains(": 1 of "), "{error}");
            }
        }
    }

    #[test]
    fn messages_fit_together() {
        for (ranks, count) in [(2, 1), (2, 26), (8, 3), (8, 7), (8, 26), (3, 4)] {
            let patterns: Vec<_> = (0..ranks)
                .map(|rank| Pattern::ring(ranks, rank, count, 40).unwrap())
                .collect();
            carry(&patterns);
        }
        let size = Size { m: [2, 3, 2], n: 4 };
        let geometry = |rank| Geometry::new(Grid([3, 2, 2]), size, rank).unwrap();
        let patterns: Vec<_> = (0..12)
            .map(|rank| Pattern::faces(&geometry(rank)))
            .collect();
        assert_eq!(patterns[0].sent_bytes(), geometry(0).sent_bytes() as u64);
        carry(&patterns);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert_eq!(Pattern::ring(1, 0, 1, 8), Err(PatternError::Alone));
        assert_eq!(Pattern::ring(2, 0, 1, 12), Err(PatternError::NotWords(12)));
        assert!(Pattern::ring(2, 0, 0, 8).is_err() && Pattern::ring(2, 0, 1, 0).is_err());
    }
}
