//! The operations of an epoch of an atomic window.

use tidegate_hal::batch::Op;
use tidegate_hal::device::Device;

use super::access::{Access, check_op};
use super::handle::{Dest, IntoDest};
use super::note::What;
use super::source::{IntoSource, IntoSourceMut};
use super::{Atomic, Half};
use crate::element::Arithmetic;
use crate::error::{EpochError, Error, Result};
use crate::layout::Layout;
use crate::nic::Touch;

impl<'s, 'b, T: Arithmetic, D: Device> Access<'s, 'b, T, D, Atomic> {
    /// Notes an atomic accumulate: each element is replaced by `op` of itself and the element of the source.
    ///
    /// The order in which the operations of several origins come to an element is not specified. It may differ between
    /// targets and between runs. That makes no difference for integers, [`Op::Max`] and [`Op::Min`]. But a sum or
    /// product of floats may differ in its last bits from one target to the next. If all ranks must decide alike by a
    /// sum (whether a solver goes on, say), use an [`AllReduce`](crate::AllReduce) or [`Op::Max`]. If each rank
    /// compares its own sum with a tolerance, the ranks may decide differently, and then wait for each other for ever.
    ///
    /// # Errors
    ///
    /// Nothing is noted if the call fails. Its errors are:
    ///
    /// - [`EpochError::ForeignSlot`](crate::error::EpochError::ForeignSlot) for a handle of another window.
    /// - [`EpochError::SlotExpired`](crate::error::EpochError::SlotExpired) for a handle that was taken in another
    ///   epoch.
    /// - [`EpochError::OutOfBounds`](crate::error::EpochError::OutOfBounds) if the elements do not fit.
    /// - [`EpochError::NotForFloats`](crate::error::EpochError::NotForFloats) for a bitwise operation on floats.
    /// - [`EpochError::NotSideBySide`](crate::error::EpochError::NotSideBySide) for a destination with a layout.
    /// - [`EpochError::NotByDevice`](crate::error::EpochError::NotByDevice) if the device cannot carry the operation
    ///   out in peers' memory.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::counters(|s, (inbox, outbox), counters, one| {
    /// let mut epoch = outbox.start();
    /// epoch.accumulate(&one, counters.at(1), Op::Sum)?; // both ranks, to one element
    /// let (mut inbox, _outbox) = exchange(s, inbox, epoch)?;
    /// if s.world().rank() == 0 {
    ///     assert_eq!(inbox.host_mut(s)?[1], 2);
    /// }
    /// # Ok(()) });
    /// ```
    pub fn accumulate(
        &mut self,
        source: impl IntoSource<'b, 's, T, D>,
        dest: impl IntoDest<'b, T, D>,
        op: Op,
    ) -> Result<()> {
        check_op::<T>(op, || self.held.half.window.named())?;
        self.check_carried(Some(op))?;
        let dest = without_layout(&self.held.half, dest)?;
        self.note(
            What::Accumulate {
                op,
                scalar: T::SCALAR,
                atomic: true,
            },
            &source.into(),
            &dest,
        )
    }

    /// Notes a fetch-and-op: an accumulate that also returns the old values. They go to `result`, which must have as
    /// many elements as the operand, side by side.
    ///
    /// # Errors
    ///
    /// The errors of [`Access::accumulate`](Self::accumulate), and:
    ///
    /// - [`EpochError::CountMismatch`](crate::error::EpochError::CountMismatch) if the result has another length than
    ///   the operand.
    /// - [`EpochError::NotSideBySide`](crate::error::EpochError::NotSideBySide) for a result with a layout.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::counters(|s, (inbox, outbox), counters, one| {
    /// let mut ticket = Region::<u64>::zeroed(s.world(), 1)?.on(s)?;
    /// let mut epoch = outbox.start();
    /// epoch.fetch_and_op(&one, &mut ticket, counters, Op::Sum)?;
    /// let (inbox, _outbox) = exchange(s, inbox, epoch)?;
    /// println!("this rank came as number {}", ticket.into_host(s)?[0]);
    /// # Ok(()) });
    /// ```
    pub fn fetch_and_op(
        &mut self,
        operand: impl IntoSource<'b, 's, T, D>,
        result: impl IntoSourceMut<'b, 's, T, D>,
        dest: impl IntoDest<'b, T, D>,
        op: Op,
    ) -> Result<()> {
        check_op::<T>(op, || self.held.half.window.named())?;
        self.check_carried(Some(op))?;
        let (operand, result) = (operand.into(), result.into().source);
        let dest = without_layout(&self.held.half, dest)?;
        side_by_side(&self.held.half, result.layout, "result")?;
        same_count(&self.held.half, operand.count, result.count)?;
        let what = What::FetchOp {
            op,
            scalar: T::SCALAR,
            atomic: true,
            result: result.local,
        };
        self.note(what, &operand, &dest)?;
        self.touch(&dest, result.body, Touch::Write);
        Ok(())
    }

