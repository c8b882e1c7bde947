//! The views of a part that kernels get.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use tidegate_hal::device::{Issues, Parameters};
use tidegate_hal::memory::Ptr;

#[cfg(doc)]
use super::set::IndexSet;
use super::set::Members;
use crate::argument::{Lowered, WaitsForNobody};
use crate::element::Element;

/// The view of a kernel that only reads a part of a region, or the [rest](crate::window::Exposed::rest) of a window's
/// memory.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::{Cells, IndexSet};
///
/// # tidegate::doc::stream(|world, s| {
/// # let mut sum = Region::from_slice(world, &[0.0])?.on(s)?;
/// let x = Region::from_slice(world, &[1.0, 2.0, 3.0, 4.0])?;
/// let [outer] = x.partition([IndexSet::from_ranges([0..1, 3..4])?])?;
/// let outer = outer.on(s)?;
/// let add = |outer: Cells<'_, f64>, sum: &mut [f64]| {
///     for range in outer.ranges() {
///         sum[0] += outer.slice(range.clone()).iter().sum::<f64>();
///     }
/// };
/// s.launch(add, (&outer, &mut sum))?;
/// assert_eq!(sum.into_host(s)?[0], 5.0);
/// # Ok(()) });
/// ```
pub struct Cells<'k, T> {
    ptr: *const T,
    members: &'k Members,
    marker: PhantomData<&'k T>,
}

/// The view of a kernel that writes a part of a region, or the [rest](crate::window::Exposed::rest_mut) of a window's
/// memory.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::{CellsMut, IndexSet};
///
/// # tidegate::doc::stream(|world, s| {
/// let x = Region::from_slice(world, &[1.0, 2.0, 3.0])?;
/// let [ends] = x.partition([IndexSet::from_indices([0, 2])?])?;
/// let mut ends = ends.on(s)?;
/// let swap = |mut ends: CellsMut<'_, f64>| {
///     let (first, last) = (ends.get(0), ends.get(2));
///     ends.set(0, last);
///     ends.set(2, first);
/// };
/// s.launch(swap, &mut ends)?;
/// # let x = ends.into_host(s)?;
/// # Ok(()) });
/// ```
pub struct CellsMut<'k, T>(Cells<'k, T>);

impl<T> std::fmt::Debug for Cells<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cells")
            .field("element", &format_args!("{}", std::any::type_name::<T>()))
            .field("whole_len", &self.members.whole_len)
            .finish_non_exhaustive()
    }
}

impl<T> std::fmt::Debug for CellsMut<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CellsMut").field(&self.0).finish()
    }
}

impl<'k, T: Element> Cells<'k, T> {
    /// The number of elements of the whole region.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::Cells;
    ///
    /// /// Whether the part reaches the end of the region.
    /// fn has_last(part: &Cells<'_, f64>) -> bool {
    ///     part.ranges().last().is_some_and(|range| range.end == part.whole_len())
    /// }
    /// ```
    pub fn whole_len(&self) -> usize {
        self.members.whole_len
    }

