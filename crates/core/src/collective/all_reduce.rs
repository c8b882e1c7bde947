//! Sums and other reductions over all ranks, on all ranks.

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
    /// Reduces the vectors of all ranks, and brings the result to all ranks: sums, products, minima and maxima.
    ///
    /// The result has the same bits on all ranks and in every run of a program: each element is reduced in the order of
    /// the ranks, from rank 0 on. So if a decision depends on it (whether a solver goes on, say), all ranks take the
    /// same branch.
    ///
    /// To read the result on the host, call `x.to_vec(&s)?`, which waits and copies. If only kernels need the result (a
    /// solver's step length, say), nobody waits.
    ///
    /// If a rank is lost, the last call may succeed on some ranks and fail on others.
    ///
    /// *Integers*, signed or unsigned, wrap in sums and products.
    ///
    /// *Floats.* For [`Op::Min`] and [`Op::Max`] a NaN loses against a number. The result has the bits of one rank's
    /// value, on every device. If several zeros tie, whatever their signs, that is the last rank's value; if all values
    /// are NaN, it is the first rank's. A sum or product is NaN either on all ranks and devices, or on none. The bits
    /// of that NaN depend on the device.
    ///
    /// All ranks must make the same calls in the same order. [What collectives have in common](crate::collective) says
    /// more.
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(3, |world| {
    /// # stream!(let s = world.stream()?);
    /// # let rank = world.rank() as f64;
    /// # let x = Region::from_slice(&world, &[rank, 1.0])?.on(&s)?;
    /// # let y = Region::from_slice(&world, &[2.0, 0.5])?.on(&s)?;
    /// # let mut dot = Region::<f64>::zeroed(&world, 1)?.on(&s)?;
    /// let mut dots = AllReduce::open(&s, "dots", 1, Op::Sum)?;
    /// let product = |x: &[f64], y: &[f64], dot: &mut [f64]| dot[0] = x.iter().zip(y).map(|(x, y)| x * y).sum();
    /// s.launch(product, (&x, &y, &mut dot))?; // this rank's part of the dot product
    /// dots.enqueue(&s, &mut dot)?; // later work of the stream sees the dot product of all ranks
    /// # assert_eq!(dot.into_host(&s)?[0], 7.5);
    /// # Ok(()) });
    /// ```
    AllReduce of Reducible, "an all-reduce of vectors of `len` elements", () "", (op) ", Op::Sum" => JointKind::AllReduce
}

impl<'s, T: Reducible, D: Device> AllReduce<'s, T, D> {
    /// The number of elements of the vectors.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(1, |world| {
    /// # stream!(let s = world.stream()?);
    /// let energy = AllReduce::<f64>::open(&s, "energy", 3, Op::Sum)?;
    /// assert_eq!(energy.elements(), 3);
    /// # Ok(()) });
    /// ```
    pub fn elements(&self) -> usize {
        self.0.vector()
    }

    /// Enqueues an all-reduce: `x` is replaced by `op(…op(op(x of rank 0, x of rank 1), x of rank 2)…)`, element by
    /// element. [`Op::Keep`] gives all ranks the vector of rank 0, and [`Op::Replace`] that of the last rank.
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
    /// # tidegate::doc::ranks(3, |world| {
    /// # stream!(let s = world.stream()?);
    /// let mut steps = AllReduce::open(&s, "steps", 1, Op::Min)?;
    /// let mut step = Region::from_slice(&world, &[0.1 * (world.rank() + 1) as f64])?.on(&s)?;
    /// steps.enqueue(&s, &mut step)?; // the time step that suits all ranks
    /// assert_eq!(step.into_host(&s)?[0], 0.1);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn enqueue(&mut self, stream: &Stream<'s, D>, x: &mut Region<T, On<'s, D>>) -> Result<()> {
        let x = (&x.body, self.elements());
        self.0.run(stream, None, Some(x))
    }

    /// Like [`AllReduce::enqueue`], but `y` gets the result, and `x` is not changed.
    ///
    /// # Errors
    ///
    /// The same as [`AllReduce::enqueue`]; `y` must be as long as `x`.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(2, |world| {
    /// # stream!(let s = world.stream()?);
    /// # let mut all = AllReduce::open(&s, "all", 1, Op::Sum)?;
    /// let x = Region::from_slice(&world, &[[4, 3][world.rank()]])?.on(&s)?;
    /// let mut y = Region::zeroed(&world, 1)?.on(&s)?;
    /// all.enqueue_into(&s, &x, &mut y)?;
    /// assert_eq!(y.into_host(&s)?[0], 7);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn enqueue_into(
        &mut self,
        stream: &Stream<'s, D>,
        x: &Region<T, On<'s, D>>,
        y: &mut Region<T, On<'s, D>>,
    ) -> Result<()> {
        let [x, y] = [&x.body, &y.body].map(|body| (body, self.elements()));
        self.0.run(stream, Some(x), Some(y))
    }

    /// Opens an all-reduce, enqueues one call, and drops it. A program that calls more than once saves time with
    /// [`AllReduce::open`].
    ///
    /// # Errors
    ///
    /// Those of [`AllReduce::open`] and [`AllReduce::enqueue`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(2, |world| {
    /// # stream!(let s = world.stream()?);
    /// # let mut x = Region::from_slice(&world, &[1.0, 2.0])?.on(&s)?;
    /// AllReduce::once(&s, &mut x, Op::Sum)?;
    /// # assert_eq!(x.into_host(&s)?[..], [2.0, 4.0]);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn once(on: &impl Members<'s, D>, x: &mut Region<T, On<'s, D>>, op: Op) -> Result<()> {
        Self::open(on, &once("all-reduce"), x.len(), op)?.enqueue(on.stream(), x)
    }
}

#[cfg(test)]
mod tests;
