//! The elements of an exposed inbox that no origin may access. The rank that owns the memory may use them meanwhile.
//!
//! # Model
//!
//! When the window was opened, all ranks checked that the footprints of the origins are disjoint. Operations keep to
//! them: a put, a get or an accumulate outside of its own range or layout is refused when it is noted. So elements in
//! no footprint belong to this rank alone, for reading and writing, even while the memory is exposed. Kernels see them
//! through [`Cells`](crate::Cells) and [`CellsMut`](crate::CellsMut), which give access to one element or one run.
//! There is never a reference to memory that an origin may be writing.
//!
//! # Failure
//!
//! The set and its bit map are made on first use. If there is no memory for them, the call fails.

use std::marker::PhantomData;
use std::sync::Arc;

use tidegate_hal::device::Device;

use super::ByRange;
use super::exposure::InboxBody;
use super::inbox::Exposed;
use crate::element::Element;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::footprint::complement;
use crate::kernel::Argument;
use crate::part::{IndexSet, LoweredPart, Members};
use crate::place::Brand;
use crate::stream::Stream;

/// The elements of an exposed inbox that no origin may access, as a kernel's argument. The kernel sees
/// [`Cells`](crate::Cells). See [`Exposed::rest`].
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::Cells;
///
/// # tidegate::doc::ranges(|s, (inbox, outbox), to, src| {
/// # let mut sum = Region::<u64>::zeroed(s.world(), 1)?.on(s)?;
/// let exposed = inbox.post(s)?;
/// let rest = exposed.rest()?;
/// assert_eq!(rest.set().ranges(), [4..8]); // the peer may write the others
/// s.launch(|rest: Cells<'_, u64>, sum: &mut [u64]| sum[0] = rest.slice(4..8).iter().sum(), (rest, &mut sum))?;
/// # let (_outbox, _inbox) = (outbox.start().complete(s)?, exposed.wait(s)?);
/// # Ok(()) });
/// ```
pub struct Rest<'b, 's, T, D: Device> {
    lowered: LoweredPart<T, false>,
    set: &'b IndexSet,
    marker: PhantomData<(&'b T, &'s D, Brand<'s>)>,
}

/// The elements of an exposed inbox that no origin may access, as a kernel's argument for writing. The kernel sees
/// [`CellsMut`](crate::CellsMut). See [`Exposed::rest_mut`].
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::CellsMut;
///
/// # tidegate::doc::ranges(|s, (inbox, outbox), to, src| {
/// let mut exposed = inbox.post(s)?;
/// s.launch(|mut rest: CellsMut<'_, u64>| rest.slice_mut(4..8).fill(1), exposed.rest_mut()?)?;
/// # let (_outbox, _inbox) = (outbox.start().complete(s)?, exposed.wait(s)?);
/// # Ok(()) });
/// ```
pub struct RestMut<'b, 's, T, D: Device> {
    lowered: LoweredPart<T, true>,
    set: &'b IndexSet,
    marker: PhantomData<(&'b mut T, &'s D, Brand<'s>)>,
}

impl<D: Device> InboxBody<D> {
    /// The elements in no footprint, computed on first use.
    fn rest(&self) -> Result<&Arc<Members>> {
        if let Some(rest) = self.rest.get() {
            return Ok(rest);
        }
        let len = self.table.len;
        let ranges = complement(self.footprints.iter(), len)?;
        let members = Members::new(IndexSet::from_ranges(ranges)?, len)?;
        Ok(self.rest.get_or_init(|| Arc::new(members)))
    }
}

impl<'s, T: Element, D: Device> Exposed<'s, T, D, ByRange> {
    /// The elements that no origin may access, as an argument of a kernel on the inbox's stream. So the kernel computes
    /// with them while origins write the others. It sees [`Cells`](crate::Cells), whose indices count in the whole
    /// memory. [`Rest::set`] has the set of elements.
    ///
    /// The set is this rank's memory without the elements that any rank has declared by
    /// [`range_to`](super::Window::range_to) or [`layout_to`](super::Window::layout_to), even a rank that is not an
    /// origin of this epoch. It is made once, at the first call, and takes 16 bytes for each of its ranges and a bit
    /// for each element of the memory.
    ///
    /// Device code gets the address and the length of the whole memory. The `unsafe` binding of its kernel promises
    /// that the kernel keeps to the set.
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # use tidegate::Cells;
    /// # tidegate::doc::ranks(2, |world| {
    /// # stream!(let s = world.stream()?);
    /// # let peer = 1 - world.rank();
    /// # let src = Region::from_slice(&world, &[1.0; 3])?.on(&s)?;
    /// # let mut sum = Region::<f64>::zeroed(&world, 1)?.on(&s)?;
    /// // Of a matrix of 3 x 4 elements, the peer writes the first column.
    /// let mut window = RangeWindow::<f64>::new("column", 12);
    /// let column = Layout::subarray(&[3, 4], &[0..3, 0..1])?;
    /// let column = window.layout_to(peer, &column);
    /// let (mut inbox, outbox) = window.open(&s)?;
    /// inbox.host_mut(&s)?.fill(2.0);
    ///
    /// let exposed = inbox.post(&s)?;
    /// let mut epoch = outbox.start();
    /// epoch.put(&src, column)?;
    /// let _outbox = epoch.complete(&s)?;
    /// // Meanwhile this rank uses the other columns.
    /// let add = |rest: Cells<'_, f64>, sum: &mut [f64]| {
    ///     for range in rest.ranges() {
    ///         sum[0] += rest.slice(range.clone()).iter().sum::<f64>();
    ///     }
    /// };
    /// s.launch(add, (exposed.rest()?, &mut sum))?;
    /// let mut inbox = exposed.wait(&s)?;
    /// assert_eq!(sum.into_host(&s)?[0], 9.0 * 2.0);
    /// assert_eq!(inbox.host_mut(&s)?[..5], [1.0, 2.0, 2.0, 2.0, 1.0]);
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if there is no memory for the set.
    pub fn rest(&self) -> Result<Rest<'_, 's, T, D>> {
        let body = self.body();
        let members = body.rest()?;
        Ok(Rest {
            lowered: LoweredPart::of(body.table.memory, body.table.len, members),
            set: members.set(),
            marker: PhantomData,
        })
    }

