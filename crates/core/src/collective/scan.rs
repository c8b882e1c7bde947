//! Scans: for each rank, the sum of the vectors of the ranks up to it.

use tidegate_hal::batch::Op;
use tidegate_hal::device::Device;

use super::algorithms::{Counts, What};
use super::choice::Choice;
use super::executor::Executor;
use super::handle::{collective, once};
use super::reduction::Reduction;
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
    /// Reduces, for each rank, the vectors of the ranks from 0 up to it. Each element is reduced in the order of the ranks, so
    /// the result has the same bits in every run. An exclusive scan leaves out the rank itself: the sum of the lengths of all
    /// lower ranks, for example, is where a rank's part begins.
    ///
    /// All ranks must make the same calls in the same order. [What collectives have in common](crate::collective) says
    /// more.
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(3, |world| {
    /// # stream!(let s = world.stream()?);
    /// let mut ends = Scan::open(&s, "ends", 1, Op::Sum)?;
    /// let mut x = Region::from_slice(&world, &[10 + world.rank() as u64])?.on(&s)?;
    /// ends.enqueue(&s, &mut x)?; // the host does not wait here
    /// assert_eq!(x.into_host(&s)?[0], [10, 10 + 11, 10 + 11 + 12][world.rank()]);
    /// # Ok(()) });
    /// ```
    Scan of Reducible, "a scan of vectors of `len` elements", () "", (op) ", Op::Sum" => JointKind::Scan { exclusive: false }
}

impl<'s, T: Reducible, D: Device> Scan<'s, T, D> {
    /// Opens an exclusive scan of vectors of `len` elements. It leaves the vector of rank 0 as it is.
    ///
    /// # Errors
    ///
    /// The same as [`Scan::open`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(3, |world| {
    /// # stream!(let s = world.stream()?);
    /// let mut begins = Scan::open_exclusive(&s, "begins", 1, Op::Sum)?;
    /// let mut x = Region::from_slice(&world, &[10 + world.rank() as u64])?.on(&s)?;
    /// begins.enqueue(&s, &mut x)?;
    /// assert_eq!(x.into_host(&s)?[0], [10, 10, 10 + 11][world.rank()]);
    /// # Ok(()) });
    /// ```
    pub fn open_exclusive(
        on: &impl Members<'s, D>,
        name: &str,
        len: usize,
        op: Op,
    ) -> Result<Self> {
        Self::open_exclusive_with(on, name, len, op, Choice::on(on.stream()))
    }

    /// Like [`Scan::open_exclusive`], with a choice of algorithms.
    ///
    /// # Errors
    ///
    /// The same as [`Scan::open`]. The ranks must choose alike.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use tidegate::Choice;
    ///
    /// # tidegate::doc::ranks(3, |world| {
    /// # stream!(let s = world.stream()?);
    /// let choice = Choice { short: 0, ..Choice::on(&s) };
    /// let mut begins = Scan::open_exclusive_with(&s, "begins", 1, Op::Sum, choice)?;
    /// # let mut x = Region::from_slice(&world, &[10 + world.rank() as u64])?.on(&s)?;
    /// begins.enqueue(&s, &mut x)?;
    /// # assert_eq!(x.into_host(&s)?[0], [10, 10, 10 + 11][world.rank()]);
    /// # Ok(()) });
    /// ```
    pub fn open_exclusive_with(
        on: &impl Members<'s, D>,
        name: &str,
        len: usize,
        op: Op,
        choice: Choice,
    ) -> Result<Self> {
        let what = What {
            kind: JointKind::Scan { exclusive: true },
            counts: Counts::Equal(len),
            reduction: Some(Reduction::of::<T>(op)),
        };
        Ok(Scan(Executor::open(
            &on.team(),
            on.stream(),
            name,
            what,
            choice,
        )?))
    }

    /// Enqueues a scan: `x` is replaced by `op(…op(op(x of rank 0, x of rank 1), x of rank 2)…)`, up to this rank. An
    /// exclusive scan ends with the rank before this one, and does not change the `x` of rank 0.
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
    /// let mut most = Scan::open(&s, "most", 1, Op::Max)?;
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

    /// Like [`Scan::enqueue`], but `y` gets the result, and `x` is not changed. (An exclusive scan does not change the `y`
    /// of rank 0.)
    ///
    /// # Errors
    ///
    /// The same as [`Scan::enqueue`]; `y` must be as long as `x`.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(2, |world| {
    /// # stream!(let s = world.stream()?);
    /// # let mut ends = Scan::open(&s, "ends", 1, Op::Sum)?;
    /// let x = Region::from_slice(&world, &[[4, 3][world.rank()]])?.on(&s)?;
    /// let mut y = Region::zeroed(&world, 1)?.on(&s)?;
    /// ends.enqueue_into(&s, &x, &mut y)?;
    /// assert_eq!(y.into_host(&s)?[0], [4, 7][world.rank()]);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn enqueue_into(
        &mut self,
        stream: &Stream<'s, D>,
        x: &Region<T, On<'s, D>>,
        y: &mut Region<T, On<'s, D>>,
    ) -> Result<()> {
        let [x, y] = [&x.body, &y.body].map(|body| (body, self.0.vector()));
        self.0.run(stream, Some(x), Some(y))
    }

    /// Opens a scan, enqueues one call, and drops it. A program that calls more than once saves time with [`Scan::open`].
    ///
    /// # Errors
    ///
    /// Those of [`Scan::open`] and [`Scan::enqueue`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(2, |world| {
    /// # stream!(let s = world.stream()?);
    /// # let mut x = Region::from_slice(&world, &[1.0, 2.0])?.on(&s)?;
    /// Scan::once(&s, &mut x, Op::Sum)?;
    /// # if world.rank() == 1 { assert_eq!(x.into_host(&s)?[..], [2.0, 4.0]); }
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn once(on: &impl Members<'s, D>, x: &mut Region<T, On<'s, D>>, op: Op) -> Result<()> {
        Self::open(on, &once("scan"), x.len(), op)?.enqueue(on.stream(), x)
    }
}
