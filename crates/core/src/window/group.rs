//! Groups: some of the neighbours.

use std::sync::Arc;

use tidegate_hal::device::Device;

use super::half::Half;
use crate::error::{EpochError, Result};
use crate::ground::fresh_id;

/// A set of ranks, for posts and starts that name only some of the neighbours.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
/// let peer = Group::new([1 - s.world().rank()]);
/// let exposed = inbox.post_to(s, &peer)?;
/// let epoch = outbox.start_to(&peer)?;
/// let (_outbox, _inbox) = (epoch.complete(s)?, exposed.wait(s)?);
/// # Ok(()) });
/// ```
#[derive(Clone, Debug)]
pub struct Group {
    ranks: Arc<[usize]>,
    id: u64,
}

impl Group {
    /// The group of these ranks. Their order does not matter, and repetitions are ignored.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::Group;
    ///
    /// assert_eq!(Group::new([5, 1, 3, 1]).ranks(), [1, 3, 5]);
    /// ```
    pub fn new(ranks: impl IntoIterator<Item = usize>) -> Self {
        let mut ranks: Vec<_> = ranks.into_iter().collect();
        ranks.sort_unstable();
        ranks.dedup();
        Group {
            ranks: ranks.into(),
            id: fresh_id(),
        }
    }

    /// The ranks, in ascending order.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::Group;
    ///
    /// assert_eq!(Group::new([3, 1]).ranks(), [1, 3]);
    /// ```
    pub fn ranks(&self) -> &[usize] {
        &self.ranks
    }
}

/// Some peers of a half, or all of them.
pub(super) struct Used<T> {
    /// The group's number; 0 for all peers.
    pub(super) id: u64,
    /// Their indices, in ascending order.
    pub(super) members: Vec<usize>,
    /// What the half has for them.
    pub(super) own: T,
}

/// All peers of a half, then each group that was used.
pub(super) struct Groups<T> {
    used: Vec<Used<T>>,
    current: usize,
}

impl<T> Groups<T> {
    pub(super) fn new(members: Vec<usize>, own: T) -> Self {
        let all = Used {
            id: 0,
            members,
            own,
        };
        Groups {
            used: vec![all],
            current: 0,
        }
    }

    pub(super) fn choose_all(&mut self) {
        self.current = 0;
    }

    /// Chooses a group of the half's peers. `role` is what they are. Only the first use calls `own`.
    pub(super) fn choose<D: Device>(
        &mut self,
        group: &Group,
        half: &Half<D>,
        role: &'static str,
        own: impl FnOnce(&[usize]) -> Result<T>,
    ) -> Result<()> {
        let id = group.id;
        if let Some(known) = self.used.iter().position(|used| used.id == id) {
            self.current = known;
            return Ok(());
        }
        let index = |rank: &usize| -> Result<usize> {
            let rank = half.roster.in_job(*rank)?;
            let index = half.peers.binary_search_by_key(&rank, |peer| peer.rank);
            index.map_err(|_| {
                let window = half.window.named();
                EpochError::NotInGroup { window, rank, role }.into()
            })
        };
        let mut members = group.ranks.iter().map(index).collect::<Result<Vec<_>>>()?;
        // Peers are in the order of the job, which may differ from that of the team.
        members.sort_unstable();
        // Two groups with the same members are the same group.
        let known = (1..self.used.len()).find(|index| self.used[*index].members == members);
        if known.is_none() {
            let own = own(&members)?;
            self.used.push(Used { id, members, own });
        }
        self.current = known.unwrap_or(self.used.len() - 1);
        Ok(())
    }

    pub(super) fn current(&self) -> &Used<T> {
        &self.used[self.current]
    }

    /// The members of the current group, or `None` if it is all peers.
    pub(super) fn some(&self) -> Option<&[usize]> {
        (self.current != 0).then(|| &self.current().members[..])
    }
}