    /// The ranges of its elements: see [`IndexSet::ranges`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::Cells;
    ///
    /// fn count(part: &Cells<'_, f64>) -> usize {
    ///     part.ranges().iter().map(|range| range.len()).sum()
    /// }
    /// ```
    pub fn ranges(&self) -> &'k [Range<usize>] {
        self.members.set().ranges()
    }

    /// A run of elements of the region.
    ///
    /// # Panics
    ///
    /// If the part does not hold all of them.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::Cells;
    ///
    /// fn sum(part: Cells<'_, f64>) -> f64 {
    ///     part.ranges().iter().flat_map(|range| part.slice(range.clone())).sum()
    /// }
    /// ```
    #[inline]
    #[track_caller]
    pub fn slice(&self, range: Range<usize>) -> &'k [T] {
        let len = range.len();
        let first = self.from(range);
        // SAFETY: `from` points to `len` elements of this part, which are alive and not written during `'k`: see `get`.
        // All bytes of an element are valid. If `len` is 0, the address is aligned and not null (`RegionBody::ptr`; a
        // window's memory has such an address, too).
        unsafe { std::slice::from_raw_parts(first, len) }
    }

    /// The address of the first element of a range. Panics if the part does not hold the whole range.
    #[inline]
    #[track_caller]
    fn from(&self, range: Range<usize>) -> *const T {
        let none = range.start == range.end && range.end <= self.whole_len();
        if range.start > range.end || !(none || self.members.set().covers(range.start, range.end)) {
            outside_of_part(&range);
        }
        self.ptr.wrapping_add(range.start)
    }

    /// The element with this index in the region.
    ///
    /// # Panics
    ///
    /// If the part does not hold it.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::Cells;
    ///
    /// /// The mean of an element's neighbours, which the part holds.
    /// fn mean(u: Cells<'_, f64>, i: usize) -> f64 {
    ///     (u.get(i - 1) + u.get(i + 1)) / 2.0
    /// }
    /// ```
    #[inline(always)]
    #[track_caller]
    pub fn get(&self, index: usize) -> T {
        // SAFETY: `at` points to an element of this part, which is alive while the kernel runs. Other parts do not hold
        // it. (If this is the rest of a window's memory, origins do not access it.) Every other use of this part is
        // ordered with the kernel.
        unsafe { self.at(index).read() }
    }

    #[inline(always)]
    #[track_caller]
    fn at(&self, index: usize) -> *const T {
        if !self.members.holds(index) {
            not_in_part(index);
        }
        self.ptr.wrapping_add(index)
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn outside_of_part(range: &Range<usize>) -> ! {
    panic!("elements {range:?} are not all in this part")
}

#[cold]
#[inline(never)]
#[track_caller]
fn not_in_part(index: usize) -> ! {
    panic!("element {index} is not in this part")
}

impl<'k, T: Element> CellsMut<'k, T> {
    /// The number of elements of the whole region.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::CellsMut;
    ///
    /// /// Clears the last row of a matrix, which the part holds.
    /// fn clear(mut u: CellsMut<'_, f64>, columns: usize) {
    ///     let end = u.whole_len();
    ///     u.slice_mut(end - columns..end).fill(0.0);
    /// }
    /// ```
    pub fn whole_len(&self) -> usize {
        self.0.whole_len()
    }

    /// The element with this index in the region.
    ///
    /// # Panics
    ///
    /// Like [`Cells::get`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::CellsMut;
    ///
    /// fn double(mut u: CellsMut<'_, f64>, i: usize) {
    ///     u.set(i, 2.0 * u.get(i));
    /// }
    /// ```
    #[inline(always)]
    #[track_caller]
    pub fn get(&self, index: usize) -> T {
        self.0.get(index)
    }

    /// The ranges of its elements: see [`IndexSet::ranges`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::CellsMut;
    ///
    /// fn clear(mut u: CellsMut<'_, f64>) {
    ///     for range in u.ranges() {
    ///         u.slice_mut(range.clone()).fill(0.0);
    ///     }
    /// }
    /// ```
    pub fn ranges(&self) -> &'k [Range<usize>] {
        self.0.ranges()
    }

    /// A run of elements of the region.
    ///
    /// # Panics
    ///
    /// Like [`Cells::slice`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::CellsMut;
    ///
    /// fn first_row(u: &CellsMut<'_, f64>, columns: usize) -> f64 {
    ///     u.slice(0..columns).iter().sum()
    /// }
    /// ```
    #[inline]
    #[track_caller]
    pub fn slice(&self, range: Range<usize>) -> &[T] {
        self.0.slice(range)
    }

    /// A run of elements of the region, for writing.
    ///
    /// # Panics
    ///
    /// Like [`Cells::slice`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::CellsMut;
    ///
    /// fn clear(mut u: CellsMut<'_, f64>) {
    ///     for range in u.ranges() {
    ///         u.slice_mut(range.clone()).fill(0.0);
    ///     }
    /// }
    /// ```
    #[inline]
    #[track_caller]
    pub fn slice_mut(&mut self, range: Range<usize>) -> &mut [T] {
        let len = range.len();
        let first = self.0.from(range).cast_mut();
        // SAFETY: as for `Cells::slice`. The kernel has the part exclusively, and the view is borrowed exclusively for
        // as long as the slice lives.
        unsafe { std::slice::from_raw_parts_mut(first, len) }
    }

    /// Sets the element with this index in the region.
    ///
    /// # Panics
    ///
    /// Like [`Cells::get`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::CellsMut;
    ///
    /// fn fill(mut u: CellsMut<'_, u64>) {
    ///     for index in u.ranges().iter().cloned().flatten() {
    ///         u.set(index, index as u64);
    ///     }
    /// }
    /// ```
    #[inline(always)]
    #[track_caller]
    pub fn set(&mut self, index: usize, value: T) {
        // SAFETY: as for `get`. The kernel has the part exclusively.
        unsafe { self.0.at(index).cast_mut().write(value) }
    }
}

