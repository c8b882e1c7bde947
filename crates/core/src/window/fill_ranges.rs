//! What a kernel does with the ranges of an open outbox, beside putting to them.

use std::marker::PhantomData;

use tidegate_hal::device::Device;

use super::ByRange;
use super::fill::{LastSlots, OutSlots};
use super::fill_all::AllSlots;
use super::handle::Out;
use super::opened::{Opened, OpenedSlots};
use crate::element::Element;

/// The ranges that this rank has declared of its targets' memory, as a kernel uses them: see [`Opened::ranges`]. The
/// kernel puts to a range as to a slot ([`OutSlots::put`]), and it can also get what the range contains.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// # tidegate::doc::ranges(|s, (inbox, outbox), to, src| {
/// let exposed = inbox.post(s)?;
/// let mut opened = outbox.open(s)?;
/// let add = move |x: &[u64], mut out: OutRanges<'_, u64>| {
///     for (index, x) in x.iter().enumerate() {
///         out.put_one(to, index, out.get_one(to, index) + x); // in the target's memory
///     }
/// };
/// s.launch(add, (&src, opened.ranges()))?;
/// let _outbox = opened.complete(s)?;
/// let mut inbox = exposed.wait(s)?;
/// assert_eq!(inbox.host_mut(s)?[..5], [7, 7, 7, 7, 0]);
/// # Ok(()) });
/// ```
pub type OutRanges<'k, T> = OutSlots<'k, T, ByRange>;

/// The ranges of one target, in the kernel that completes it: see [`Opened::last`], [`LastSlots`] and [`OutRanges`].
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// # tidegate::doc::ranges(|s, (inbox, outbox), to, src| {
/// let exposed = inbox.post(s)?;
/// let opened = outbox.open(s)?;
/// let swap = move |x: &mut [u64], mut out: LastRanges<'_, u64>| {
///     let old = out.get_one(to, 0);
///     out.put(to, 0, x);
///     out.complete(); // the target goes on, with its memory for itself
///     x.fill(old);
/// };
/// # let mut src = Region::from_slice(s.world(), &[7; 4])?.on(s)?;
/// s.launch(swap, (&mut src, opened.last(1 - s.world().rank())?))?;
/// let _outbox = opened.complete(s)?;
/// let mut inbox = exposed.wait(s)?;
/// assert_eq!(inbox.host_mut(s)?[..5], [7, 7, 7, 7, 0]);
/// # Ok(()) });
/// ```
pub type LastRanges<'k, T> = LastSlots<'k, T, ByRange>;

/// All ranges, in the kernel that completes all targets: see [`Opened::last_of_all`], [`AllSlots`] and [`OutRanges`].
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// # tidegate::doc::ranges(|s, (inbox, outbox), to, src| {
/// let exposed = inbox.post(s)?;
/// let opened = outbox.open(s)?;
/// let double = move |mut out: AllRanges<'_, u64>| {
///     let mut x = [0; 4];
///     out.get(to, 0, &mut x);
///     out.put(to, 0, &x.map(|x| 2 * x + 1));
/// };
/// s.launch(double, opened.last_of_all()?)?;
/// let _outbox = opened.complete(s)?;
/// let mut inbox = exposed.wait(s)?;
/// assert_eq!(inbox.host_mut(s)?[..5], [1, 1, 1, 1, 0]);
/// # Ok(()) });
/// ```
pub type AllRanges<'k, T> = AllSlots<'k, T, ByRange>;

impl<'s, T: Element, D: Device> Opened<'s, T, D, ByRange> {
    /// All ranges as an argument of a kernel on the outbox's stream. The kernel sees [`OutRanges`]. Launch as many
    /// kernels with it as you like; each has the ranges for itself.
    ///
    /// # Examples
    ///
    /// See [`OutRanges`].
    pub fn ranges(&mut self) -> OpenedSlots<'_, 's, T, D, ByRange> {
        OpenedSlots {
            lowered: self.lowered(),
            marker: PhantomData,
        }
    }
}

impl<T: Element> OutRanges<'_, T> {
    /// Gets elements of a range, from its element `first` on: what the target had there when it posted, and what this
    /// rank has put there since.
    ///
    /// # Panics
    ///
    /// As [`OutSlots::put`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranges(|s, (inbox, outbox), to, src| {
    /// # let mut got = Region::from_slice(s.world(), &[1u64; 2])?.on(s)?;
    /// # let exposed = inbox.post(s)?;
    /// let mut opened = outbox.open(s)?;
    /// s.launch(move |out: OutRanges<'_, u64>, got: &mut [u64]| out.get(to, 2, got), (opened.ranges(), &mut got))?;
    /// # let _outbox = opened.complete(s)?;
    /// # let _inbox = exposed.wait(s)?;
    /// assert_eq!(got.into_host(s)?[..], [0, 0]);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn get(&self, range: Out<T>, first: usize, into: &mut [T]) {
        let Some(at) = self.place("get from", range, first, into.len()) else {
            failed(range.index());
        };
        // SAFETY: the elements lie within the range. Its target is granted: it has exposed the memory, where nobody else
        // writes these elements, and the epoch is not complete. `into` is memory of this rank, which it has not exposed:
        // the kernel has no view of what an origin may access.
        unsafe { std::ptr::copy_nonoverlapping(at, into.as_mut_ptr(), into.len()) };
    }

    /// Gets one element of a range.
    ///
    /// # Panics
    ///
    /// As [`OutSlots::put`].
    ///
    /// # Examples
    ///
    /// See [`OutRanges`].
    #[inline]
    #[track_caller]
    pub fn get_one(&self, range: Out<T>, index: usize) -> T {
        let Some(at) = self.place("get from", range, index, 1) else {
            failed(range.index());
        };
        // SAFETY: as above. Any bytes are a valid element.
        unsafe { at.read() }
    }
}

impl<T: Element> LastRanges<'_, T> {
    /// Gets elements of a range of this target, as [`OutRanges::get`](OutSlots::get) does.
    ///
    /// # Panics
    ///
    /// As [`LastSlots::put`].
    ///
    /// # Examples
    ///
    /// See [`LastRanges`].
    #[track_caller]
    pub fn get(&self, range: Out<T>, first: usize, into: &mut [T]) {
        self.of_target(range).get(range, first, into);
    }

    /// Gets one element of a range of this target.
    ///
    /// # Panics
    ///
    /// As [`LastSlots::put`].
    ///
    /// # Examples
    ///
    /// See [`LastRanges`].
    #[inline]
    #[track_caller]
    pub fn get_one(&self, range: Out<T>, index: usize) -> T {
        self.of_target(range).get_one(range, index)
    }
}

impl<T: Element> AllRanges<'_, T> {
    /// Gets elements of a range, as [`OutRanges::get`](OutSlots::get) does.
    ///
    /// # Panics
    ///
    /// As [`OutSlots::put`].
    ///
    /// # Examples
    ///
    /// See [`AllRanges`].
    #[track_caller]
    pub fn get(&self, range: Out<T>, first: usize, into: &mut [T]) {
        self.slots.get(range, first, into);
    }

    /// Gets one element of a range.
    ///
    /// # Panics
    ///
    /// As [`OutSlots::put`].
    ///
    /// # Examples
    ///
    /// See [`AllRanges`].
    #[inline]
    #[track_caller]
    pub fn get_one(&self, range: Out<T>, index: usize) -> T {
        self.slots.get_one(range, index)
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn failed(index: u32) -> ! {
    panic!("a get from outbound slot {index} on a stream that has failed")
}
