//! All-gathers: the blocks of all ranks, on all ranks.

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
    /// Brings the blocks of all ranks to all ranks, one behind the other in the order of the ranks.
    ///
    /// All ranks must make the same calls in the same order. [What collectives have in common](crate::collective) says
    /// more.
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(3, |world| {
    /// # stream!(let s = world.stream()?);
    /// let mut all = AllGather::open(&s, "all", 2)?;
    /// let x = Region::from_slice(&world, &[world.rank() as u64; 2])?.on(&s)?;
    /// let mut y = Region::zeroed(&world, 6)?.on(&s)?;
    /// all.enqueue(&s, &x, &mut y)?; // the host does not wait here
    /// assert_eq!(y.into_host(&s)?[..], [0, 0, 1, 1, 2, 2]);
    /// # Ok(()) });
    /// ```
    AllGather of Element, "an all-gather of blocks of `len` elements", () "", () "" => JointKind::AllGather
}

impl<'s, T: Element, D: Device> AllGather<'s, T, D> {
    /// Opens an all-gather of blocks of different lengths. All ranks give the lengths of all blocks, in the order of
    /// the ranks.
    ///
    /// # Errors
    ///
    /// The same as [`AllGather::open`], and [`WindowError::Counts`] if there is not one length for each rank.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(3, |world| {
    /// # stream!(let s = world.stream()?);
    /// let mut all = AllGather::open_counts(&s, "all", &[1, 0, 2])?;
    /// let x = Region::from_slice(&world, &vec![world.rank() as u64; [1, 0, 2][world.rank()]])?.on(&s)?;
    /// let mut y = Region::zeroed(&world, 3)?.on(&s)?;
    /// all.enqueue(&s, &x, &mut y)?;
    /// assert_eq!(y.into_host(&s)?[..], [0, 2, 2]);
    /// # Ok(()) });
    /// ```
    pub fn open_counts(on: &impl Members<'s, D>, name: &str, counts: &[usize]) -> Result<Self> {
        Self::make(
            on,
            name,
            Counts::Each(counts.to_vec()),
            Choice::on(on.stream()),
        )
    }

    /// Enqueues an all-gather: `y` gets the `x` of all ranks.
    ///
    /// # Errors
    ///
    /// - [`EpochError::CountMismatch`] if `x` is not as long as this rank's block, or `y` not as long as all blocks.
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
    /// # let mut all = AllGather::open(&s, "all", 1)?;
    /// let x = Region::from_slice(&world, &[0.5 + world.rank() as f64])?.on(&s)?;
    /// let mut y = Region::zeroed(&world, 2)?.on(&s)?;
    /// all.enqueue(&s, &x, &mut y)?;
    /// assert_eq!(y.into_host(&s)?[..], [0.5, 1.5]);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn enqueue(
        &mut self,
        stream: &Stream<'s, D>,
        x: &Region<T, On<'s, D>>,
        y: &mut Region<T, On<'s, D>>,
    ) -> Result<()> {
        let blocks = self.0.blocks();
        let (own, all) = (blocks.count(self.0.rank()), blocks.all());
        let (x, y) = ((&x.body, own), (&y.body, all));
        self.0.run(stream, Some(x), Some(y))
    }

    /// Like [`AllGather::enqueue`], where this rank's block is in its place in `y` already.
    ///
    /// # Errors
    ///
    /// The same as [`AllGather::enqueue`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(2, |world| {
    /// # stream!(let s = world.stream()?);
    /// # let mut all = AllGather::open(&s, "all", 1)?;
    /// let mine = if world.rank() == 0 { [7, 0] } else { [0, 8] };
    /// let mut y = Region::from_slice(&world, &mine)?.on(&s)?;
    /// all.enqueue_in_place(&s, &mut y)?;
    /// assert_eq!(y.into_host(&s)?[..], [7, 8]);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn enqueue_in_place(
        &mut self,
        stream: &Stream<'s, D>,
        y: &mut Region<T, On<'s, D>>,
    ) -> Result<()> {
        let y = (&y.body, self.0.blocks().all());
        self.0.run(stream, None, Some(y))
    }

    /// Opens an all-gather, enqueues one call, and drops the all-gather. A program that calls more than once saves time
    /// with [`AllGather::open`].
    ///
    /// # Errors
    ///
    /// Those of [`AllGather::open`] and [`AllGather::enqueue`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(2, |world| {
    /// # stream!(let s = world.stream()?);
    /// # let x = Region::from_slice(&world, &[world.rank() as f64])?.on(&s)?;
    /// let mut y = Region::zeroed(&world, 2)?.on(&s)?;
    /// AllGather::once(&s, &x, &mut y)?;
    /// # assert_eq!(y.into_host(&s)?[..], [0.0, 1.0]);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn once(
        on: &impl Members<'s, D>,
        x: &Region<T, On<'s, D>>,
        y: &mut Region<T, On<'s, D>>,
    ) -> Result<()> {
        Self::open(on, &once("all-gather"), x.len())?.enqueue(on.stream(), x, y)
    }
}