    /// Like [`Exposed::rest`], for writing as well. The kernel sees [`CellsMut`](crate::CellsMut).
    ///
    /// # Errors
    ///
    /// The same as [`Exposed::rest`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use tidegate::CellsMut;
    ///
    /// # tidegate::doc::ranges(|s, (inbox, outbox), to, src| {
    /// let mut exposed = inbox.post(s)?;
    /// s.launch(|mut rest: CellsMut<'_, u64>| rest.set(4, 1), exposed.rest_mut()?)?; // while the peer writes 0..4
    /// let mut epoch = outbox.start();
    /// epoch.put(&src, to)?;
    /// let _outbox = epoch.complete(s)?;
    /// let mut inbox = exposed.wait(s)?;
    /// assert_eq!(inbox.host_mut(s)?[..], [7, 7, 7, 7, 1, 0, 0, 0]);
    /// # Ok(()) });
    /// ```
    pub fn rest_mut(&mut self) -> Result<RestMut<'_, 's, T, D>> {
        let body = self.body();
        let members = body.rest()?;
        Ok(RestMut {
            lowered: LoweredPart::of(body.table.memory, body.table.len, members),
            set: members.set(),
            marker: PhantomData,
        })
    }
}

macro_rules! rest {
    ($rest:ident) => {
        impl<'b, T, D: Device> $rest<'b, '_, T, D> {
            /// The set of its elements, numbered as in the whole memory.
            ///
            /// # Examples
            ///
            /// ```
            /// # use tidegate::host::prelude::*;
            /// # tidegate::doc::ranges(|s, (inbox, outbox), to, src| {
            /// let exposed = inbox.post(s)?;
            /// assert_eq!(exposed.rest()?.set().ranges(), [4..8]);
            /// # let (_outbox, _inbox) = (outbox.start().complete(s)?, exposed.wait(s)?);
            /// # Ok(()) });
            /// ```
            pub fn set(&self) -> &'b IndexSet {
                self.set
            }
        }
    };
}
rest!(Rest);
rest!(RestMut);

// SAFETY: the inbox is at home on the stream, and borrowed until the kernel has been enqueued, so its wait comes later.
// No origin accesses the elements. The view is shared, and so is the borrow.
unsafe impl<'s, T: Element, D: Device> Argument<'s, D> for Rest<'_, 's, T, D> {
    type Lowered = LoweredPart<T, false>;

    fn lower(&mut self, _stream: &Stream<'s, D>) -> Result<LoweredPart<T, false>> {
        Ok(self.lowered)
    }
}

