//! Who calls something together: all ranks of the job, or the ranks of a team.

use std::sync::{Arc, Mutex};

use tidegate_hal::ids::TeamId;

use super::members::Members;
use crate::error::{Error, Result};

/// A team as this rank has it. The program's handles of the team hold it, and so do the windows that the team has
/// opened. When the last of them is gone, this rank's part in the team ends.
pub(crate) struct Roster {
    pub(crate) id: TeamId,
    /// The name. The team of all ranks has none.
    pub(crate) name: Arc<str>,
    pub(crate) members: Members,
    /// This rank's number in the team.
    pub(crate) rank: usize,
    /// Held by the thread that makes collective calls: see [`Agreement`](super::Agreement).
    pub(super) alone: Mutex<()>,
    /// Ends this rank's part in the team.
    over: Option<Box<dyn Fn(TeamId) + Send + Sync>>,
}

impl Roster {
    /// The team of all ranks.
    pub(crate) fn everyone(rank: usize, size: usize) -> Arc<Self> {
        Arc::new(Roster {
            id: TeamId::WORLD,
            name: "".into(),
            members: Members::All(size),
            rank,
            alone: Mutex::new(()),
            over: None,
        })
    }

    /// A team in which this rank has the number `rank`.
    pub(super) fn new(
        (id, name): (TeamId, Arc<str>),
        members: Members,
        rank: usize,
        over: impl Fn(TeamId) + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Roster {
            id,
            name,
            members,
            rank,
            alone: Mutex::new(()),
            over: Some(Box::new(over)),
        })
    }

    pub(crate) fn size(&self) -> usize {
        self.members.len()
    }

    /// The number in the job of a rank of the team.
    pub(crate) fn in_job(&self, rank: usize) -> Result<usize> {
        let size = self.size();
        let known = self.members.in_job(rank);
        known.ok_or(Error::NoSuchRank { rank, size })
    }

    /// The numbers in the team of some of its ranks, in ascending order.
    pub(crate) fn in_team(&self, ranks: impl Iterator<Item = usize>) -> Vec<usize> {
        let mut ranks: Vec<_> = ranks
            .filter_map(|rank| self.members.in_team(rank))
            .collect();
        ranks.sort_unstable();
        ranks
    }

    /// The name of something that the team opens, for people: `rows/halo`.
    pub(crate) fn named(&self, name: &str) -> Arc<str> {
        match &*self.name {
            "" => name.into(),
            team => format!("{team}/{name}").into(),
        }
    }
}

impl Drop for Roster {
    fn drop(&mut self) {
        if let Some(over) = &self.over {
            over(self.id);
        }
    }
}