    /// Notes an atomic read of elements. They go to `result`, side by side.
    ///
    /// # Errors
    ///
    /// [`EpochError::ForeignSlot`](crate::error::EpochError::ForeignSlot),
    /// [`EpochError::SlotExpired`](crate::error::EpochError::SlotExpired) and
    /// [`EpochError::OutOfBounds`](crate::error::EpochError::OutOfBounds), as for
    /// [`Access::accumulate`](Self::accumulate), and
    /// [`EpochError::NotSideBySide`](crate::error::EpochError::NotSideBySide) for a result or destination with a
    /// layout.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::counters(|s, (inbox, outbox), counters, one| {
    /// let mut both = Region::<u64>::zeroed(s.world(), 2)?.on(s)?;
    /// let mut epoch = outbox.start();
    /// epoch.get(&mut both, counters)?;
    /// let (inbox, _outbox) = exchange(s, inbox, epoch)?;
    /// assert_eq!(both.into_host(s)?[..], [0, 0]);
    /// # Ok(()) });
    /// ```
    pub fn get(
        &mut self,
        result: impl IntoSourceMut<'b, 's, T, D>,
        from: impl IntoDest<'b, T, D>,
    ) -> Result<()> {
        let (result, dest) = (result.into().source, without_layout(&self.held.half, from)?);
        side_by_side(&self.held.half, result.layout, "result")?;
        // The operation keeps the old value, so its operand is read and ignored. The result itself can be the operand.
        let what = What::FetchOp {
            op: Op::Keep,
            scalar: T::SCALAR,
            atomic: true,
            result: result.local,
        };
        self.note(what, &result, &dest)?;
        self.touch(&dest, result.body, Touch::Write);
        Ok(())
    }

    /// Notes a compare-and-swap of each element. Where its bits equal those of `compare`, it is replaced by the element
    /// of `desired`. The old values go to `result`. All three must have the same number of elements, side by side.
    ///
    /// # Errors
    ///
    /// Those of [`Access::accumulate`](Self::accumulate) but for
    /// [`EpochError::NotForFloats`](crate::error::EpochError::NotForFloats), and:
    ///
    /// - [`EpochError::CountMismatch`](crate::error::EpochError::CountMismatch) if `compare`, `desired` and `result` do
    ///   not have the same length.
    /// - [`EpochError::NotSideBySide`](crate::error::EpochError::NotSideBySide) if one of them has a layout.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::counters(|s, (inbox, outbox), counters, one| {
    /// # let free = Region::<u64>::zeroed(s.world(), 1)?.on(s)?;
    /// let mine = Region::from_slice(s.world(), &[s.world().rank() as u64 + 1])?.on(s)?;
    /// let mut owner = Region::<u64>::zeroed(s.world(), 1)?.on(s)?;
    /// let mut epoch = outbox.start();
    /// epoch.compare_and_swap(&free, &mine, &mut owner, counters)?; // where it is 0, it becomes this rank's
    /// let (inbox, _outbox) = exchange(s, inbox, epoch)?;
    /// let won = owner.into_host(s)?[0] == 0; // on one of the ranks
    /// # Ok(()) });
    /// ```
    pub fn compare_and_swap(
        &mut self,
        compare: impl IntoSource<'b, 's, T, D>,
        desired: impl IntoSource<'b, 's, T, D>,
        result: impl IntoSourceMut<'b, 's, T, D>,
        dest: impl IntoDest<'b, T, D>,
    ) -> Result<()> {
        self.check_carried(None)?;
        let (compare, desired, result) = (compare.into(), desired.into(), result.into().source);
        let dest = without_layout(&self.held.half, dest)?;
        side_by_side(&self.held.half, compare.layout, "comparand")?;
        side_by_side(&self.held.half, desired.layout, "desired value")?;
        side_by_side(&self.held.half, result.layout, "result")?;
        same_count(&self.held.half, compare.count, desired.count)?;
        same_count(&self.held.half, desired.count, result.count)?;
        let what = What::CompareSwap {
            scalar: T::SCALAR,
            compare: compare.local,
            result: result.local,
        };
        self.note(what, &desired, &dest)?;
        self.touch(&dest, compare.body, Touch::Read);
        self.touch(&dest, result.body, Touch::Write);
        Ok(())
    }
}

/// Refuses an operand with a layout: devices find the elements of an operand by its first one alone.
fn side_by_side<D: Device>(
    half: &Half<D>,
    layout: Option<&Layout<D>>,
    what: &'static str,
) -> Result<()> {
    if layout.is_none() {
        return Ok(());
    }
    let window = half.window.named();
    Err(Error::Epoch(EpochError::NotSideBySide { window, what }))
}

/// The destination of an atomic operation, which may not have a layout.
fn without_layout<'b, T, D: Device>(
    half: &Half<D>,
    dest: impl IntoDest<'b, T, D>,
) -> Result<Dest<'b, T, D>> {
    let dest = dest.into();
    side_by_side(half, dest.layout, "destination")?;
    Ok(dest)
}

fn same_count<D: Device>(half: &Half<D>, src: usize, dst: usize) -> Result<()> {
    if src == dst {
        Ok(())
    } else {
        let window = half.window.named();
        Err(Error::Epoch(EpochError::CountMismatch { window, src, dst }))
    }
}
