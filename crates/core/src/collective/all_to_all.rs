//! All-to-alls: a block from each rank to each rank.

use tidegate_hal::device::Device;

use super::algorithms::Counts;
use super::choice::Choice;
use super::handle::{collective, once};
use crate::element::Element;
use crate::error::Result;
#[cfg(doc)]
use crate::error::{EpochError, Error, WindowError};
use crate::members::Members;
use crate::place::On;
use crate::region::Region;
use crate::stream::Stream;
use crate::window::JointKind;

collective! {
    /// Brings a block of each rank to each rank: block j of rank i becomes block i of rank j. The blocks of a rank lie
    /// one behind the other in the order of the ranks.
    ///
    /// All ranks must make the same calls in the same order. [What collectives have in common](crate::collective) says
    /// more.
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(3, |world| {
    /// # stream!(let s = world.stream()?);
    /// let mut transposed = AllToAll::open(&s, "transposed", 1)?;
    /// let rank = world.rank() as u64;
    /// let x = Region::from_slice(&world, &[10 * rank, 10 * rank + 1, 10 * rank + 2])?.on(&s)?;
    /// let mut y = Region::zeroed(&world, 3)?.on(&s)?;
    /// transposed.enqueue(&s, &x, &mut y)?; // the host does not wait here
    /// assert_eq!(y.into_host(&s)?[..], [rank, 10 + rank, 20 + rank]);
    /// # Ok(()) });
    /// ```
    AllToAll of Element, "an all-to-all of blocks of `len` elements", () "", () "" => JointKind::AllToAll
}

impl<'s, T: Element, D: Device> AllToAll<'s, T, D> {
    /// Opens an all-to-all of blocks of different lengths. A rank gives the lengths of the blocks that it sends to
    /// each rank, and of those that it receives from each.
    ///
    /// # Errors
    ///
    /// The same as [`AllToAll::open`], and [`WindowError::Counts`] if there is not one length for each rank.
    /// [`WindowError::Disagreement`], on all ranks, if two ranks disagree about the length of a block.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(2, |world| {
    /// # stream!(let s = world.stream()?);
    /// // Rank 0 sends 1 element to itself and 2 to rank 1, which sends nothing.
    /// let (to, from) = if world.rank() == 0 { ([1, 2], [1, 0]) } else { ([0, 0], [2, 0]) };
    /// let mut moved = AllToAll::open_counts(&s, "moved", &to, &from)?;
    /// let x = Region::from_slice(&world, &[7, 8, 9][..to.iter().sum()])?.on(&s)?;
    /// let mut y = Region::zeroed(&world, from.iter().sum())?.on(&s)?;
    /// moved.enqueue(&s, &x, &mut y)?;
    /// assert_eq!(y.into_host(&s)?[..], [&[7][..], &[8, 9]][world.rank()][..]);
    /// # Ok(()) });
    /// ```
    pub fn open_counts(
        on: &impl Members<'s, D>,
        name: &str,
        to: &[usize],
        from: &[usize],
    ) -> Result<Self> {
        let counts = Counts::Pairs(to.to_vec(), from.to_vec());
        Self::make(on, name, counts, Choice::on(on.stream()))
    }

    /// Enqueues an all-to-all: `y` gets this rank's block of the `x` of each rank.
    ///
    /// # Errors
    ///
    /// - [`EpochError::CountMismatch`] if `x` is not as long as all blocks that this rank sends, or `y` not as long as
    ///   those that it receives.
    /// - [`Error::Revoked`], [`EpochError::LastEpoch`], or the error that made the stream fail.
    /// - [`Error::Device`] and [`Error::Nic`].
    ///
    /// The call has then enqueued nothing. If a device or NIC refuses only a later part of the call, the collective is
    /// revoked, since the other ranks count on the rest.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(2, |world| {
    /// # stream!(let s = world.stream()?);
    /// # let mut transposed = AllToAll::open(&s, "transposed", 1)?;
    /// let x = Region::from_slice(&world, &[[0, 1], [2, 3]][world.rank()])?.on(&s)?;
    /// let mut y = Region::zeroed(&world, 2)?.on(&s)?;
    /// transposed.enqueue(&s, &x, &mut y)?;
    /// assert_eq!(y.into_host(&s)?[..], [[0, 2], [1, 3]][world.rank()]);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn enqueue(
        &mut self,
        stream: &Stream<'s, D>,
        x: &Region<T, On<'s, D>>,
        y: &mut Region<T, On<'s, D>>,
    ) -> Result<()> {
        let x = (&x.body, self.0.blocks().all());
        let y = (&y.body, self.0.received().all());
        self.0.run(stream, Some(x), Some(y))
    }

    /// Opens an all-to-all, enqueues one call, and drops it. A program that calls more than once saves time with
    /// [`AllToAll::open`].
    ///
    /// # Errors
    ///
    /// Those of [`AllToAll::open`] and of the call. The length of `x` must be a multiple of the number of ranks.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(2, |world| {
    /// # stream!(let s = world.stream()?);
    /// # let x = Region::from_slice(&world, &[world.rank() as f64; 2])?.on(&s)?;
    /// # let mut y = Region::zeroed(&world, 2)?.on(&s)?;
    /// AllToAll::once(&s, &x, &mut y)?;
    /// # assert_eq!(y.into_host(&s)?[..], [0.0, 1.0]);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn once(
        on: &impl Members<'s, D>,
        x: &Region<T, On<'s, D>>,
        y: &mut Region<T, On<'s, D>>,
    ) -> Result<()> {
        let len = x.len() / on.team().size();
        Self::open(on, &once("all-to-all"), len)?.enqueue(on.stream(), x, y)
    }
}
