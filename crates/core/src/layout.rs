//! Which elements of a region or slot a put, get or accumulate touches.

use std::ops::Range;
use std::sync::Arc;

use tidegate_hal::batch::Shape;
use tidegate_hal::device::Device;
use tidegate_hal::memory::{Block as _, Sharing};
use tidegate_hal::nic::Keep;

use crate::carry::{Carry, Visitor};
#[cfg(doc)]
use crate::error::Error;
use crate::error::{EpochError, LayoutFault, RegionError, Result, reserved};
use crate::footprint::Footprint;
use crate::ground::{keep, visited};
use crate::world::World;

/// A choice of elements, in order: a nest of strides, or a list of indices. It may be empty. A layout is checked once, when
/// it is made; it is immutable, and cheap to clone.
///
/// A put whose source has a layout gathers while it sends. A put whose destination has a layout scatters. So a face of an
/// array needs no packing by hand. Make layouts before the steps, since making one checks it.
///
/// # Examples
///
/// ```
/// use tidegate::host::prelude::*;
///
/// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
/// # let world = s.world();
/// let matrix = Region::from_slice(world, &[0, 1, 2, 3, 4, 5, 6, 7])?.on(s)?; // 4 rows of 2
/// let column = Layout::strided(1, &[(4, 2)])?; // from element 1 on, 4 elements, 2 apart
/// let mut epoch = outbox.start();
/// epoch.put(matrix.with(&column)?, to)?;
/// let (mut inbox, _outbox) = exchange(s, inbox, epoch)?;
/// assert_eq!(inbox.read(s)?.slot(from), [1, 3, 5, 7]);
/// # Ok(()) });
/// ```
pub struct Layout<D: Device> {
    inner: Arc<LayoutBody<D>>,
}

struct LayoutBody<D: Device> {
    /// The element that offset 0 of the shape stands for.
    first: usize,
    /// Linear, if it is one run.
    shape: Shape,
    count: usize,
    /// One more than the highest element that is touched.
    extent: usize,
    /// Whether no element occurs twice.
    distinct: bool,
    /// The pieces of a list of indices: runs of neighbouring elements, in its order. A nest of strides finds its own again.
    listed: Vec<(usize, usize)>,
    /// The index table, and the device in whose memory it is.
    table: Option<(D::Block, D)>,
}

impl<D: Device> LayoutBody<D> {
    fn fits(&self, device: &D) -> bool {
        let table = self.table.as_ref();
        table.is_none_or(|(_, other)| other.same(device))
    }
}

// SAFETY: there is no leaf, and no brand: a layout is of no stream, and batches keep it for as long as they need it.
unsafe impl<'s, D: Device> Carry<'s, D> for Layout<D> {
    type At<'t> = Layout<D>;

    fn visit(&mut self, _visitor: &mut Visitor<'_, D>) {}
}

impl<D: Device> Clone for Layout<D> {
    fn clone(&self) -> Self {
        Layout {
            inner: self.inner.clone(),
        }
    }
}

/// A layout without the type of its device, so that the declaration of a window can hold it.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    /// The element that offset 0 of the shape stands for.
    pub(crate) first: usize,
    pub(crate) shape: Shape,
    /// Elements.
    pub(crate) count: usize,
    /// The layout, with its table.
    pub(crate) keep: Keep,
}

impl Chosen {
    /// Whether streams of a device can follow it.
    pub(crate) fn fits<D: Device>(&self, device: &D) -> bool {
        let is_nest = !matches!(self.shape, Shape::Indexed { .. });
        is_nest
            || (self.keep.downcast_ref::<LayoutBody<D>>()).is_some_and(|layout| layout.fits(device))
    }
}

/// The most pieces of a layout with strides: where several operations of an epoch go to one target, the pieces of all are
/// listed for the check of overlaps, 24 bytes each.
const MAX_PIECES: usize = 1 << 26;

