//! Which rank's failure was the first.
//!
//! # Model
//!
//! A rank that fails because of another one tells which (`tidegate_boot::starter::Ends`), and often ends before it. So
//! the launcher goes from the rank that has ended first to the rank that this one names, and on from there. It does not
//! ask when processes have ended: that depends on the machine.

/// The rank that was the first to fail, if `rank` has failed. `because_of` is what the ranks have told.
pub(super) fn first(rank: usize, because_of: impl Fn(usize) -> Option<usize>) -> usize {
    let mut path = vec![rank];
    loop {
        let last = path[path.len() - 1];
        let Some(next) = because_of(last) else {
            return last;
        };
        let Some(begin) = path.iter().position(|rank| *rank == next) else {
            path.push(next);
            continue;
        };
        // Ranks have lost each other, as when the network fails. Rank 0 carries the control plane, so its word counts.
        let ring = &path[begin..];
        let word_of_0 = because_of(0).filter(|_| ring.contains(&0));
        return word_of_0.or(ring.iter().min().copied()).unwrap_or(next);
    }
}

#[cfg(test)]
mod tests {
    use super::first;

    /// The first rank, if rank `n` says that it fails because of the rank at place `n`.
    fn of(rank: usize, told: &[Option<usize>]) -> usize {
        first(rank, |rank| told[rank])
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
}
