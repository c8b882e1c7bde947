//! Which elements of a region or slot a put, get or accumulate touches.

use std::ops::Range;
use std::sync::Arc;

use tidegate_hal::batch::Shape;
use tidegate_hal::device::Device;
use tidegate_hal::memory::{Block as _, Sharing};

use crate::error::{Error, Result, reserved};
use crate::ground::{keep, visited};
use crate::world::World;

/// A choice of elements, in order: a nest of strides, or a list of indices; perhaps of none. Checked once, when it is made;
/// immutable; cheap to clone.
///
/// With a layout on its source a put gathers while it sends, with one on its destination it scatters: a face of an array needs
/// no packing by hand.
pub struct Layout<D: Device> {
    inner: Arc<Inner<D>>,
}

struct Inner<D: Device> {
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

impl<D: Device> Clone for Layout<D> {
    fn clone(&self) -> Self {
        Layout {
            inner: self.inner.clone(),
        }
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
    /// [`Error::Invalid`] for no or too many loops, for negative elements, and beyond these limits;
    /// [`Error::Device`] if memory is too short to find out whether an element occurs twice.
    pub fn strided(first: usize, loops: &[(u32, i32)]) -> Result<Self> {
        let invalid =
            |what: &str| Error::Invalid(format!("strided layout {first} {loops:?}: {what}"));
        if loops.is_empty() || loops.len() > Shape::MAX_DIMS {
            let most = Shape::MAX_DIMS;
            return Err(invalid(&format!("it has 1 to {most} loops")));
        }
        let loops = loops.iter();
        let loops: Vec<_> = loops
            .map(|&(times, stride)| (u64::from(times), i64::from(stride)))
            .collect();
        Self::nest(first, &loops, &invalid)
    }

    /// A box of an array: the elements of an array of `dims[0]` x `dims[1]` x … whose index in each dimension `k` lies in
    /// `ranges[k]`. There may be any number of dimensions. The array is stored row by row, so that the last index is the
    /// fastest; the elements of the box have the same order (MPI: `MPI_Type_create_subarray` with `MPI_ORDER_C`). Sizes
    /// and ranges count elements. An empty range makes a layout of no elements.
    ///
    /// The ghost faces of a block, for example, are boxes:
    ///
    /// ```
    /// # use tidegate_core::Layout;
    /// # use tidegate_host::Host;
    /// // A block of 4 x 5 x 6 elements, a layer of ghosts around it included.
    /// let below = Layout::<Host>::subarray(&[4, 5, 6], &[0..1, 1..4, 1..5]).unwrap();
    /// assert_eq!(below.count(), 12);
    /// // Element [0, 3, 4] is the last one.
    /// assert_eq!(below.extent(), 3 * 6 + 4 + 1);
    /// ```
    ///
    /// A box needs no table of indices: devices count its rows out, as those of [`Layout::strided`]. Dimensions that are
    /// taken whole go together with the one before them. So a range of planes is one piece, like any linear memory, and a
    /// face is two loops at most. What is left may be five loops deep.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] without a dimension, for other than one range a dimension, for a range that does not lie within
    /// its dimension, for an array that is larger than memory can be, for a box that is six loops deep or more (use
    /// [`Layout::indexed`]), and beyond the limits of [`Layout::strided`].
    pub fn subarray(dims: &[usize], ranges: &[Range<usize>]) -> Result<Self> {
        let invalid =
            |what: &str| Error::Invalid(format!("subarray {ranges:?} of {dims:?}: {what}"));
        if dims.is_empty() {
            return Err(invalid("an array has a dimension"));
        }
        if dims.len() != ranges.len() {
            let (dims, ranges) = (dims.len(), ranges.len());
            return Err(invalid(&format!("{ranges} ranges for {dims} dimensions")));
        }
        let within =
            |(dim, range): (&usize, &Range<usize>)| range.start <= range.end && range.end <= *dim;
        if let Some(k) = dims.iter().zip(ranges).position(|each| !within(each)) {
            let (range, dim) = (&ranges[k], dims[k]);
            return Err(invalid(&format!(
                "range {k}, {range:?}, does not lie within 0..{dim}"
            )));
        }
        // The array of a dimension of no elements is as large as the others make it, so that strides do not overflow.
        let size = dims.iter().try_fold(1usize, |size, dim| {
            let size = size.checked_mul((*dim).max(1))?;
            (size <= isize::MAX as usize).then_some(size)
        });
        if size.is_none() {
            return Err(invalid("the array is larger than memory can be"));
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
    fn nest(first: usize, loops: &[(u64, i64)], invalid: &dyn Fn(&str) -> Error) -> Result<Self> {
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
            return Err(invalid(&format!("it reaches down to element {low}")));
        }
        let nest = merged(loops)?;
        if let [] | [(_, 1)] = nest[..] {
            // Counted in bytes, as it is further down, no region reaches further.
            if high >= isize::MAX as i128 {
                return Err(invalid("it reaches beyond what can be addressed"));
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
            return Err(invalid(&format!(
                "it has {count} elements up to number {high}, and where these are not one piece, a layout has fewer than 2^32 elements below number 2^32 - 1"
            )));
        }
        if nest.len() > Shape::MAX_DIMS {
            let (deep, most) = (nest.len(), Shape::MAX_DIMS);
            return Err(invalid(&format!(
                "it is {deep} loops deep, and {most} is the most: make a layout of the indices"
            )));
        }
        let count = count as usize;
        let mut dims = [(1, 0); Shape::MAX_DIMS];
        for (dim, &(times, stride)) in dims.iter_mut().zip(&nest) {
            let Ok(stride) = i32::try_from(stride) else {
                return Err(invalid(&format!(
                    "its elements lie {stride} apart, and 2^31 - 1 is the most"
                )));
            };
            // No loop has more turns than there are elements.
            *dim = (times as u32, stride);
        }
        let rank = nest.len();
        let (row, outer) = rows(&dims[..rank]);
        let pieces = count / row;
        if pieces > MAX_PIECES {
            return Err(invalid(&format!(
                "it has {pieces} pieces: 2^26 is the most"
            )));
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
        let layout = Inner {
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

    fn inner(first: usize, shape: Shape, count: usize, extent: usize, distinct: bool) -> Inner<D> {
        Inner {
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
        let Inner {
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

    /// The shape, and how many elements further on its base lies.
    pub(crate) fn shape(&self) -> (usize, Shape) {
        (self.inner.first, self.inner.shape)
    }

    /// Whether streams of a device can follow it.
    pub(crate) fn fits(&self, device: &D) -> bool {
        let table = self.inner.table.as_ref();
        table.is_none_or(|(_, other)| other.same(device))
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
mod tests {
    use super::Layout;
    use crate::World;
    use crate::error::Error;
    use crate::ground::VISITS;
    use tidegate_hal::batch::Shape;
    use tidegate_host::Host;

    #[test]
    fn layouts_of_very_many_pieces_are_refused() {
        for loops in [&[(1 << 31, 2)][..], &[(1 << 13, 2), (1 << 14, 1 << 15)]] {
            let refused = Layout::<Host>::strided(0, loops).unwrap_err();
            assert!(matches!(refused, Error::Invalid(_)), "{refused}");
            assert!(refused.to_string().contains("pieces"), "{refused}");
        }
        // A row is one piece, however long, and behind loops that go nowhere, too.
        let row = Layout::<Host>::strided(0, &[(1, 7), ((1 << 26) + 1, 1)]).unwrap();
        assert_eq!(row.runs().collect::<Vec<_>>(), [(0, (1 << 26) + 1)]);
        let one = Layout::<Host>::strided(3, &[(1, 7), (1, 9)]).unwrap();
        assert_eq!(one.runs().collect::<Vec<_>>(), [(3, 4)]);
        let rows = Layout::<Host>::strided(5, &[(1 << 20, 1), (3, 1 << 21)]).unwrap();
        assert_eq!((rows.count(), rows.runs().count()), (3 << 20, 3));
    }

    /// Element by element, as the words of `strided` say it.
    fn elements(first: usize, loops: &[(u32, i32)]) -> Vec<usize> {
        let mut elements = vec![first as i64];
        for &(times, stride) in loops.iter().rev() {
            let turns =
                |base: i64| (0..i64::from(times)).map(move |turn| base + turn * i64::from(stride));
            elements = elements.into_iter().flat_map(turns).collect();
        }
        elements
            .into_iter()
            .map(|element| element as usize)
            .collect()
    }

    #[test]
    fn a_box_is_its_elements_row_by_row() {
        // All boxes of an array, and what their indices say.
        let dims = [3, 2, 1, 4];
        let ranges = |dim: usize| (0..=dim).flat_map(move |end| (0..=end).map(move |at| at..end));
        let mut looked = 0;
        for a in ranges(dims[0]) {
            for b in ranges(dims[1]) {
                for c in ranges(dims[2]) {
                    for d in ranges(dims[3]) {
                        let layout = Layout::<Host>::subarray(
                            &dims,
                            &[a.clone(), b.clone(), c.clone(), d.clone()],
                        )
                        .unwrap();
                        let mut all = Vec::new();
                        for i in a.clone() {
                            for j in b.clone() {
                                for k in c.clone() {
                                    all.extend(d.clone().map(|l| ((i * 2 + j) + k) * 4 + l));
                                }
                            }
                        }
                        let runs = layout.runs().flat_map(|(first, end)| first..end);
                        assert_eq!(runs.collect::<Vec<_>>(), all);
                        assert_eq!(layout.count(), all.len());
                        assert_eq!(layout.extent(), all.last().map_or(0, |last| last + 1));
                        assert!(layout.is_distinct());
                        looked += 1;
                    }
                }
            }
        }
        assert_eq!(looked, 10 * 6 * 3 * 15);
    }

    #[test]
    fn a_box_has_as_few_loops_as_can_be() {
        let loops = |dims: &[usize], ranges: &[std::ops::Range<usize>]| {
            VISITS.set(0);
            let (first, shape) = Layout::<Host>::subarray(dims, ranges).unwrap().shape();
            assert_eq!(VISITS.get(), 0);
            match shape {
                Shape::Linear => (first, Vec::new()),
                Shape::Strided { dims, rank } => (first, dims[..rank as usize].to_vec()),
                Shape::Indexed { .. } => unreachable!("a box has no table"),
            }
        };
        let side = 1 << 10;
        let dims = [side; 3];
        let plane = (side * side) as i32;
        assert_eq!(loops(&dims, &[5..9, 0..side, 0..side]), (5 << 20, vec![]));
        assert_eq!(
            loops(&dims, &[5..6, 7..9, 0..side]),
            ((5 << 20) + (7 << 10), vec![])
        );
        let inner = 1..side - 1;
        let rows = (side - 2) as u32;
        assert_eq!(
            loops(&dims, &[0..1, inner.clone(), inner.clone()]),
            (side + 1, vec![(rows, 1), (rows, side as i32)])
        );
        assert_eq!(
            loops(&dims, &[inner.clone(), 0..1, inner.clone()]),
            (side * side + 1, vec![(rows, 1), (rows, plane)])
        );
        assert_eq!(
            loops(&dims, &[inner.clone(), inner, 0..1]),
            (side * side + side, vec![(rows, side as i32), (rows, plane)])
        );
        // Dimensions of one element, and those that are whole, are no loops of their own.
        let many = [2, 1, 3, 4, 1, 1, 5, 2, 2];
        let ranges = [0..1, 0..1, 1..3, 0..4, 0..1, 0..1, 2..4, 0..2, 0..2];
        assert_eq!(loops(&many, &ranges), (80 + 8, vec![(8, 1), (8, 20)]));
        // An array may be longer than a layout reaches, if what is of it is one piece.
        assert_eq!(loops(&[1 << 40], &[7..1 << 39]), (7, vec![]));
    }

    #[test]
    fn what_is_no_box_is_refused() {
        let said = |dims: &[usize], ranges: &[std::ops::Range<usize>]| {
            let refused = Layout::<Host>::subarray(dims, ranges).unwrap_err();
            assert!(matches!(refused, Error::Invalid(_)), "{refused}");
            refused.to_string()
        };
        assert!(said(&[], &[]).ends_with("an array has a dimension"));
        assert!(said(&[3, 3], &[0..1; 1]).ends_with("1 ranges for 2 dimensions"));
        assert!(said(&[3, 3], &[0..3, 1..4]).ends_with("range 1, 1..4, does not lie within 0..3"));
        #[allow(clippy::reversed_empty_ranges, reason = "it is what is refused")]
        let reversed = said(&[3], &[2..1]);
        assert!(
            reversed.ends_with("range 0, 2..1, does not lie within 0..3"),
            "{reversed}"
        );
        for dims in [
            &[usize::MAX][..],
            &[1 << 32, 1 << 31],
            &[1 << 40, 0, 1 << 40],
        ] {
            let ranges = vec![0..0; dims.len()];
            assert!(said(dims, &ranges).ends_with("larger than memory can be"));
        }
        let every_other: Vec<_> = (0..12).map(|k| 0..2 - k % 2).collect();
        let deep = said(&[2; 12], &every_other);
        assert!(deep.contains("6 loops deep, and 5 is the most"), "{deep}");
        let apart = said(&[2, 1 << 31], &[0..2, 0..1]);
        assert!(apart.contains("2^31"), "{apart}");
        let far = said(&[1 << 20, 1 << 20], &[0..1 << 20, 0..1]);
        assert!(far.contains("fewer than 2^32 elements"), "{far}");
        let none = Layout::<Host>::subarray(&[3, 0, 2], &[0..3, 0..0, 0..2]).unwrap();
        assert_eq!((none.count(), none.extent()), (0, 0));
    }

    #[test]
    fn what_is_one_piece_is_looked_at_once() {
        VISITS.set(0);
        let all = 1 << 32;
        let one: [(&[(u32, i32)], usize); 6] = [
            (&[(u32::MAX, 1)], u32::MAX as usize),
            (&[(1 << 16, 1), (1 << 16, 1 << 16)], all),
            (&[(1, -5), (1 << 16, 1), (1, 9), (1 << 16, 1 << 16)], all),
            (&[(2, 1), (1 << 31, 2)], all),
            // As far as strides reach.
            (&[(1 << 30, 1), (1 << 30, 1 << 30)], 1 << 60),
            (&[(1, 3), (1, 0)], 1),
        ];
        for (loops, count) in one {
            let layout = Layout::<Host>::strided(7, loops).unwrap();
            assert_eq!((layout.count(), layout.extent()), (count, count + 7));
            assert!(layout.is_distinct() && layout.shape().1 == Shape::Linear);
            assert_eq!(layout.runs().collect::<Vec<_>>(), [(7, count + 7)]);
        }
        // Rows beside others, and elements apart, are nested: nobody need look whether one occurs twice.
        let rows = Layout::<Host>::strided(0, &[(1 << 15, 1), (1 << 15, 1 << 16)]).unwrap();
        let apart = Layout::<Host>::strided(u32::MAX as usize - 10, &[(1 << 26, -3)]).unwrap();
        assert!(rows.is_distinct() && apart.is_distinct());
        let still = Layout::<Host>::strided(0, &[(1 << 20, 0), (64, 1)]).unwrap();
        assert!(!still.is_distinct());
        assert_eq!(VISITS.get(), 0);
    }

    #[test]
    fn beyond_its_limits_a_layout_says_them() {
        let said = |first, loops: &[(u32, i32)]| {
            let refused = Layout::<Host>::strided(first, loops).unwrap_err();
            assert!(matches!(refused, Error::Invalid(_)), "{refused}");
            refused.to_string()
        };
        for (first, loops) in [
            (0, &[(1 << 31, 1), (3, i32::MAX)][..]),
            (0, &[(u32::MAX, 0), (2, 1)]),
            (u32::MAX as usize, &[(2, 2)]),
            (0, &[(u32::MAX, i32::MAX); 5]),
        ] {
            let text = said(first, loops);
            assert!(text.contains("fewer than 2^32 elements"), "{text}");
        }
        let text = said(3, &[(2, 1), (2, -4)]);
        assert!(text.ends_with("it reaches down to element -1"), "{text}");
        let text = said(isize::MAX as usize, &[(2, 1)]);
        assert!(text.contains("beyond what can be addressed"), "{text}");
        for loops in [&[][..], &[(1, 1); 6]] {
            assert!(said(0, loops).ends_with("it has 1 to 5 loops"));
        }
    }

    #[test]
    fn elements_that_occur_twice_are_found() {
        // All nests of three loops of these.
        let loops = [
            (2, 1),
            (3, 1),
            (2, 2),
            (3, -2),
            (2, 3),
            (4, 3),
            (1, 8),
            (2, 0),
            (3, 6),
        ];
        let mut twice = 0;
        for a in loops {
            for b in loops {
                for c in loops {
                    let nest = [a, b, c];
                    let layout = Layout::<Host>::strided(20, &nest).unwrap();
                    let mut all = elements(20, &nest);
                    assert_eq!(layout.count(), all.len());
                    assert_eq!(layout.extent(), all.iter().max().unwrap() + 1);
                    all.sort_unstable();
                    let distinct = all.windows(2).all(|pair| pair[0] != pair[1]);
                    assert_eq!(layout.is_distinct(), distinct, "{nest:?}");
                    twice += usize::from(!distinct);
                }
            }
        }
        assert!(twice > 100 && twice < 600, "{twice}");
        World::<Host>::local(1, |world| {
            let distinct = |indices: &[u32]| {
                let layout = Layout::indexed(&world, indices).unwrap();
                layout.is_distinct()
            };
            assert!(distinct(&[3]) && distinct(&[3, 4, 9]) && distinct(&[9, 3, 4, 2, u32::MAX]));
            assert!(!distinct(&[3, 3]) && !distinct(&[3, 4, 5, 9, 4]));
            assert!(!distinct(&[u32::MAX, 0, u32::MAX]));
        });
    }

    #[test]
    fn runs_are_those_of_the_elements() {
        let nests: [&[(u32, i32)]; 8] = [
            &[(7, 1)],
            &[(1, 1), (3, 4)],
            &[(4, 1), (3, 4)],
            &[(4, 1), (3, 5), (2, 20)],
            &[(2, 1), (2, 3), (2, 6)],
            &[(5, 2), (2, 1)],
            &[(3, -2), (2, 7)],
            &[(3, 1), (3, -3)],
        ];
        for loops in nests {
            let layout = Layout::<Host>::strided(10, loops).unwrap();
            let mut runs: Vec<(usize, usize)> = Vec::new();
            for element in elements(10, loops) {
                match runs.last_mut() {
                    Some((_, end)) if *end == element => *end += 1,
                    _ => runs.push((element, element + 1)),
                }
            }
            assert_eq!(layout.runs().collect::<Vec<_>>(), runs, "{loops:?}");
        }
    }

    #[test]
    fn what_is_regular_takes_no_memory_for_its_pieces() {
        let layout = Layout::<Host>::strided(1, &[(3, 1), (1 << 16, 5)]).unwrap();
        assert_eq!(
            (layout.inner.listed.capacity(), layout.runs().count()),
            (0, 1 << 16)
        );
        World::<Host>::local(1, |world| {
            let listed = Layout::indexed(&world, &[3, 4, 9, 2]).unwrap();
            assert_eq!(listed.runs().collect::<Vec<_>>(), [(3, 5), (9, 10), (2, 3)]);
        });
    }
}
