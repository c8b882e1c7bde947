//! Reduce-scatters: a block of the sum of all ranks' vectors for each rank.

use tidegate_hal::batch::Op;
use tidegate_hal::device::Device;

use super::handle::{collective, once};
use crate::element::Reducible;
use crate::error::Result;
#[cfg(doc)]
use crate::error::{EpochError, Error, WindowError};
use crate::members::Members;
use crate::place::On;
use crate::region::Region;
use crate::stream::Stream;
use crate::window::JointKind;

collective! {
    /// Reduces the vectors of all ranks, and brings a block of the result to each rank: rank i gets block i. Each element is
    /// reduced in the order of the ranks, so the result has the same bits in every run.
    ///
    /// All ranks must make the same calls in the same order. [What collectives have in common](crate::collective) says
    /// more.
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(3, |world| {
    /// # stream!(let s = world.stream()?);
    /// let mut parts = ReduceScatter::open(&s, "parts", 1, Op::Sum)?;
    /// let x = Region::from_slice(&world, &[1.0, 2.0, 3.0])?.on(&s)?;
    /// let mut y = Region::zeroed(&world, 1)?.on(&s)?;
    /// parts.enqueue(&s, &x, &mut y)?; // the host does not wait here
    /// assert_eq!(y.into_host(&s)?[0], 3.0 * (world.rank() + 1) as f64);
    /// # Ok(()) });
    /// ```
    ReduceScatter of Reducible, "a reduce-scatter of blocks of `len` elements", () "", (op) ", Op::Sum" => JointKind::ReduceScatter
}

impl<'s, T: Reducible, D: Device> ReduceScatter<'s, T, D> {
    /// Enqueues a reduce-scatter: `y` gets this rank's block of `op(…op(op(x of rank 0, x of rank 1), x of rank 2)…)`.
    ///
    /// # Errors
    ///
    /// - [`EpochError::CountMismatch`] if `x` does not have a block for each rank, or `y` is not a block.
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
    /// let mut parts = ReduceScatter::open(&s, "parts", 1, Op::Max)?;
    /// let x = Region::from_slice(&world, &[world.rank() as u64, 5])?.on(&s)?;
    /// let mut y = Region::zeroed(&world, 1)?.on(&s)?;
    /// parts.enqueue(&s, &x, &mut y)?;
    /// assert_eq!(y.into_host(&s)?[0], [1, 5][world.rank()]);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn enqueue(
        &mut self,
        stream: &Stream<'s, D>,
        x: &Region<T, On<'s, D>>,
        y: &mut Region<T, On<'s, D>>,
    ) -> Result<()> {
        let len = self.0.vector();
        let (x, y) = ((&x.body, len * self.0.ranks()), (&y.body, len));
        self.0.run(stream, Some(x), Some(y))
    }

    /// Opens a reduce-scatter, enqueues one call, and drops it. A program that calls more than once saves time with [`ReduceScatter::open`].
    ///
    /// # Errors
    ///
    /// Those of [`ReduceScatter::open`] and [`ReduceScatter::enqueue`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(2, |world| {
    /// # stream!(let s = world.stream()?);
    /// # let x = Region::from_slice(&world, &[1.0, 2.0])?.on(&s)?;
    /// # let mut y = Region::zeroed(&world, 1)?.on(&s)?;
    /// ReduceScatter::once(&s, &x, &mut y, Op::Sum)?;
    /// # assert_eq!(y.into_host(&s)?[0], [2.0, 4.0][world.rank()]);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn once(
        on: &impl Members<'s, D>,
        x: &Region<T, On<'s, D>>,
        y: &mut Region<T, On<'s, D>>,
        op: Op,
    ) -> Result<()> {
        Self::open(on, &once("reduce-scatter"), y.len(), op)?.enqueue(on.stream(), x, y)
    }
}
