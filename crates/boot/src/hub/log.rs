//! What the hub has said, as long as a rank may have missed it.

use crate::hop::{Passed, To};
use crate::wire::Message;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

#[derive(Debug, Default)]
pub(super) struct Log {
    /// The number of the last message.
    last: u64,
    /// The last messages, in the order of their numbers.
    kept: VecDeque<Arc<Passed>>,
}

impl Log {
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Gives a message its number, and keeps it.
    pub(super) fn add(&mut self, to: To, message: Message) -> Arc<Passed> {
        self.last += 1;
        let passed = Arc::new(Passed {
            number: self.last,
            below: None,
            to,
            message,
        });
        self.kept.push_back(Arc::clone(&passed));
        passed
    }

    /// Forgets the messages up to this number, which all ranks have heard.
    pub(super) fn forget(&mut self, heard: u64) {
        while self.kept.front().is_some_and(|kept| kept.number <= heard) {
            self.kept.pop_front();
        }
    }

    /// What was said after this number to a rank and those `below` it, which include it. `None`: some of it is forgotten.
    pub(super) fn since(
        &self,
        heard: u64,
        rank: u32,
        below: &BTreeSet<u32>,
    ) -> Option<Vec<Arc<Passed>>> {
        let first = self.kept.front().map_or(self.last + 1, |kept| kept.number);
        if heard + 1 < first {
            return None;
        }
        let missed = self.kept.iter().filter(|kept| kept.number > heard);
        let again = missed.filter_map(|kept| {
            let to = match &kept.to {
                To::Ranks(ranks) => {
                    let ranks = ranks.iter().copied().filter(|rank| below.contains(rank));
                    let ranks: Vec<_> = ranks.collect();
                    if ranks.is_empty() {
                        return None;
                    }
                    To::Ranks(ranks)
                }
                To::One(one) if !below.contains(one) => return None,
                to => to.clone(),
            };
            Some(Arc::new(Passed {
                number: kept.number,
                below: Some(rank),
                to,
                message: kept.message.clone(),
            }))
        });
        Some(again.collect())
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }
}