impl<D: Device> Layout<D> {
    /// Elements `first + i0*stride0 + i1*stride1 + …` for `ik` in `0..countk`, `i0` fastest; `loops` are `(count, stride)`,
    /// at most [`Shape::MAX_DIMS`]. With a count of 0 it chooses no element.
    ///
    /// Neighbouring elements that follow each other are one piece, however many: `[(n, 1)]` is one, and `[(n, 1), (m, n)]`
    /// is, too. What is one piece may be as long as memory is. Of more pieces there are 2^26 at most, with fewer than 2^32
    /// elements, all below number 2^32 - 1.
    ///
    /// # Errors
    ///
    /// [`RegionError::Layout`] for no or too many loops, for negative elements, and beyond these limits;
    /// [`Error::Device`] if memory is too short to find out whether an element occurs twice.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # fn main() -> Result<()> {
    /// // Every second element of the first three rows of a matrix of rows of 10.
    /// let layout = Layout::strided(0, &[(5, 2), (3, 10)])?;
    /// assert_eq!((layout.count(), layout.extent()), (15, 8 + 20 + 1));
    /// # Ok(()) }
    /// ```
    pub fn strided(first: usize, loops: &[(u32, i32)]) -> Result<Self> {
        let invalid = |fault| RegionError::Layout {
            first,
            loops: loops.into(),
            fault: Box::new(fault),
        };
        if loops.is_empty() || loops.len() > Shape::MAX_DIMS {
            let most = Shape::MAX_DIMS;
            return Err(invalid(LayoutFault::Loops { most }).into());
        }
        let loops = loops.iter();
        let loops: Vec<_> = loops
            .map(|&(times, stride)| (u64::from(times), i64::from(stride)))
            .collect();
        Self::nest(first, &loops, &invalid)
    }

    /// A box of an array: the elements of an array of `dims[0]` x `dims[1]` x … whose index in each dimension `k` lies in
    /// `ranges[k]`. There may be any number of dimensions. The array is stored row by row, so the last index varies
    /// fastest. The elements of the box have the same order (MPI: `MPI_Type_create_subarray` with `MPI_ORDER_C`). Sizes
    /// and ranges count elements. An empty range makes a layout of no elements.
    ///
    /// The ghost faces of a block, for example, are boxes:
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # fn main() -> Result<()> {
    /// // A block of 4 x 5 x 6 elements, a layer of ghosts around it included.
    /// let below = Layout::subarray(&[4, 5, 6], &[0..1, 1..4, 1..5])?;
    /// assert_eq!(below.count(), 12);
    /// // Element [0, 3, 4] is the last one.
    /// assert_eq!(below.extent(), 3 * 6 + 4 + 1);
    /// # Ok(()) }
    /// ```
    ///
    /// A box needs no table of indices, and neither does [`Layout::strided`]. A dimension that is taken whole is merged with the one
    /// before it. So a range of planes is one piece of linear memory, and a face has at most two loops. After merging, a box
    /// may be five loops deep.
    ///
    /// # Errors
    ///
    /// [`RegionError::Subarray`] without a dimension, for other than one range a dimension, for a range that does not lie within
    /// its dimension, for an array that is larger than memory can be, for a box that is six loops deep or more (use
    /// [`Layout::indexed`]), and beyond the limits of [`Layout::strided`].
    pub fn subarray(dims: &[usize], ranges: &[Range<usize>]) -> Result<Self> {
        let invalid = |fault| RegionError::Subarray {
            dims: dims.into(),
            ranges: ranges.into(),
            fault: Box::new(fault),
        };
        if dims.is_empty() {
            return Err(invalid(LayoutFault::NoDimension).into());
        }
        if dims.len() != ranges.len() {
            let (dims, ranges) = (dims.len(), ranges.len());
            return Err(invalid(LayoutFault::Ranges { dims, ranges }).into());
        }
        let within =
            |(dim, range): (&usize, &Range<usize>)| range.start <= range.end && range.end <= *dim;
        if let Some(k) = dims.iter().zip(ranges).position(|each| !within(each)) {
            let (range, dim) = (ranges[k].clone(), dims[k]);
            return Err(invalid(LayoutFault::NotWithin { k, range, dim }).into());
        }
        // The array of a dimension of no elements is as large as the others make it, so that strides do not overflow.
        let size = dims.iter().try_fold(1usize, |size, dim| {
            let size = size.checked_mul((*dim).max(1))?;
            (size <= isize::MAX as usize).then_some(size)
        });
        if size.is_none() {
            return Err(invalid(LayoutFault::ArrayTooLarge).into());
        }
        let (mut first, mut stride) = (0, 1);
        let mut loops = reserved(dims.len())?;
        for (dim, range) in dims.iter().zip(ranges).rev() {
            first += range.start * stride;
            loops.push((range.len() as u64, stride as i64));
            stride *= (*dim).max(1);
        }
        Self::nest(first, &loops, &invalid)
    }

