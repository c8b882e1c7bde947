//! Teams: some ranks of the job, with windows, barriers and collectives of their own.

use std::sync::Arc;

use tidegate_hal::device::Device;
use tidegate_hal::ids::TeamId;

use super::inner::World;
use super::roster::Roster;
use crate::element::Element;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;

/// Some ranks of the job, or all of them, in an order of their own. A team opens windows, barriers and collectives that
/// concern nobody else. In all that it opens, ranks have the numbers from 0 to `size() - 1` that they have in the team.
///
/// Teams are made by [`World::split`] and [`World::team`], or by the same calls of a team. A team may have ranks in
/// common with others. Names are per team: the row and the column of a grid may each have a window `halo`. Texts for
/// people name ranks by their numbers in the job, and call such a window `rows/halo`.
///
/// It is cheap to clone. This rank's part in the team ends when the last clone is gone, and all that the team has
/// opened here. The team then ends for the others, too, as far as they need this rank.
///
/// # Examples
///
/// ```
/// use tidegate::host::prelude::*;
///
/// # tidegate::doc::ranks(4, |world| {
/// // The rows of a grid of 2 by 2 ranks.
/// let row = world.split("rows", world.rank() / 2, world.rank())?.unwrap();
/// stream!(let s = world.stream()?);
/// let mut sum = AllReduce::<u64>::open(&row.on(&s), "sum", 1, Op::Sum)?;
/// let mut x = Region::from_slice(&world, &[world.rank() as u64])?.on(&s)?;
/// sum.enqueue(&s, &mut x)?;
/// let expected = if world.rank() < 2 { 0 + 1 } else { 2 + 3 };
/// assert_eq!(x.into_host(&s)?[0], expected);
/// # Ok(()) });
/// ```
pub struct Team<D: Device> {
    pub(super) world: World<D>,
    pub(crate) roster: Arc<Roster>,
}

impl<D: Device> Clone for Team<D> {
    fn clone(&self) -> Self {
        Team {
            world: self.world.clone(),
            roster: self.roster.clone(),
        }
    }
}

impl<D: Device> Team<D> {
    /// The name. That of a team that was made of a team begins with the name of that one: `rows/half`.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(2, |world| {
    /// let pair = world.team("pair", &[0, 1])?;
    /// assert_eq!(pair.name(), "pair");
    /// assert_eq!(pair.team("swapped", &[1, 0])?.name(), "pair/swapped");
    /// # Ok(()) });
    /// ```
    pub fn name(&self) -> &str {
        &self.roster.name
    }

    /// The id, which is the same on all ranks of the team. While the team exists, no other team of the job has it.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(2, |world| {
    /// println!("tools call it {}", world.team("pair", &[0, 1])?.id());
    /// # Ok(()) });
    /// ```
    pub fn id(&self) -> TeamId {
        self.roster.id
    }

    /// The number of this rank in the team, from 0.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(2, |world| {
    /// assert_eq!(world.team("swapped", &[1, 0])?.rank(), 1 - world.rank());
    /// # Ok(()) });
    /// ```
    pub fn rank(&self) -> usize {
        self.roster.rank
    }

    /// The number of ranks in the team.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(4, |world| {
    /// let half = world.split("halves", world.rank() / 2, 0)?.unwrap();
    /// assert_eq!(half.size(), 2);
    /// # Ok(()) });
    /// ```
    pub fn size(&self) -> usize {
        self.roster.size()
    }

    /// The neighbours of this rank in a ring of the team, as `(left, right)`: see [`World::ring`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(3, |world| {
    /// assert_eq!(world.everyone().ring(), world.ring());
    /// # Ok(()) });
    /// ```
    pub fn ring(&self) -> (usize, usize) {
        let (rank, size) = (self.rank(), self.size());
        ((rank + size - 1) % size, (rank + 1) % size)
    }

    /// The ranks of the team by their numbers in the job, in the order of the team.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(3, |world| {
    /// assert_eq!(world.team("turned", &[2, 0, 1])?.ranks(), [2, 0, 1]);
    /// # Ok(()) });
    /// ```
    pub fn ranks(&self) -> Vec<usize> {
        self.roster.members.iter().collect()
    }

    /// The number in the job of a rank of the team.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchRank`], with the size of the team.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(2, |world| {
    /// let swapped = world.team("swapped", &[1, 0])?;
    /// assert_eq!(swapped.world_rank(0)?, 1);
    /// assert!(swapped.world_rank(2).is_err());
    /// # Ok(()) });
    /// ```
    pub fn world_rank(&self, rank: usize) -> Result<usize> {
        self.roster.in_job(rank)
    }

    /// The number in the team of a rank of the job; `None` if it is not in the team.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(3, |world| {
    /// if world.rank() != 1 {
    ///     let ends = world.team("ends", &[0, 2])?;
    ///     assert_eq!([0, 1, 2].map(|rank| ends.rank_of(rank)), [Some(0), None, Some(1)]);
    /// }
    /// # Ok(()) });
    /// ```
    pub fn rank_of(&self, world_rank: usize) -> Option<usize> {
        self.roster.members.in_team(world_rank)
    }

    /// The node of a rank of the team: see [`World::node`].
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchRank`], with the size of the team.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(2, |world| {
    /// let swapped = world.team("swapped", &[1, 0])?;
    /// assert_eq!(swapped.node(0)?, world.node(1)?);
    /// # Ok(()) });
    /// ```
    pub fn node(&self, rank: usize) -> Result<usize> {
        self.world.node(self.world_rank(rank)?)
    }

    /// The world to which the team belongs.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(2, |world| {
    /// assert_eq!(world.everyone().world().size(), 2);
    /// # Ok(()) });
    /// ```
    pub fn world(&self) -> &World<D> {
        &self.world
    }

    /// [`World::all_gather`] over the ranks of the team. The result is in the order of the team.
    ///
    /// # Errors
    ///
    /// Those of [`World::all_gather`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(3, |world| {
    /// let turned = world.team("turned", &[2, 0, 1])?;
    /// assert_eq!(turned.all_gather("ranks", vec![world.rank() as u8])?, [[2], [0], [1]]);
    /// # Ok(()) });
    /// ```
    pub fn all_gather(&self, label: &str, bytes: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        self.world.all_gather_of(&self.roster, label, bytes)
    }

    /// [`World::all_gather_elements`] over the ranks of the team. The result is in the order of the team.
    ///
    /// # Errors
    ///
    /// Those of [`World::all_gather_elements`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(2, |world| {
    /// let swapped = world.team("swapped", &[1, 0])?;
    /// let halves = vec![0.5; world.rank()];
    /// assert_eq!(swapped.all_gather_elements("halves", &halves)?, [vec![0.5], vec![]]);
    /// # Ok(()) });
    /// ```
    pub fn all_gather_elements<T: Element>(
        &self,
        label: &str,
        elements: &[T],
    ) -> Result<Vec<Vec<T>>> {
        self.world
            .all_gather_elements_of(&self.roster, label, elements)
    }
}

impl<D: Device> std::fmt::Debug for Team<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Team")
            .field("name", &self.name())
            .field("id", &self.id())
            .field("rank", &self.rank())
            .field("ranks", &self.ranks())
            .field("device", &D::NAME)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(miri)))]
mod tests;
