//! Reduces: the sum of all ranks' vectors, on one rank.

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
    /// let mut energy = Reduce::open(&s, "energy", 0, 1, Op::Sum)?; // to rank 0
    /// let mut x = Region::from_slice(&world, &[world.rank() as f64])?.on(&s)?;
    /// energy.enqueue(&s, &mut x)?; // the host does not wait here
    /// let x = x.into_host(&s)?[0];
    /// assert_eq!(x, if world.rank() == 0 { 3.0 } else { world.rank() as f64 });
    /// # Ok(()) });
    /// ```
    Reduce of Reducible, "a reduce of vectors of `len` elements to rank `root`", (root) "0, ", (op) ", Op::Sum" => JointKind::Reduce { root }
}

impl<'s, T: Reducible, D: Device> Reduce<'s, T, D> {
    /// Enqueues a reduce: the root's `x` is replaced by `op(…op(op(x of rank 0, x of rank 1), x of rank 2)…)`, element by
    /// element. On the other ranks `x` is not changed.
    ///
    /// # Errors
    ///
    /// - [`EpochError::CountMismatch`] if `x` has another length.
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
    /// let mut most = Reduce::open(&s, "most", 1, 1, Op::Max)?; // to rank 1
    /// let mut x = Region::from_slice(&world, &[[4, 3][world.rank()]])?.on(&s)?;
    /// most.enqueue(&s, &mut x)?;
    /// assert_eq!(x.into_host(&s)?[0], 4);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn enqueue(&mut self, stream: &Stream<'s, D>, x: &mut Region<T, On<'s, D>>) -> Result<()> {
        let x = (&x.body, self.0.vector());
        self.0.run(stream, None, Some(x))
    }

    /// Opens a reduce, enqueues one call, and drops it. A program that calls more than once saves time with [`Reduce::open`].
    ///
    /// # Errors
    ///
    /// Those of [`Reduce::open`] and [`Reduce::enqueue`].
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
        Self::open(on, &once("reduce"), root, x.len(), op)?.enqueue(on.stream(), x)
    }
}
