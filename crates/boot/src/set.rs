//! Sets of ranks, which are small where the ranks are few or close to each other.

use serde::{Deserialize, Serialize};

/// How many ranks a word holds.
const WORD: u32 = u64::BITS;

/// A set of ranks. Sets can be united in any order and as often as one likes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RankSet {
    /// How many words without a rank are left out at the beginning.
    skipped: u32,
    words: Vec<u64>,
}

impl RankSet {
    pub(crate) const fn new() -> Self {
        Self {
            skipped: 0,
            words: Vec::new(),
        }
    }

    pub(crate) fn of(rank: u32) -> Self {
        Self {
            skipped: rank / WORD,
            words: vec![1 << (rank % WORD)],
        }
    }

    /// Whether all ranks are less than `size`. A set from elsewhere has to be asked before anything else.
    pub(crate) fn is_within(&self, size: usize) -> bool {
        let most = size.div_ceil(WORD as usize);
        let end = (self.skipped as usize).saturating_add(self.words.len());
        let fits = end <= most || (self.words.is_empty() && self.skipped == 0);
        fits && self.iter().all(|rank| (rank as usize) < size)
    }

    /// About how many bytes the encoded set takes at most.
    pub(crate) fn weight(&self) -> usize {
        // A word takes up to ten bytes.
        10 * self.words.len() + 8
    }

    pub(crate) fn len(&self) -> usize {
        let ones = self.words.iter().map(|word| word.count_ones() as usize);
        ones.sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    pub(crate) fn unite(&mut self, that: &Self) {
        if that.words.is_empty() {
            return;
        }
        if self.words.is_empty() {
            self.clone_from(that);
            return;
        }
        let first = self.skipped.min(that.skipped);
        if first < self.skipped {
            let more = (self.skipped - first) as usize;
            self.words.splice(0..0, std::iter::repeat_n(0, more));
            self.skipped = first;
        }
        let offset = (that.skipped - first) as usize;
        let end = offset + that.words.len();
        if self.words.len() < end {
            self.words.resize(end, 0);
        }
        for (mine, theirs) in self.words[offset..].iter_mut().zip(&that.words) {
            *mine |= theirs;
        }
    }

    pub(crate) fn contains(&self, rank: usize) -> bool {
        let (word, bit) = (rank / WORD as usize, rank % WORD as usize);
        let word = word.checked_sub(self.skipped as usize);
        let word = word.and_then(|word| self.words.get(word));
        word.is_some_and(|word| word >> bit & 1 == 1)
    }

    pub(crate) fn insert(&mut self, rank: u32) {
        self.unite(&Self::of(rank));
    }

    /// The ranks, in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        let words = self.words.iter().enumerate();
        words.flat_map(|(index, &word)| {
            let first = (self.skipped + index as u32) * WORD;
            (0..WORD)
                .filter(move |bit| word >> bit & 1 == 1)
                .map(move |bit| first + bit)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_is_a_set(ranks in prop::collection::vec(0u32..1000, 0..40), parts in 1usize..5) {
            let mut united = RankSet::default();
            for part in ranks.chunks(ranks.len().div_ceil(parts).max(1)) {
                let mut set = RankSet::default();
                part.iter().for_each(|rank| set.insert(*rank));
                united.unite(&set);
                united.unite(&set);
            }
            let model: BTreeSet<_> = ranks.into_iter().collect();
            prop_assert_eq!(united.len(), model.len());
            prop_assert_eq!(united.is_empty(), model.is_empty());
            let most = model.last().map_or(0, |rank| *rank as usize + 1);
            prop_assert!(united.is_within(most) && united.is_within(1000));
            prop_assert!(most == 0 || !united.is_within(most - 1));
            prop_assert!((0..1100).all(|rank| united.contains(rank) == model.contains(&(rank as u32))));
            prop_assert!(united.iter().eq(model));
        }
    }
}
