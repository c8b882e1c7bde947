//! Reduces: the sum of all ranks' vectors, on one rank.

use tidegate_hal::batch::Op;
use tidegate_hal::device::Device;

use super::handle::{collective, once, reduction};
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
    /// Reduces the vectors of all ranks, and brings the result to one rank, the root. Each element is reduced in the order of
    /// the ranks, so the result has the same bits in every run.
    ///
    /// All ranks must make the same calls in the same order. [What collectives have in common](crate::collective) says
    /// more.
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(3, |world| {
    /// # stream!(let s = world.stream()?);
    /// let mut energy = Reduce::open(&s, "energy", 0, 1)?; // to rank 0
    /// let mut x = Region::from_slice(&world, &[world.rank() as f64])?.on(&s)?;
    /// energy.sum(&s, &mut x)?; // the host does not wait here
    /// let x = x.into_host(&s)?[0];
    /// assert_eq!(x, if world.rank() == 0 { 3.0 } else { world.rank() as f64 });
    /// # Ok(()) });
    /// ```
    Reduce of Reducible, "a reduce of vectors of `len` elements to rank `root`", (root) "0, " => JointKind::Reduce { root }
}

impl<'s, T: Reducible, D: Device> Reduce<'s, T, D> {
    /// Enqueues a sum: the root's `x` is replaced by the sum of all `x`. Integers wrap. On the other ranks `x` is not changed.
    ///
    /// # Errors
    ///
    /// The same as [`Reduce::reduce`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(2, |world| {
    /// # stream!(let s = world.stream()?);
    /// # let mut energy = Reduce::open(&s, "energy", 0, 1)?;
    /// let mut x = Region::from_slice(&world, &[1.5])?.on(&s)?;
    /// energy.sum(&s, &mut x)?;
    /// assert_eq!(x.into_host(&s)?[0], [3.0, 1.5][world.rank()]);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn sum(&mut self, stream: &Stream<'s, D>, x: &mut Region<T, On<'s, D>>) -> Result<()> {
        self.reduce(stream, x, Op::Sum)
    }

    /// Enqueues any reduction: the root's `x` is replaced by `op(…op(op(x of rank 0, x of rank 1), x of rank 2)…)`. On the other
    /// ranks `x` is not changed.
    ///
    /// # Errors
    ///
    /// - [`EpochError::CountMismatch`] if `x` has another length.
    /// - [`EpochError::NotForFloats`] for a bitwise operation on floats. On complex numbers, [`EpochError::OnlySums`] for an
    ///   operation other than [`Op::Sum`], [`Op::Keep`] and [`Op::Replace`].
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
    /// # let mut energy = Reduce::open(&s, "energy", 1, 1)?;
    /// let mut x = Region::from_slice(&world, &[[3, 4][world.rank()]])?.on(&s)?;
    /// energy.reduce(&s, &mut x, Op::Prod)?;
    /// assert_eq!(x.into_host(&s)?[0], [3, 12][world.rank()]);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn reduce(
        &mut self,
        stream: &Stream<'s, D>,
        x: &mut Region<T, On<'s, D>>,
        op: Op,
    ) -> Result<()> {
        let reduction = reduction(&self.0, op)?;
        let x = (&x.body, self.0.vector());
        self.0.run(stream, None, Some(x), Some(reduction))
    }

    /// Opens a reduce, enqueues one call, and drops it. A program that calls more than once saves time with [`Reduce::open`].
    ///
    /// # Errors
    ///
    /// Those of [`Reduce::open`] and of the call.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(2, |world| {
    /// # stream!(let s = world.stream()?);
    /// # let mut x = Region::from_slice(&world, &[1.0, 2.0])?.on(&s)?;
    /// Reduce::once(&s, 0, &mut x, Op::Sum)?;
    /// # if world.rank() == 0 { assert_eq!(x.into_host(&s)?[..], [2.0, 4.0]); }
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn once(
        on: &impl Members<'s, D>,
        root: usize,
        x: &mut Region<T, On<'s, D>>,
        op: Op,
    ) -> Result<()> {
        Self::open(on, &once("reduce"), root, x.len())?.reduce(on.stream(), x, op)
    }
}
