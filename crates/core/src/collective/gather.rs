//! Gathers: the blocks of all ranks, on one rank.

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
    /// Brings the blocks of all ranks to one rank, the root, one behind the other in the order of the ranks.
    ///
    /// All ranks must make the same calls in the same order. [What collectives have in common](crate::collective) says
    /// more.
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(3, |world| {
    /// # stream!(let s = world.stream()?);
    /// let mut lines = Gather::open(&s, "lines", 0, 2)?; // to rank 0
    /// let x = Region::from_slice(&world, &[world.rank() as u64; 2])?.on(&s)?;
    /// let mut y = Region::zeroed(&world, if world.rank() == 0 { 6 } else { 0 })?.on(&s)?;
    /// lines.enqueue(&s, &x, &mut y)?; // the host does not wait here
    /// if world.rank() == 0 {
    ///     assert_eq!(y.into_host(&s)?[..], [0, 0, 1, 1, 2, 2]);
    /// }
    /// # Ok(()) });
    /// ```
    Gather of Element, "a gather of blocks of `len` elements to rank `root`", (root) "0, ", () "" => JointKind::Gather { root }
}

impl<'s, T: Element, D: Device> Gather<'s, T, D> {
    /// Opens a gather of blocks of different lengths. All ranks give the lengths of all blocks, in the order of the
    /// ranks.
    ///
    /// # Errors
    ///
    /// The same as [`Gather::open`], and [`WindowError::Counts`] if there is not one length for each rank.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(3, |world| {
    /// # stream!(let s = world.stream()?);
    /// let counts = [1, 0, 2];
    /// let mut lines = Gather::open_counts(&s, "lines", 0, &counts)?;
    /// let x = Region::from_slice(&world, &vec![world.rank() as u64; counts[world.rank()]])?.on(&s)?;
    /// let mut y = Region::zeroed(&world, if world.rank() == 0 { 3 } else { 0 })?.on(&s)?;
    /// lines.enqueue(&s, &x, &mut y)?;
    /// # if world.rank() == 0 {
    /// assert_eq!(y.into_host(&s)?[..], [0, 2, 2]);
    /// # }
    /// # Ok(()) });
    /// ```
    pub fn open_counts(
        on: &impl Members<'s, D>,
        name: &str,
        root: usize,
        counts: &[usize],
    ) -> Result<Self> {
        Self::make(
            on,
            name,
            root,
            Counts::Each(counts.to_vec()),
            Choice::on(on.stream()),
        )
    }

    /// Enqueues a gather: on the root, `y` gets the `x` of all ranks. On the other ranks `y` is not touched, and may be empty.
    ///
    /// # Errors
    ///
    /// - [`EpochError::CountMismatch`] if `x` is not as long as this rank's block, or the root's `y` not as long as all
    ///   blocks.
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
    /// # let mut lines = Gather::open(&s, "lines", 1, 1)?;
    /// let x = Region::from_slice(&world, &[0.5 + world.rank() as f64])?.on(&s)?;
    /// let mut y = Region::zeroed(&world, 2 * world.rank())?.on(&s)?; // empty on rank 0
    /// lines.enqueue(&s, &x, &mut y)?;
    /// if world.rank() == 1 {
    ///     assert_eq!(y.into_host(&s)?[..], [0.5, 1.5]);
    /// }
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
        let x = (&x.body, blocks.count(self.0.rank()));
        let y = self.0.is_root().then(|| (&y.body, blocks.all()));
        self.0.run(stream, Some(x), y)
    }

    /// Opens a gather, enqueues one call, and drops it. A program that calls more than once saves time with [`Gather::open`].
    ///
    /// # Errors
    ///
    /// Those of [`Gather::open`] and of the call.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(2, |world| {
    /// # stream!(let s = world.stream()?);
    /// # let x = Region::from_slice(&world, &[world.rank() as f64])?.on(&s)?;
    /// # let mut y = Region::zeroed(&world, if world.rank() == 0 { 2 } else { 0 })?.on(&s)?;
    /// Gather::once(&s, 0, &x, &mut y)?;
    /// # if world.rank() == 0 { assert_eq!(y.into_host(&s)?[..], [0.0, 1.0]); }
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn once(
        on: &impl Members<'s, D>,
        root: usize,
        x: &Region<T, On<'s, D>>,
        y: &mut Region<T, On<'s, D>>,
    ) -> Result<()> {
        Self::open(on, &once("gather"), root, x.len())?.enqueue(on.stream(), x, y)
    }
}
