//! Sets of indices.

use std::ops::Range;
use std::sync::Arc;

use tidegate_hal::device::Device;

use crate::carry::{Carry, Visitor};
#[cfg(doc)]
use crate::error::Error;
use crate::error::{RegionError, Result, push, reserved};

/// A set of indices, as sorted, disjoint ranges that are not empty. The set may be empty. It is immutable and cheap to
/// clone.
///
/// # Examples
///
/// ```
/// use tidegate::IndexSet;
///
/// # fn main() -> tidegate::Result<()> {
/// let edges = IndexSet::from_ranges([0..2, 8..10])?;
/// assert!(edges.contains(9) && !edges.contains(2));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexSet {
    ranges: Arc<Vec<Range<usize>>>,
}

// SAFETY: there is no leaf and no brand.
unsafe impl<'s, D: Device> Carry<'s, D> for IndexSet {
    type At<'t> = IndexSet;

    fn visit(&mut self, _visitor: &mut Visitor<'_, D>) {}
}

impl IndexSet {
    /// The union of ranges, in any order. Empty ranges are ignored.
    ///
    /// # Errors
    ///
    /// [`RegionError::Overlap`] if two ranges overlap, and [`Error::Device`] if there is not enough memory.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::IndexSet;
    ///
    /// # fn main() -> tidegate::Result<()> {
    /// let set = IndexSet::from_ranges([6..8, 2..4, 4..5])?;
    /// assert_eq!(set.ranges(), [2..5, 6..8]); // neighbours are one range
    /// assert!(IndexSet::from_ranges([0..2, 1..3]).is_err());
    /// # Ok(()) }
    /// ```
    pub fn from_ranges(ranges: impl IntoIterator<Item = Range<usize>>) -> Result<Self> {
        Self::from_each(ranges.into_iter().map(Ok))
    }

    /// The set of these indices, in any order.
    ///
    /// # Errors
    ///
    /// [`RegionError::Overlap`] if an index occurs twice, [`RegionError::NoIndex`] if one is `usize::MAX`, and
    /// [`Error::Device`] if there is not enough memory.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::IndexSet;
    ///
    /// # fn main() -> tidegate::Result<()> {
    /// let set = IndexSet::from_indices([7, 1, 2])?;
    /// assert_eq!(set.ranges(), [1..3, 7..8]);
    /// # Ok(()) }
    /// ```
    pub fn from_indices(indices: impl IntoIterator<Item = usize>) -> Result<Self> {
        let range = |index: usize| match index.checked_add(1) {
            Some(end) => Ok(index..end),
            None => Err(RegionError::NoIndex.into()),
        };
        Self::from_each(indices.into_iter().map(range))
    }

    fn from_each(each: impl Iterator<Item = Result<Range<usize>>>) -> Result<Self> {
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for range in each {
            let range = range?;
            match ranges.last_mut() {
                _ if range.is_empty() => {}
                // Most indices come in order, and many are neighbours. Such neighbours take no memory of their own.
                Some(last) if range.start == last.end => last.end = range.end,
                _ => push(&mut ranges, range)?,
            }
        }
        ranges.sort_unstable_by_key(|range| range.start);
        if let Some(pair) = ranges.windows(2).find(|pair| pair[1].start < pair[0].end) {
            let (one, other) = (pair[0].clone(), pair[1].clone());
            return Err(RegionError::Overlap { one, other }.into());
        }
        ranges.dedup_by(|next, before| {
            let beside = next.start == before.end;
            if beside {
                before.end = next.end;
            }
            beside
        });
        Ok(IndexSet {
            ranges: Arc::new(ranges),
        })
    }

    /// The ranges of the set, in ascending order. Neighbouring ranges are merged.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::IndexSet;
    ///
    /// # fn main() -> tidegate::Result<()> {
    /// assert_eq!(IndexSet::from_indices([4, 2, 3])?.ranges(), [2..5]);
    /// # Ok(()) }
    /// ```
    pub fn ranges(&self) -> &[Range<usize>] {
        &self.ranges
    }

    /// Whether the set contains an index.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::IndexSet;
    ///
    /// # fn main() -> tidegate::Result<()> {
    /// let even = IndexSet::from_indices((0..10).step_by(2))?;
    /// assert!(even.contains(4) && !even.contains(5));
    /// # Ok(()) }
    /// ```
    pub fn contains(&self, index: usize) -> bool {
        // No range contains `usize::MAX`, since it would have to end behind that.
        index
            .checked_add(1)
            .is_some_and(|end| self.covers(index, end))
    }

    /// Whether the set contains all of `first..end`.
    pub(super) fn covers(&self, first: usize, end: usize) -> bool {
        let after = self.ranges.partition_point(|range| range.start <= first);
        after > 0 && self.ranges[after - 1].end >= end
    }
}

/// A set of elements of a region (or of a window's memory), in the form that kernels use: with a bit map.
pub(crate) struct Members {
    set: IndexSet,
    pub(super) whole_len: usize,
    bits: Vec<u64>,
}

impl Members {
    /// `set` must lie within `0..whole_len`.
    pub(crate) fn new(set: IndexSet, whole_len: usize) -> Result<Self> {
        let words = whole_len.div_ceil(64);
        let mut bits = reserved(words)?;
        bits.resize(words, 0u64);
        for range in set.ranges() {
            let (first, last) = (range.start / 64, (range.end - 1) / 64);
            let from = u64::MAX << (range.start % 64);
            let to = u64::MAX >> (63 - (range.end - 1) % 64);
            if first == last {
                bits[first] |= from & to;
            } else {
                bits[first] |= from;
                bits[first + 1..last].fill(u64::MAX);
                bits[last] |= to;
            }
        }
        Ok(Members {
            set,
            whole_len,
            bits,
        })
    }

    /// The set.
    pub(crate) fn set(&self) -> &IndexSet {
        &self.set
    }

    #[inline(always)]
    pub(super) fn holds(&self, index: usize) -> bool {
        self.bits
            .get(index / 64)
            .is_some_and(|word| word >> (index % 64) & 1 == 1)
    }
}