    /// A nest of any number of loops, the first fastest.
    fn nest(
        first: usize,
        loops: &[(u64, i64)],
        invalid: &dyn Fn(LayoutFault) -> RegionError,
    ) -> Result<Self> {
        if loops.iter().any(|(times, _)| *times == 0) {
            return Ok(Self::new(0, Shape::Linear, 0, 0, true));
        }
        let (mut low, mut high, mut count) = (first as i128, first as i128, 1u128);
        for &(times, stride) in loops {
            let reach = i128::from(times - 1) * i128::from(stride);
            (low, high) = (low + reach.min(0), high + reach.max(0));
            // Five times 32 bits may be too many; these are refused below.
            count = count.saturating_mul(u128::from(times));
        }
        if low < 0 {
            return Err(invalid(LayoutFault::Negative { low }).into());
        }
        let nest = merged(loops)?;
        if let [] | [(_, 1)] = nest[..] {
            // Counted in bytes, as it is further down, no region reaches further.
            if high >= isize::MAX as i128 {
                return Err(invalid(LayoutFault::TooFar).into());
            }
            let extent = high as usize + 1;
            return Ok(Self::new(
                first,
                Shape::Linear,
                extent - first,
                extent,
                true,
            ));
        }
        if high >= i128::from(u32::MAX) || count > u128::from(u32::MAX) {
            return Err(invalid(LayoutFault::TooMany { count, high }).into());
        }
        if nest.len() > Shape::MAX_DIMS {
            let (deep, most) = (nest.len(), Shape::MAX_DIMS);
            return Err(invalid(LayoutFault::Deep { deep, most }).into());
        }
        let count = count as usize;
        let mut dims = [(1, 0); Shape::MAX_DIMS];
        for (dim, &(times, stride)) in dims.iter_mut().zip(&nest) {
            let Ok(stride) = i32::try_from(stride) else {
                return Err(invalid(LayoutFault::Apart { stride }).into());
            };
            // No loop has more turns than there are elements.
            *dim = (times as u32, stride);
        }
        let rank = nest.len();
        let (row, outer) = rows(&dims[..rank]);
        let pieces = count / row;
        if pieces > MAX_PIECES {
            return Err(invalid(LayoutFault::Pieces { pieces }).into());
        }
        let distinct = match nested(&nest) {
            Some(distinct) => distinct,
            None => {
                let mut starts = reserved(pieces)?;
                starts.extend(Turns::new(first, outer).map(|start| start as u32));
                starts.sort_unstable();
                let apart = |pair: &[u32]| pair[1] as usize - pair[0] as usize >= row;
                starts.windows(2).all(apart)
            }
        };
        let shape = Shape::Strided {
            dims,
            rank: rank as u32,
        };
        Ok(Self::new(first, shape, count, high as usize + 1, distinct))
    }