// SAFETY: as for `Rest`; the view is exclusive, and so is the borrow.
unsafe impl<'s, T: Element, D: Device> Argument<'s, D> for RestMut<'_, 's, T, D> {
    type Lowered = LoweredPart<T, true>;

    fn lower(&mut self, _stream: &Stream<'s, D>) -> Result<LoweredPart<T, true>> {
        Ok(self.lowered)
    }
}

#[cfg(test)]
mod tests {
    use crate::window::RangeWindow;
    use crate::{Cells, CellsMut, Layout, Region, World};
    use tidegate_host::Host;

    /// Each rank writes its own elements of every row while the other rank writes the elements between them. The kernel
    /// reads and writes single elements and slices. Miri checks that nothing overlaps.
    #[test]
    fn what_is_left_is_used_while_others_write() {
        World::<Host>::local(2, |world| {
            crate::stream!(let s = world.stream().unwrap());
            let peer = 1 - world.rank();
            let mut window = RangeWindow::<u32>::new("rows", 12);
            let columns = Layout::<Host>::subarray(&[3, 4], &[0..3, 1..3]).unwrap();
            let to = window.layout_to(peer, &columns);
            let (mut inbox, mut outbox) = window.open(&s).unwrap();
            let src = Region::from_slice(&world, &[7u32; 6])
                .unwrap()
                .on(&s)
                .unwrap();
            let mut sum = Region::<u32, _>::zeroed(&world, 1).unwrap().on(&s).unwrap();
            for _ in 0..3 {
                let mut exposed = inbox.post(&s).unwrap();
                let rest = exposed.rest_mut().unwrap();
                assert_eq!(rest.set().ranges(), [0..1, 3..5, 7..9, 11..12]);
                let count = |mut rest: CellsMut<'_, u32>| {
                    for range in rest.ranges() {
                        rest.slice_mut(range.clone())
                            .iter_mut()
                            .for_each(|v| *v += 1);
                        rest.set(range.start, rest.get(range.start) + 1);
                    }
                };
                s.launch(count, rest).unwrap();
                let mut epoch = outbox.start();
                epoch.put(src.slice(0..4).unwrap(), to.at(1)).unwrap();
                outbox = epoch.complete(&s).unwrap();
                let add = |rest: Cells<'_, u32>, sum: &mut [u32]| {
                    let ranges = rest.ranges().iter();
                    sum[0] = ranges.flat_map(|range| rest.slice(range.clone())).sum();
                };
                s.launch(add, (exposed.rest().unwrap(), &mut sum)).unwrap();
                inbox = exposed.wait(&s).unwrap();
            }
            let expected = [6, 0, 7, 6, 3, 7, 7, 6, 3, 7, 0, 6];
            assert_eq!(*inbox.host_mut(&s).unwrap(), expected);
            assert_eq!(sum.into_host(&s).unwrap()[0], 4 * 6 + 2 * 3);
        });
    }

    /// The program drops an exposure and its window before a queued kernel writes the rest. The memory and the set stay
    /// until the stream has passed that kernel, which Miri checks.
    #[test]
    fn what_is_left_stays_until_the_stream_is_past() {
        World::<Host>::local(1, |world| {
            crate::stream!(let s = world.stream().unwrap());
            let mut window = RangeWindow::<u32>::new("dropped", 64);
            window.range_to(0, 0..8);
            let (inbox, outbox) = window.open(&s).unwrap();
            let mut exposed = inbox.post(&s).unwrap();
            let (go, wait) = std::sync::mpsc::channel::<()>();
            let wait = std::sync::Arc::new(std::sync::Mutex::new(wait));
            let write = move |mut rest: CellsMut<'_, u32>, sum: &mut [u32]| {
                wait.lock().unwrap().recv().unwrap();
                for range in rest.ranges() {
                    rest.slice_mut(range.clone()).fill(9);
                    sum[0] += rest.slice(range.clone()).iter().sum::<u32>();
                }
            };
            let mut sum = Region::<u32, _>::zeroed(&world, 1).unwrap().on(&s).unwrap();
            s.launch(write, (exposed.rest_mut().unwrap(), &mut sum))
                .unwrap();
            drop((exposed, outbox));
            go.send(()).unwrap();
            assert_eq!(sum.into_host(&s).unwrap()[0], 9 * 56);
        });
    }
}
