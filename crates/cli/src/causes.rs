//! Which rank's failure was the first.
//!
//! # Model
//!
//! A rank that fails because of another one tells which (`tidegate_boot::starter::Ends`), and often ends before it. So
//! the launcher goes from the rank that has ended first to the rank that this one names, and on from there. It does not
//! ask when processes have ended: that depends on the machine.

use std::collections::HashMap;

/// What is known already, if all ranks are asked for. Then each of them is looked at once.
#[derive(Debug, Default)]
pub(super) struct Firsts(HashMap<usize, usize>);

impl Firsts {
    /// The rank that was the first to fail, if `rank` has failed. `because_of` is what the ranks have told. It must be
    /// the same in each call.
    pub(super) fn of(&mut self, rank: usize, because_of: impl Fn(usize) -> Option<usize>) -> usize {
        let (mut path, mut places) = (Vec::new(), HashMap::new());
        let mut last = rank;
        let first = loop {
            if let Some(first) = self.0.get(&last) {
                break *first;
            }
            if let Some(begin) = places.insert(last, path.len()) {
                // Ranks have lost each other, as when the network fails. Rank 0 carries the control plane, so its word
                // counts.
                let ring = &path[begin..];
                let word_of_0 = because_of(0).filter(|_| ring.contains(&0));
                break word_of_0.or(ring.iter().min().copied()).unwrap_or(last);
            }
            path.push(last);
            match because_of(last) {
                Some(next) => last = next,
                None => break last,
            }
        };
        self.0.extend(path.into_iter().map(|rank| (rank, first)));
        first
    }
}

#[cfg(test)]
mod tests {
    use super::Firsts;
    use std::cell::Cell;

    /// The first rank, if rank `n` says that it fails because of the rank at place `n`.
    fn of(rank: usize, told: &[Option<usize>]) -> usize {
        Firsts::default().of(rank, |rank| told[rank])
    }

    #[test]
    fn the_rank_that_names_no_other_was_the_first() {
        let told = [Some(1), Some(2), None, None];
        assert_eq!([0, 1, 2, 3].map(|rank| of(rank, &told)), [2, 2, 2, 3]);
    }

    #[test]
    fn of_ranks_that_name_each_other_all_name_the_same() {
        let told = [Some(2), Some(2), Some(0)];
        assert_eq!([0, 1, 2].map(|rank| of(rank, &told)), [2, 2, 2]);
        let told = [Some(3), Some(2), Some(1), Some(2), Some(4)];
        assert_eq!([0, 1, 2, 3].map(|rank| of(rank, &told)), [1, 1, 1, 1]);
        assert_eq!(of(4, &told), 4);
    }

    #[test]
    fn what_is_known_is_not_looked_for_again() {
        let told = [
            Some(3),
            Some(2),
            Some(1),
            Some(2),
            Some(4),
            Some(0),
            None,
            Some(6),
        ];
        let mut firsts = Firsts::default();
        for rank in [5, 0, 1, 2, 3, 4, 6, 7] {
            assert_eq!(firsts.of(rank, |rank| told[rank]), of(rank, &told));
        }
        let (ranks, asked) = (10_000, Cell::new(0));
        let before = |rank: usize| {
            asked.set(asked.get() + 1);
            rank.checked_sub(1)
        };
        let mut firsts = Firsts::default();
        assert!((0..ranks).rev().all(|rank| firsts.of(rank, before) == 0));
        assert_eq!(asked.get(), ranks);
    }
}