    /// The elements with these indices; perhaps none.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if there is no memory for the table, or for the list of pieces.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::stream(|world, s| {
    /// let boundary = Layout::indexed(world, &[8, 3, 5])?; // in this order
    /// assert_eq!((boundary.count(), boundary.extent()), (3, 9));
    /// assert!(boundary.is_distinct());
    /// # Ok(()) });
    /// ```
    pub fn indexed(world: &World<D>, indices: &[u32]) -> Result<Self> {
        let Some(highest) = indices.iter().max() else {
            return Ok(Self::new(0, Shape::Linear, 0, 0, true));
        };
        let table = world
            .device()
            .alloc(size_of_val(indices), Sharing::Private)?;
        // SAFETY: numbers have no padding, so their bytes are initialised.
        let bytes = unsafe {
            std::slice::from_raw_parts(indices.as_ptr().cast::<u8>(), size_of_val(indices))
        };
        // SAFETY: the block has just been allocated with this size.
        unsafe { world.device().write(table.base(), bytes) }?;
        let shape = Shape::Indexed {
            table: table.base(),
        };
        let elements = || {
            let elements = indices.iter().map(|index| *index as usize);
            Joined::of(elements.map(|element| (element, element + 1)))
        };
        // Counted first: what grows takes twice as much.
        let mut listed = reserved(elements().count())?;
        listed.extend(elements());
        let apart = |pair: &[(usize, usize)]| pair[0].1 <= pair[1].0;
        let distinct = listed.windows(2).all(apart) || {
            let mut sorted = reserved(listed.len())?;
            sorted.extend_from_slice(&listed);
            sorted.sort_unstable();
            sorted.windows(2).all(apart)
        };
        let extent = *highest as usize + 1;
        let layout = LayoutBody {
            listed,
            table: Some((table, world.device().clone())),
            ..Self::inner(0, shape, indices.len(), extent, distinct)
        };
        Ok(Layout {
            inner: Arc::new(layout),
        })
    }

    fn new(first: usize, shape: Shape, count: usize, extent: usize, distinct: bool) -> Self {
        Layout {
            inner: Arc::new(Self::inner(first, shape, count, extent, distinct)),
        }
    }

    fn inner(
        first: usize,
        shape: Shape,
        count: usize,
        extent: usize,
        distinct: bool,
    ) -> LayoutBody<D> {
        LayoutBody {
            first,
            shape,
            count,
            extent,
            distinct,
            listed: Vec::new(),
            table: None,
        }
    }

    /// How many elements it chooses.
    pub fn count(&self) -> usize {
        self.inner.count
    }

    /// One more than the highest element: a region must have at least so many.
    pub fn extent(&self) -> usize {
        self.inner.extent
    }

    /// Whether no element occurs twice, as a destination requires.
    pub fn is_distinct(&self) -> bool {
        self.inner.distinct
    }

    /// The runs of neighbouring elements, in order: of what is regular they are counted out, and lie nowhere.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let LayoutBody {
            first,
            shape,
            count,
            listed,
            ..
        } = &*self.inner;
        let linear = matches!(shape, Shape::Linear) && *count != 0;
        let linear = linear.then_some((*first, first + count));
        let strided = match shape {
            Shape::Strided { dims, rank } => {
                let loops = &dims[..*rank as usize];
                let (row, outer) = rows(loops);
                let rows = Turns::new(*first, outer);
                Some(Joined::of(rows.map(move |start| (start, start + row))))
            }
            _ => None,
        };
        let strided = strided.into_iter().flatten();
        linear
            .into_iter()
            .chain(strided)
            .chain(listed.iter().copied())
    }

    /// Refuses one in which an element occurs twice.
    pub(crate) fn as_destination(&self) -> Result<()> {
        if self.is_distinct() {
            return Ok(());
        }
        Err(EpochError::NotDistinct.into())
    }

    /// Its elements without their order, as ranks tell them to each other.
    ///
    /// # Errors
    ///
    /// [`EpochError::NotDistinct`] if an element occurs twice; [`Error::Device`] if memory is too short.
    pub(crate) fn footprint(&self) -> Result<Footprint> {
        self.as_destination()?;
        let LayoutBody {
            first,
            shape,
            count,
            ..
        } = &*self.inner;
        match shape {
            Shape::Linear => return Ok(Footprint::Range(*first..first + count)),
            Shape::Strided { dims, rank } => {
                let loops = dims[..*rank as usize].iter();
                let nest: Vec<_> = loops
                    .clone()
                    .map(|&(times, stride)| (u64::from(times), i64::from(stride)))
                    .collect();
                if nested(&nest) == Some(true) {
                    let loops = loops.map(|&(times, stride)| (times as usize, stride as isize));
                    return Ok(Footprint::of_nest(*first, loops));
                }
            }
            Shape::Indexed { .. } => {}
        }
        let mut runs = reserved(self.runs().count())?;
        runs.extend(self.runs());
        Ok(Footprint::of_runs(runs))
    }

    /// The layout without the type of its device.
    pub(crate) fn chosen(&self) -> Chosen {
        Chosen {
            first: self.inner.first,
            shape: self.inner.shape,
            count: self.inner.count,
            keep: self.keep(),
        }
    }

    /// The shape, and how many elements further on its base lies.
    pub(crate) fn shape(&self) -> (usize, Shape) {
        (self.inner.first, self.inner.shape)
    }

    /// Whether streams of a device can follow it.
    pub(crate) fn fits(&self, device: &D) -> bool {
        self.inner.fits(device)
    }

    pub(crate) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    pub(crate) fn keep(&self) -> Arc<dyn std::any::Any + Send + Sync> {
        keep(&self.inner)
    }
}

