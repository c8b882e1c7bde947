//! Sums and other reductions over all ranks, on all ranks.

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
    /// Reduces the vectors of all ranks, and brings the result to all ranks: sums, products, minima and maxima.
    ///
    /// The result has the same bits on all ranks and in every run of a program: each element is reduced in the order of the
    /// ranks, from rank 0 on. So if a decision depends on it (whether a solver goes on, say), all ranks take the same branch.
    ///
    /// To read the result on the host, call `x.to_vec(&s)?`, which waits and copies. If only kernels need the result (a
    /// solver's step length, say), nobody waits.
    ///
    /// If a rank is lost, the last call may succeed on some ranks and fail on others.
    ///
    /// *Integers*, signed or unsigned, wrap in sums and products.
    ///
    /// *Floats.* For [`Op::Min`] and [`Op::Max`] a NaN loses against a number. The result has the bits of one rank's value, on
    /// every device. If several zeros tie, whatever their signs, that is the last rank's value; if all values are NaN, it is
    /// the first rank's. A sum or product is NaN on all ranks and on every kind of device or on none, but the bits of that NaN
    /// depend on the device.
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
    /// let mut dots = AllReduce::open(&s, "dots", 1)?;
    /// let product = |x: &[f64], y: &[f64], dot: &mut [f64]| dot[0] = x.iter().zip(y).map(|(x, y)| x * y).sum();
    /// s.launch(product, (&x, &y, &mut dot))?; // this rank's part of the dot product
    /// dots.sum(&s, &mut dot)?; // enqueued: later work of the stream sees the dot product of all ranks
    /// # assert_eq!(dot.into_host(&s)?[0], 7.5);
    /// # Ok(()) });
    /// ```
    AllReduce of Reducible, "an all-reduce of vectors of `len` elements", () "" => JointKind::AllReduce
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
    /// let energy = AllReduce::<f64>::open(&s, "energy", 3)?;
    /// assert_eq!(energy.elements(), 3);
    /// # Ok(()) });
    /// ```
    pub fn elements(&self) -> usize {
        self.0.vector()
    }

    /// Enqueues a sum: each element of `x` is replaced by the sum of that element over all ranks. Integers wrap.
    ///
    /// # Errors
    ///
    /// The same as [`AllReduce::reduce`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(3, |world| {
    /// # stream!(let s = world.stream()?);
    /// # let mut all = AllReduce::open(&s, "all", 2)?;
    /// let mut x = Region::from_slice(&world, &[1.0, world.rank() as f64])?.on(&s)?;
    /// all.sum(&s, &mut x)?;
    /// assert_eq!(x.into_host(&s)?[..], [3.0, 3.0]);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn sum(&mut self, stream: &Stream<'s, D>, x: &mut Region<T, On<'s, D>>) -> Result<()> {
        self.reduce(stream, x, Op::Sum)
    }

    /// Enqueues a product: each element of `x` is replaced by the product of that element over all ranks. Integers
    /// wrap.
    ///
    /// # Errors
    ///
    /// The same as [`AllReduce::reduce`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(3, |world| {
    /// # stream!(let s = world.stream()?);
    /// # let mut all = AllReduce::open(&s, "all", 1)?;
    /// let mut x = Region::from_slice(&world, &[world.rank() as u64 + 1])?.on(&s)?;
    /// all.prod(&s, &mut x)?;
    /// assert_eq!(x.into_host(&s)?[0], 1 * 2 * 3);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn prod(&mut self, stream: &Stream<'s, D>, x: &mut Region<T, On<'s, D>>) -> Result<()> {
        self.reduce(stream, x, Op::Prod)
    }

    /// Enqueues a minimum: each element of `x` is replaced by the least value of that element on any rank. A NaN loses.
    ///
    /// # Errors
    ///
    /// The same as [`AllReduce::reduce`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(3, |world| {
    /// # stream!(let s = world.stream()?);
    /// # let mut all = AllReduce::open(&s, "all", 1)?;
    /// let mut step = Region::from_slice(&world, &[0.1 * (world.rank() + 1) as f64])?.on(&s)?;
    /// all.min(&s, &mut step)?; // the time step that suits all ranks
    /// assert_eq!(step.into_host(&s)?[0], 0.1);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn min(&mut self, stream: &Stream<'s, D>, x: &mut Region<T, On<'s, D>>) -> Result<()> {
        self.reduce(stream, x, Op::Min)
    }

    /// Enqueues a maximum: each element of `x` is replaced by the greatest value of that element on any rank. A NaN
    /// loses.
    ///
    /// # Errors
    ///
    /// The same as [`AllReduce::reduce`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(3, |world| {
    /// # stream!(let s = world.stream()?);
    /// # let mut all = AllReduce::open(&s, "all", 1)?;
    /// let mut error = Region::from_slice(&world, &[world.rank() as f64])?.on(&s)?;
    /// all.max(&s, &mut error)?;
    /// assert_eq!(error.into_host(&s)?[0], 2.0);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn max(&mut self, stream: &Stream<'s, D>, x: &mut Region<T, On<'s, D>>) -> Result<()> {
        self.reduce(stream, x, Op::Max)
    }

    /// Enqueues any reduction: `op(…op(op(x of rank 0, x of rank 1), x of rank 2)…)`. [`Op::Keep`] gives all ranks the
    /// vector of rank 0, and [`Op::Replace`] that of the last rank.
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
    /// # tidegate::doc::ranks(3, |world| {
    /// # stream!(let s = world.stream()?);
    /// # let mut all = AllReduce::open(&s, "all", 1)?;
    /// let mut seed = Region::from_slice(&world, &[7 + world.rank() as u64])?.on(&s)?;
    /// all.reduce(&s, &mut seed, Op::Keep)?; // what rank 0 has
    /// assert_eq!(seed.into_host(&s)?[0], 7);
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
        let x = (&x.body, self.elements());
        self.0.run(stream, None, Some(x), Some(reduction))
    }

    /// Like [`AllReduce::reduce`], but `y` gets the result, and `x` is not changed.
    ///
    /// # Errors
    ///
    /// The same as [`AllReduce::reduce`]; `y` must be as long as `x`.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(2, |world| {
    /// # stream!(let s = world.stream()?);
    /// # let mut all = AllReduce::open(&s, "all", 1)?;
    /// let x = Region::from_slice(&world, &[[4, 3][world.rank()]])?.on(&s)?;
    /// let mut y = Region::zeroed(&world, 1)?.on(&s)?;
    /// all.reduce_into(&s, &x, &mut y, Op::Sum)?;
    /// assert_eq!(y.into_host(&s)?[0], 7);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn reduce_into(
        &mut self,
        stream: &Stream<'s, D>,
        x: &Region<T, On<'s, D>>,
        y: &mut Region<T, On<'s, D>>,
        op: Op,
    ) -> Result<()> {
        let reduction = reduction(&self.0, op)?;
        let [x, y] = [&x.body, &y.body].map(|body| (body, self.elements()));
        self.0.run(stream, Some(x), Some(y), Some(reduction))
    }

    /// Opens an all-reduce, enqueues one call, and drops it. A program that calls more than once saves time with [`AllReduce::open`].
    ///
    /// # Errors
    ///
    /// Those of [`AllReduce::open`] and of the call.
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
        Self::open(on, &once("all-reduce"), x.len())?.reduce(on.stream(), x, op)
    }
}

#[cfg(test)]
mod tests;