/// A part as it is enqueued; `WRITE` if the kernel's view is exclusive.
pub struct LoweredPart<T, const WRITE: bool> {
    ptr: Ptr,
    whole_len: usize,
    members: Ptr,
    marker: PhantomData<T>,
}

impl<T, const WRITE: bool> Clone for LoweredPart<T, WRITE> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, const WRITE: bool> Copy for LoweredPart<T, WRITE> {}

impl<T: Element, const WRITE: bool> LoweredPart<T, WRITE> {
    /// Some of the `whole_len` elements at `ptr`.
    pub(crate) fn of(ptr: Ptr, whole_len: usize, members: &Arc<Members>) -> Self {
        let members: *const Members = &**members;
        LoweredPart {
            ptr,
            whole_len,
            members: Ptr(members.cast_mut().cast()),
            marker: PhantomData,
        }
    }

    /// Device code gets the whole region. The binding of its function promises that it keeps to the part.
    fn push_whole(self, parameters: &mut Parameters) {
        parameters.push(&self.ptr);
        parameters.push(&(self.whole_len as u64));
    }

    /// # Safety
    ///
    /// The same as [`Lowered::view`].
    unsafe fn cells<'k>(self) -> Cells<'k, T> {
        // SAFETY: the members are retired in stream order, like the memory (by `RegionBody::keep`, or by the inbox).
        let members = unsafe { &*self.members.0.cast::<Members>() };
        Cells {
            ptr: self.ptr.0.cast(),
            members,
            marker: PhantomData,
        }
    }
}

// SAFETY: see `cells`.
unsafe impl<T: Element> Lowered for LoweredPart<T, false> {
    type View<'k> = Cells<'k, T>;
    unsafe fn view<'k>(self, _: &'k dyn Issues) -> Cells<'k, T> {
        // SAFETY: the caller promises what `cells` requires.
        unsafe { self.cells() }
    }

    fn push(self, parameters: &mut Parameters) {
        self.push_whole(parameters);
    }
}

// SAFETY: see `cells`.
unsafe impl<T: Element> Lowered for LoweredPart<T, true> {
    type View<'k> = CellsMut<'k, T>;
    unsafe fn view<'k>(self, _: &'k dyn Issues) -> CellsMut<'k, T> {
        // SAFETY: the caller promises what `cells` requires.
        CellsMut(unsafe { self.cells() })
    }

    fn push(self, parameters: &mut Parameters) {
        self.push_whole(parameters);
    }
}

impl<T: Element> WaitsForNobody for LoweredPart<T, false> {}
impl<T: Element> WaitsForNobody for LoweredPart<T, true> {}