/// Runs of elements of which each that goes on where the one before ends is one with that.
struct Joined<I: Iterator>(std::iter::Peekable<I>);

impl<I: Iterator<Item = (usize, usize)>> Joined<I> {
    fn of(runs: I) -> Self {
        Joined(runs.peekable())
    }
}

impl<I: Iterator<Item = (usize, usize)>> Iterator for Joined<I> {
    type Item = (usize, usize);

    fn next(&mut self) -> Option<(usize, usize)> {
        let (first, mut end) = self.0.next()?;
        while let Some((_, further)) = self.0.next_if(|(next, _)| *next == end) {
            end = further;
        }
        Some((first, end))
    }
}

/// The turns of a nest of loops, the first fastest: elements, none of which is negative.
struct Turns<'a> {
    loops: &'a [(u32, i32)],
    at: [u32; Shape::MAX_DIMS],
    next: Option<i64>,
}

impl<'a> Turns<'a> {
    fn new(first: usize, loops: &'a [(u32, i32)]) -> Self {
        Turns {
            loops,
            at: [0; Shape::MAX_DIMS],
            next: Some(first as i64),
        }
    }
}

impl Iterator for Turns<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        visited();
        let now = self.next?;
        let mut then = now;
        self.next = None;
        for (at, &(count, stride)) in self.at.iter_mut().zip(self.loops) {
            *at += 1;
            then += i64::from(stride);
            if *at < count {
                self.next = Some(then);
                break;
            }
            *at = 0;
            then -= i64::from(count) * i64::from(stride);
        }
        Some(now as usize)
    }
}

impl<D: Device> std::fmt::Debug for Layout<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Layout")
            .field("count", &self.count())
            .field("extent", &self.extent())
            .finish_non_exhaustive()
    }
}

/// A nest of loops without those of one turn, and with those that go on where the loop inside them ends as one with that.
fn merged(loops: &[(u64, i64)]) -> Result<Vec<(u64, i64)>> {
    let mut nest: Vec<(u64, i64)> = reserved(loops.len())?;
    for &(times, stride) in loops.iter().filter(|(times, _)| *times != 1) {
        if let Some((inner, step)) = nest.last_mut()
            && i128::from(*inner) * i128::from(*step) == i128::from(stride)
            && let Some(all) = inner.checked_mul(times)
        {
            *inner = all;
        } else {
            nest.push((times, stride));
        }
    }
    Ok(nest)
}

/// Whether no element of a nest of loops occurs twice, if that can be seen: when no loop is so wide as one turn of the
/// next wider one, or when a loop stands still.
fn nested(nest: &[(u64, i64)]) -> Option<bool> {
    let mut loops = nest.to_vec();
    loops.sort_unstable_by_key(|(_, stride)| stride.unsigned_abs());
    let mut width = 0u128;
    for (times, stride) in &loops {
        let stride = u128::from(stride.unsigned_abs());
        if stride == 0 {
            return Some(false);
        }
        if stride <= width {
            return None;
        }
        width += u128::from(times - 1) * stride;
    }
    Some(true)
}

/// How many elements lie side by side in a [merged](merged) nest of loops, and the loops over these.
fn rows(nest: &[(u32, i32)]) -> (usize, &[(u32, i32)]) {
    match nest {
        [(times, 1), outer @ ..] => (*times as usize, outer),
        outer => (1, outer),
    }
}

#[cfg(test)]
#[allow(
    clippy::single_range_in_vec_init,
    reason = "arrays of one dimension are meant"
)]
mod tests;
