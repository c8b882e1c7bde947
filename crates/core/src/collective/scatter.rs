//! Scatters: one rank's blocks, one for each rank.

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
    /// Brings a block of one rank, the root, to each rank. The blocks lie one behind the other in the order of the ranks.
    ///
    /// All ranks must make the same calls in the same order. [What collectives have in common](crate::collective) says
    /// more.
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(3, |world| {
    /// # stream!(let s = world.stream()?);
    /// let mut parts = Scatter::open(&s, "parts", 0, 2)?; // from rank 0
    /// let all = if world.rank() == 0 { vec![0, 0, 1, 1, 2, 2] } else { Vec::new() };
    /// let x = Region::from_vec(&world, all)?.on(&s)?;
    /// let mut y = Region::<u64>::zeroed(&world, 2)?.on(&s)?;
    /// parts.enqueue(&s, &x, &mut y)?; // the host does not wait here
    /// assert_eq!(y.into_host(&s)?[..], [world.rank() as u64; 2]);
    /// # Ok(()) });
    /// ```
    Scatter of Element, "a scatter of blocks of `len` elements from rank `root`", (root) "0, ", () "" => JointKind::Scatter { root }
}

impl<'s, T: Element, D: Device> Scatter<'s, T, D> {
    /// Opens a scatter of blocks of different lengths. All ranks give the lengths of all blocks, in the order of the
    /// ranks.
    ///
    /// # Errors
    ///
    /// The same as [`Scatter::open`], and [`WindowError::Counts`] if there is not one length for each rank.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(3, |world| {
    /// # stream!(let s = world.stream()?);
    /// let counts = [1, 0, 2];
    /// let mut parts = Scatter::open_counts(&s, "parts", 0, &counts)?;
    /// # let x = Region::from_vec(&world, if world.rank() == 0 { vec![7u8, 8, 9] } else { Vec::new() })?.on(&s)?;
    /// let mut y = Region::zeroed(&world, counts[world.rank()])?.on(&s)?;
    /// parts.enqueue(&s, &x, &mut y)?;
    /// # assert_eq!(y.into_host(&s)?[..], [&[7u8][..], &[], &[8, 9]][world.rank()][..]);
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

    /// Enqueues a scatter: `y` gets this rank's block of the root's `x`. On the other ranks `x` is not read, and may be empty.
    ///
    /// # Errors
    ///
    /// - [`EpochError::CountMismatch`] if `y` is not as long as this rank's block, or the root's `x` not as long as all
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
    /// # let mut parts = Scatter::open(&s, "parts", 1, 1)?;
    /// let x = Region::from_slice(&world, &[0.5, 1.5][..2 * world.rank()])?.on(&s)?; // empty on rank 0
    /// let mut y = Region::zeroed(&world, 1)?.on(&s)?;
    /// parts.enqueue(&s, &x, &mut y)?;
    /// assert_eq!(y.into_host(&s)?[0], 0.5 + world.rank() as f64);
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
        let x = self.0.is_root().then(|| (&x.body, blocks.all()));
        let y = (&y.body, blocks.count(self.0.rank()));
        self.0.run(stream, x, Some(y))
    }

    /// Opens a scatter, enqueues one call, and drops it. A program that calls more than once saves time with [`Scatter::open`].
    ///
    /// # Errors
    ///
    /// Those of [`Scatter::open`] and of the call.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(2, |world| {
    /// # stream!(let s = world.stream()?);
    /// # let x = Region::from_vec(&world, if world.rank() == 0 { vec![7u8, 8] } else { Vec::new() })?.on(&s)?;
    /// # let mut y = Region::zeroed(&world, 1)?.on(&s)?;
    /// Scatter::once(&s, 0, &x, &mut y)?;
    /// # assert_eq!(y.into_host(&s)?[0], 7 + world.rank() as u8);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn once(
        on: &impl Members<'s, D>,
        root: usize,
        x: &Region<T, On<'s, D>>,
        y: &mut Region<T, On<'s, D>>,
    ) -> Result<()> {
        Self::open(on, &once("scatter"), root, y.len())?.enqueue(on.stream(), x, y)
    }
}
