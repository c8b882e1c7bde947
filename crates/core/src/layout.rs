//! Layouts: the elements of a region or slot that an operation touches.

mod nest;
mod order;

use std::ops::Range;
use std::sync::Arc;

use tidegate_hal::batch::Shape;
use tidegate_hal::device::Device;
use tidegate_hal::memory::{Block as _, Sharing};
use tidegate_hal::nic::Keep;

use crate::bytes::bytes_of;
use crate::carry::{Carry, Visitor};
#[cfg(doc)]
use crate::error::Error;
use crate::error::{EpochError, LayoutFault, RegionError, Result, reserved};
use crate::footprint::Footprint;
use crate::ground::keep;
use crate::world::World;
use nest::{Joined, NestElements, merged, nested, rows};
pub(crate) use order::Order;

/// An ordered choice of elements: a nest of strides, or a list of indices. It may be empty.
///
/// A put whose source has a layout gathers while it sends. A put whose destination has a layout scatters. So a face of
/// an array needs no packing by hand.
///
/// A layout is checked once, when it is made. It is immutable and cheap to clone. Make layouts before the steps that
/// use them.
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
    /// The element at offset 0 of the shape.
    first: usize,
    /// The shape, which is linear if the layout is one run.
    shape: Shape,
    count: usize,
    /// One more than the highest element.
    extent: usize,
    /// Whether no element occurs twice.
    distinct: bool,
    /// For a list of indices, its runs of neighbouring elements, in order. The runs of a nest of strides are computed
    /// when they are needed.
    listed: Vec<(usize, usize)>,
    /// The table of indices, and the device in whose memory it is.
    table: Option<(D::Block, D)>,
}

impl<D: Device> LayoutBody<D> {
    fn fits(&self, device: &D) -> bool {
        let table = self.table.as_ref();
        table.is_none_or(|(_, other)| other.same(device))
    }
}

// SAFETY: there is no leaf and no brand. A layout belongs to no stream, and batches keep it for as long as they need
// it.
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

/// A layout without the type of its device, for the declaration of a window.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    /// The element at offset 0 of the shape.
    pub(crate) first: usize,
    pub(crate) shape: Shape,
    /// The number of elements.
    pub(crate) count: usize,
    /// Keeps the layout with its table alive.
    pub(crate) keep: Keep,
}

impl Chosen {
    /// Whether streams of a device can read its table.
    pub(crate) fn fits<D: Device>(&self, device: &D) -> bool {
        let is_nest = !matches!(self.shape, Shape::Indexed { .. });
        is_nest
            || (self.keep.downcast_ref::<LayoutBody<D>>()).is_some_and(|layout| layout.fits(device))
    }
}

/// The most pieces of a layout with strides. If several operations of an epoch go to one target, the check of overlaps
/// lists the pieces of all of them, at 24 bytes each.
const MAX_PIECES: usize = 1 << 26;

impl<D: Device> Layout<D> {
    /// The elements `first + i0*stride0 + i1*stride1 + …` for `ik` in `0..countk`, with `i0` fastest. `loops` are pairs
    /// `(count, stride)`, at most [`Shape::MAX_DIMS`] of them. If a count is 0, the layout has no elements.
    ///
    /// Consecutive neighbouring elements are one piece, however many they are: `[(n, 1)]` is one piece, and so is `[(n,
    /// 1), (m, n)]`. A single piece may be as long as memory is. A layout of several pieces has at most 2^26 of them,
    /// and fewer than 2^32 elements, all below number 2^32 - 1.
    ///
    /// # Errors
    ///
    /// [`RegionError::Layout`] if there is no loop or too many, if an element is negative, or beyond these limits.
    /// [`Error::Device`] if there is not enough memory to find out whether an element occurs twice.
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

