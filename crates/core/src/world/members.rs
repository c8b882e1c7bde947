//! The ranks of a team, and their numbers in it.
//!
//! A program gives the ranks of a team the numbers from 0 that they have in it. Everything else (words, routes,
//! messages, texts for people) has their numbers in the job. The two are the same in the team of all ranks.

use std::sync::Arc;

/// The ranks of a team, in its order.
#[derive(Clone, Debug)]
pub(crate) enum Members {
    /// All ranks of a job of this size.
    All(usize),
    Some(Arc<Listed>),
}

#[derive(Debug)]
pub(crate) struct Listed {
    /// The ranks of the job, by their numbers in the team.
    ranks: Box<[usize]>,
    /// Both numbers of each rank, the one of the job first, in ascending order.
    sorted: Box<[(usize, usize)]>,
}

impl Members {
    /// Different ranks, in the order of the team.
    pub(crate) fn new(ranks: &[usize]) -> Self {
        let mut sorted: Vec<_> = ranks.iter().copied().zip(0..).collect();
        sorted.sort_unstable();
        Members::Some(Arc::new(Listed {
            ranks: ranks.into(),
            sorted: sorted.into(),
        }))
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Members::All(size) => *size,
            Members::Some(listed) => listed.ranks.len(),
        }
    }

    /// The number in the job of a rank of the team.
    pub(crate) fn in_job(&self, rank: usize) -> Option<usize> {
        match self {
            Members::All(size) => (rank < *size).then_some(rank),
            Members::Some(listed) => listed.ranks.get(rank).copied(),
        }
    }

    /// The number in the team of a rank of the job.
    pub(crate) fn in_team(&self, rank: usize) -> Option<usize> {
        match self {
            Members::All(size) => (rank < *size).then_some(rank),
            Members::Some(listed) => {
                let sorted = &listed.sorted;
                let place = sorted.binary_search_by_key(&rank, |(rank, _)| *rank).ok()?;
                Some(sorted[place].1)
            }
        }
    }

    /// Whether a rank of the job is in the team.
    pub(crate) fn contains(&self, rank: usize) -> bool {
        match self {
            Members::All(_) => true,
            Members::Some(_) => self.in_team(rank).is_some(),
        }
    }

    /// The numbers in the job, in the order of the team.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.len()).filter_map(|rank| self.in_job(rank))
    }

    /// The numbers in the job, in ascending order; `None` for all ranks.
    pub(crate) fn listed(&self) -> Option<Vec<usize>> {
        match self {
            Members::All(_) => None,
            Members::Some(listed) => Some(listed.sorted.iter().map(|(rank, _)| *rank).collect()),
        }
    }

    /// The lowest rank of the job in the team.
    pub(crate) fn lowest(&self) -> usize {
        match self {
            Members::All(_) => 0,
            Members::Some(listed) => listed.sorted[0].0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_have_two_numbers() {
        let team = Members::new(&[7, 2, 5]);
        assert_eq!((team.len(), team.lowest()), (3, 2));
        assert!(team.iter().eq([7, 2, 5]));
        assert_eq!(team.listed(), Some(vec![2, 5, 7]));
        for (rank, in_job) in [(0, Some(7)), (1, Some(2)), (2, Some(5)), (3, None)] {
            assert_eq!(team.in_job(rank), in_job);
            assert_eq!(
                in_job.and_then(|in_job| team.in_team(in_job)),
                in_job.map(|_| rank)
            );
        }
        assert!(!team.contains(3));
        let all = Members::All(4);
        assert_eq!(
            (all.in_job(3), all.in_team(3), all.in_job(4)),
            (Some(3), Some(3), None)
        );
    }
}