    /// A box of an array: the elements of an array of `dims[0]` x `dims[1]` x … whose index in each dimension `k` lies
    /// in `ranges[k]`. There may be any number of dimensions. The array is stored row by row, so the last index varies
    /// fastest. The elements of the box have the same order (MPI: `MPI_Type_create_subarray` with `MPI_ORDER_C`). Sizes
    /// and ranges count elements. If a range is empty, the layout has no elements.
    ///
    /// The ghost faces of a block, for example, are boxes:
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # fn main() -> Result<()> {
    /// // A block of 4 x 5 x 6 elements, including a layer of ghosts around it.
    /// let below = Layout::subarray(&[4, 5, 6], &[0..1, 1..4, 1..5])?;
    /// assert_eq!(below.count(), 12);
    /// // Element [0, 3, 4] is the last one.
    /// assert_eq!(below.extent(), 3 * 6 + 4 + 1);
    /// # Ok(()) }
    /// ```
    ///
    /// A box needs no table of indices, and neither does [`Layout::strided`]. A dimension that is taken whole is merged
    /// with the one before it. So a range of planes is one piece of linear memory, and a face has at most two loops.
    /// After merging, a box may be five loops deep.
    ///
    /// # Errors
    ///
    /// [`RegionError::Subarray`] in these cases:
    ///
    /// - There is no dimension, or the number of ranges is not the number of dimensions.
    /// - A range does not lie within its dimension.
    /// - The array is larger than memory can be.
    /// - After merging, the box is six or more loops deep. Use [`Layout::indexed`] for it.
    /// - A limit of [`Layout::strided`] is exceeded.
    ///
    /// [`Error::Device`] if there is not enough memory to look at the dimensions.
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
        // An array with a dimension of 0 counts as if that dimension were 1, so that the strides of the others are
        // checked for overflow.
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

    /// A nest of any number of loops, the first one fastest.
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
            // The product of five 32-bit numbers may overflow; such layouts are refused below.
            count = count.saturating_mul(u128::from(times));
        }
        if low < 0 {
            return Err(invalid(LayoutFault::Negative { low }).into());
        }
        let nest = merged(loops)?;
        if let [] | [(_, 1)] = nest[..] {
            // Sizes are counted in bytes further down, so no region reaches beyond this.
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
            // A loop has at most as many rounds as there are elements.
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
                starts.extend(NestElements::new(first, outer).map(|start| start as u32));
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

    /// The elements with these indices, in this order. There may be none.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if there is no memory for the table or for the list of pieces.
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
        // SAFETY: the block has just been allocated with this size.
        unsafe { world.device().write(table.base(), bytes_of(indices)) }?;
        let shape = Shape::Indexed {
            table: table.base(),
        };
        let elements = || {
            let elements = indices.iter().map(|index| *index as usize);
            Joined::of(elements.map(|element| (element, element + 1)))
        };
        // The pieces are counted first, since a growing list could take twice the memory.
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

    /// The number of elements.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # fn main() -> Result<()> {
    /// assert_eq!(Layout::strided(1, &[(4, 2)])?.count(), 4); // elements 1, 3, 5 and 7
    /// # Ok(()) }
    /// ```
    pub fn count(&self) -> usize {
        self.inner.count
    }

    /// One more than the highest element. A region must have at least this many elements.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # fn main() -> Result<()> {
    /// assert_eq!(Layout::strided(1, &[(4, 2)])?.extent(), 8); // elements 1, 3, 5 and 7
    /// # Ok(()) }
    /// ```
    pub fn extent(&self) -> usize {
        self.inner.extent
    }

    /// Whether no element occurs twice. A destination requires that.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # fn main() -> Result<()> {
    /// assert!(Layout::strided(0, &[(2, 1), (2, 2)])?.is_distinct()); // elements 0, 1, 2 and 3
    /// assert!(!Layout::strided(0, &[(2, 1), (2, 1)])?.is_distinct()); // elements 0, 1, 1 and 2
    /// # Ok(()) }
    /// ```
    pub fn is_distinct(&self) -> bool {
        self.inner.distinct
    }

    /// The runs of neighbouring elements, in order. For a nest of strides they are computed, and not stored.
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
                let rows = NestElements::new(*first, outer);
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

    /// Refuses a layout in which an element occurs twice.
    pub(crate) fn as_destination(&self) -> Result<()> {
        if self.is_distinct() {
            return Ok(());
        }
        Err(EpochError::NotDistinct.into())
    }

    /// The set of its elements, without their order, in the form that ranks exchange.
    ///
    /// # Errors
    ///
    /// [`EpochError::NotDistinct`] if an element occurs twice, and [`Error::Device`] if there is not enough memory.
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

    /// The shape, and the element at its offset 0.
    pub(crate) fn shape(&self) -> (usize, Shape) {
        (self.inner.first, self.inner.shape)
    }

    /// Whether streams of a device can read its table.
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

impl<D: Device> std::fmt::Debug for Layout<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Layout")
            .field("count", &self.count())
            .field("extent", &self.extent())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(
    clippy::single_range_in_vec_init,
    reason = "arrays of one dimension are meant"
)]
mod tests;
