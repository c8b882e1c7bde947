//! Disjoint parts of a region, on different streams.
//!
//! # Model
//!
//! [`Region::partition`] takes a region apart by [`IndexSet`]s, which it checks to be disjoint and within the region.
//! Each [`Part`] is then at home with the host or on a stream of its own: the surface of a block can be packed and
//! exchanged on one stream while the interior is computed on another. [`Region::reunite`] puts the parts together
//! again.
//!
//! Kernels see a part as [`Cells`] (read) or [`CellsMut`]: the elements by their index in the region, read and written
//! one at a time, or as slices of neighbouring ones. Each access of one element asks a bit map whether the part holds it (a
//! load and a test), since another stream may be writing the others; each slice asks the part's ranges.
//!
//! # Failure
//!
//! Overlapping sets, or indices outside of the region, are refused.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::Location;
use std::sync::Arc;

use tidegate_hal::device::{Call, Device, Parameters, Stream as _};
use tidegate_hal::memory::Ptr;

use crate::argument::{Argument, Lowered};
use crate::carry::{Carry, Visitor};
use crate::element::Element;
#[cfg(doc)]
use crate::error::Error;
use crate::error::{RegionError, Rejected, Result, push, reserved};
use crate::layout::Layout;
use crate::nic::Touch;
use crate::place::{On, OnHost, Place};
use crate::region::{Body, Region, bounds};
use crate::stream::Stream;
use crate::window::Source;

/// A set of indices, perhaps of none: sorted, disjoint ranges, of which none is empty. Immutable; cheap to clone.
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

impl IndexSet {
    /// The union of these ranges, in any order; empty ones are left out.
    ///
    /// # Errors
    ///
    /// [`Error::Region`] if two of them overlap; [`Error::Device`] if memory is too short.
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
    /// [`Error::Region`] if one occurs twice, or is `usize::MAX`; [`Error::Device`] if memory is too short.
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
                // Most come in order, and many beside each other: so they take no room.
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

    /// Its ranges, ascending; neighbouring ones are merged.
    pub fn ranges(&self) -> &[Range<usize>] {
        &self.ranges
    }

    /// Whether it holds an index.
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
        // No range holds `usize::MAX`: it would have to end behind it.
        index
            .checked_add(1)
            .is_some_and(|end| self.covers(index, end))
    }

    /// Whether it holds all of `first..end`.
    fn covers(&self, first: usize, end: usize) -> bool {
        let after = self.ranges.partition_point(|range| range.start <= first);
        after > 0 && self.ranges[after - 1].end >= end
    }
}

/// A part of a region: the elements of an [`IndexSet`].
///
/// # Examples
///
/// ```
/// use tidegate::host::prelude::*;
/// use tidegate::{CellsMut, IndexSet};
///
/// # tidegate::doc::ranks(1, |world| {
/// stream!(let s = world.stream()?);
/// stream!(let t = world.stream()?);
/// let x = Region::from_slice(&world, &[1.0; 10])?;
/// let sets = [IndexSet::from_ranges([0..1, 9..10])?, IndexSet::from_ranges([1..9])?];
/// let [surface, interior] = x.partition(sets)?;
/// let (mut surface, interior) = (surface.on(&s)?, interior.on(&t)?); // on two streams at a time
/// s.launch(|mut surface: CellsMut<'_, f64>| surface.set(9, 2.0), &mut surface)?;
/// let x = Region::reunite([surface.into_host(&s)?, interior.into_host(&t)?])?;
/// assert_eq!((x[8], x[9]), (1.0, 2.0));
/// # Ok(()) });
/// ```
pub struct Part<T, P: Place> {
    body: Body<P::Device>,
    set: IndexSet,
    /// The set as kernels ask it; also kept by the body, until the stream has passed.
    members: Arc<Members>,
    /// What the partition was made of, so that only its own parts are put together.
    whole: Arc<Whole>,
    /// Which of them this is.
    index: usize,
    /// Layouts that were found to lie within the set.
    admitted: RefCell<Vec<Layout<P::Device>>>,
    marker: PhantomData<(T, P)>,
}

struct Whole {
    parts: usize,
}

/// A set of elements of a region (or of a window's memory), as kernels ask it: also as a bit map.
pub(crate) struct Members {
    set: IndexSet,
    whole_len: usize,
    bits: Vec<u64>,
}

impl Members {
    /// The set lies within `0..whole_len`.
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
    fn holds(&self, index: usize) -> bool {
        self.bits
            .get(index / 64)
            .is_some_and(|word| word >> (index % 64) & 1 == 1)
    }
}

impl<T: Element, P: Place> Region<T, P> {
    /// Takes the region apart. Elements that no set holds are out of reach until [`Region::reunite`].
    ///
    /// # Errors
    ///
    /// [`Error::Region`] if two sets overlap, or [`Error::Device`] if memory is too short (a part
    /// has a bit for each element of the whole region). The region is gone then.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use tidegate::IndexSet;
    ///
    /// # tidegate::doc::stream(|world, s| {
    /// let x = Region::from_slice(world, &[1.0; 10])?;
    /// let [low, high] = x.partition([IndexSet::from_ranges([0..5])?, IndexSet::from_ranges([5..10])?])?;
    /// assert_eq!((low.set().ranges(), low.whole_len()), (&[0..5][..], 10));
    /// # Ok(()) });
    /// ```
    pub fn partition<const N: usize>(self, sets: [IndexSet; N]) -> Result<[Part<T, P>; N]> {
        self.try_partition(sets).map_err(Rejected::into_error)
    }

    /// As [`Region::partition`], but the region comes back if it fails.
    ///
    /// # Errors
    ///
    /// As [`Region::partition`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use tidegate::IndexSet;
    ///
    /// # tidegate::doc::stream(|world, s| {
    /// # let x = Region::from_slice(world, &[1.0; 10])?;
    /// let refused = x.try_partition([IndexSet::from_ranges([0..11])?]).unwrap_err();
    /// let x = refused.value; // it has 10 elements
    /// assert_eq!(x.len(), 10);
    /// # Ok(()) });
    /// ```
    pub fn try_partition<const N: usize>(
        self,
        sets: [IndexSet; N],
    ) -> Result<[Part<T, P>; N], Rejected<Self>> {
        let members = check(&sets, self.len()).and_then(|()| {
            let each = sets.iter().map(|set| Members::new(set.clone(), self.len()));
            each.collect::<Result<Vec<_>>>()
        });
        let members = match members {
            Ok(members) => members,
            Err(error) => return Err(Rejected::new(error, self)),
        };
        let whole = Arc::new(Whole { parts: N });
        let mut members = members.into_iter().enumerate();
        Ok(sets.map(|set| {
            let (index, members) = members.next().expect("each set has its members");
            let members = Arc::new(members);
            Part {
                body: self.body.share(members.clone()),
                set,
                members,
                whole: whole.clone(),
                index,
                admitted: RefCell::default(),
                marker: PhantomData,
            }
        }))
    }

    /// Puts all parts of one partition together again, in their order.
    ///
    /// # Errors
    ///
    /// [`Error::Region`] if they are not the parts of one partition, in their order. They are gone then.
    ///
    /// # Panics
    ///
    /// If `N` is 0.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use tidegate::IndexSet;
    ///
    /// # tidegate::doc::stream(|world, s| {
    /// # let x = Region::from_slice(world, &[1.0, 2.0])?;
    /// let parts = x.partition([IndexSet::from_ranges([0..1])?, IndexSet::from_ranges([1..2])?])?;
    /// let x = Region::reunite(parts)?;
    /// assert_eq!(x[..], [1.0, 2.0]);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn reunite<const N: usize>(parts: [Part<T, P>; N]) -> Result<Self> {
        Self::try_reunite(parts).map_err(Rejected::into_error)
    }

    /// As [`Region::reunite`], but the parts come back if it fails.
    ///
    /// # Errors
    ///
    /// As [`Region::reunite`].
    ///
    /// # Panics
    ///
    /// If `N` is 0.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use tidegate::IndexSet;
    ///
    /// # tidegate::doc::stream(|world, s| {
    /// # let x = Region::from_slice(world, &[1.0, 2.0])?;
    /// let [one, two] = x.partition([IndexSet::from_ranges([0..1])?, IndexSet::from_ranges([1..2])?])?;
    /// let refused = Region::try_reunite([two, one]).unwrap_err(); // they are in another order
    /// let [two, one] = refused.value;
    /// let x = Region::reunite([one, two])?;
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn try_reunite<const N: usize>(
        parts: [Part<T, P>; N],
    ) -> Result<Self, Rejected<[Part<T, P>; N]>> {
        let whole = &parts[0].whole;
        let fits = |(index, part): (usize, &Part<T, P>)| {
            part.index == index && Arc::ptr_eq(&part.whole, whole)
        };
        if whole.parts != N || !parts.iter().enumerate().all(fits) {
            return Err(Rejected::new(RegionError::NotOnePartition, parts));
        }
        let mut parts = parts.iter();
        let whole = parts.next().expect("N is not 0").body.whole();
        parts.for_each(|part| whole.inherit(&part.body));
        Ok(Region::from_body(whole))
    }
}

/// All sets within `0..len`, and disjoint.
fn check(sets: &[IndexSet], len: usize) -> Result<()> {
    if let Some(range) = sets
        .iter()
        .filter_map(|set| set.ranges.last())
        .find(|range| range.end > len)
    {
        return Err(bounds("a region", range.clone(), len));
    }
    IndexSet::from_ranges(sets.iter().flat_map(|set| set.ranges.iter().cloned())).map(|_| ())
}

impl<T: Element, P: Place> Part<T, P> {
    /// The elements that it holds.
    pub fn set(&self) -> &IndexSet {
        &self.set
    }

    /// How many elements the whole region has.
    pub fn whole_len(&self) -> usize {
        self.body.len()
    }

    fn settled<Q: Place<Device = P::Device>>(
        self,
        body: impl FnOnce(&mut Body<P::Device>),
    ) -> Part<T, Q> {
        let Part {
            body: mut inner,
            set,
            members,
            whole,
            index,
            admitted,
            marker: _,
        } = self;
        body(&mut inner);
        Part {
            body: inner,
            set,
            members,
            whole,
            index,
            admitted,
            marker: PhantomData,
        }
    }
}

impl<T: Element, D: Device> Part<T, OnHost<D>> {
    /// Hands the part to a stream; see [`Region::on`].
    ///
    /// # Errors
    ///
    /// [`CaptureError::Inside`](crate::error::CaptureError::Inside) while the stream is captured, [`Error::Region`] if it is a stream of another device. The
    /// part is gone then.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use tidegate::{CellsMut, IndexSet};
    ///
    /// # tidegate::doc::stream(|world, s| {
    /// # let x = Region::from_slice(world, &[1.0, 2.0])?;
    /// let [first, second] = x.partition([IndexSet::from_ranges([0..1])?, IndexSet::from_ranges([1..2])?])?;
    /// let mut second = second.on(s)?;
    /// s.launch(|mut second: CellsMut<'_, f64>| second.set(1, 5.0), &mut second)?;
    /// # Ok(()) });
    /// ```
    pub fn on<'s>(self, stream: &Stream<'s, D>) -> Result<Part<T, On<'s, D>>> {
        self.try_on(stream).map_err(Rejected::into_error)
    }

    /// As [`Part::on`], but the part comes back if it fails.
    ///
    /// # Errors
    ///
    /// As [`Part::on`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use tidegate::IndexSet;
    ///
    /// # tidegate::doc::stream(|world, s| {
    /// # let x = Region::from_slice(world, &[1.0, 2.0])?;
    /// let [part] = x.partition([IndexSet::from_ranges([0..1])?])?;
    /// let part = part.try_on(s).map_err(|refused| {
    ///     drop(refused.value); // it is still with the host
    ///     refused.error
    /// })?;
    /// # Ok(()) });
    /// ```
    pub fn try_on<'s>(self, stream: &Stream<'s, D>) -> Result<Part<T, On<'s, D>>, Rejected<Self>> {
        match self.body.may_be_on(stream) {
            Ok(()) => Ok(self.settled(|body| body.home = Some(stream.raw().reclaim().clone()))),
            Err(error) => Err(Rejected::new(error, self)),
        }
    }
}

impl<'s, T: Element, D: Device> Part<T, On<'s, D>> {
    /// Waits until the stream has passed, and gives the part to the host; see [`Region::into_host`].
    ///
    /// # Errors
    ///
    /// What made the stream fail; [`CaptureError::Inside`](crate::error::CaptureError::Inside). The part is gone then.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use tidegate::{CellsMut, IndexSet};
    ///
    /// # tidegate::doc::stream(|world, s| {
    /// # let x = Region::from_slice(world, &[1.0, 2.0])?;
    /// let [all] = x.partition([IndexSet::from_ranges([0..2])?])?;
    /// let mut all = all.on(s)?;
    /// s.launch(|mut all: CellsMut<'_, f64>| all.set(0, 3.0), &mut all)?;
    /// let x = Region::reunite([all.into_host(s)?])?;
    /// assert_eq!(x[..], [3.0, 2.0]);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn into_host(self, stream: &Stream<'s, D>) -> Result<Part<T, OnHost<D>>> {
        self.try_into_host(stream).map_err(Rejected::into_error)
    }

    /// As [`Part::into_host`], but the part comes back if it fails, still on the stream.
    ///
    /// # Errors
    ///
    /// As [`Part::into_host`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use tidegate::{CellsMut, IndexSet};
    ///
    /// # tidegate::doc::stream(|world, s| {
    /// # let x = Region::from_slice(world, &[1.0, 2.0])?;
    /// # let [all] = x.partition([IndexSet::from_ranges([0..2])?])?;
    /// # let mut all = all.on(s)?;
    /// s.launch(|_: CellsMut<'_, f64>| panic!("no number"), &mut all)?;
    /// let refused = all.try_into_host(s).unwrap_err();
    /// println!("{}; {:?} is still on the stream", refused.error, refused.value);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn try_into_host(
        self,
        stream: &Stream<'s, D>,
    ) -> Result<Part<T, OnHost<D>>, Rejected<Self>> {
        let site = Location::caller();
        let left = self.body.leave(stream, site);
        match left.and_then(|()| stream.synchronize_in(Call::IntoHost, site)) {
            Ok(()) => Ok(self.settled(|body| body.home = None)),
            Err(error) => Err(Rejected::new(error, self)),
        }
    }

    /// The elements of the region that a layout chooses, as the source of a put. All of them must be in the part; that
    /// is checked the first time that the layout is used with it.
    ///
    /// # Errors
    ///
    /// [`Error::Region`] if the part does not hold all of them.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::host::prelude::*;
    /// use tidegate::IndexSet;
    ///
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), _| {
    /// # let x = Region::from_slice(s.world(), &[0, 1, 2, 3, 4, 5, 6, 7])?;
    /// let [even] = x.partition([IndexSet::from_indices([0, 2, 4, 6])?])?;
    /// let (even, layout) = (even.on(s)?, Layout::strided(0, &[(4, 2)])?);
    /// let mut epoch = outbox.start();
    /// epoch.put(even.with(&layout)?, to)?;
    /// let (mut inbox, _outbox) = exchange(s, inbox, epoch)?;
    /// assert_eq!(inbox.read(s)?.slot(from), [0, 2, 4, 6]);
    /// # Ok(()) });
    /// ```
    pub fn with<'b>(&'b self, layout: &'b Layout<D>) -> Result<Source<'b, 's, T, D>> {
        let mut admitted = self.admitted.borrow_mut();
        if !admitted.iter().any(|other| other.same(layout)) {
            if layout.extent() > self.body.len() {
                return Err(bounds("a region", 0..layout.extent(), self.body.len()));
            }
            if let Some((first, end)) = layout
                .runs()
                .find(|(first, end)| !self.set.covers(*first, *end))
            {
                return Err(RegionError::NotInPart { first, end }.into());
            }
            admitted.push(layout.clone());
        }
        Ok(Source::of(&self.body, layout))
    }
}

// SAFETY: the one leaf is visited; `On<'s, D>` is the only mention of the brand.
unsafe impl<'s, T: Element, D: Device> Carry<'s, D> for Part<T, On<'s, D>> {
    type At<'t> = Part<T, On<'t, D>>;

    fn visit(&mut self, visitor: &mut Visitor<'_, D>) {
        self.body.visit(visitor);
    }
}

impl<T, P: Place> std::fmt::Debug for Part<T, P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let home = match self.body.home {
            Some(_) => "stream",
            None => "host",
        };
        let elements: usize = self.set.ranges.iter().map(Range::len).sum();
        let mut said = self.body.debug::<T>("Part", home, f);
        said.field("elements", &elements)
            .field("whole_len", &self.body.len())
            .finish()
    }
}

/// A part of a region, or the [rest](crate::window::Exposed::rest) of a window's memory, as a kernel that only reads sees it.
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

/// A part of a region, or the [rest](crate::window::Exposed::rest_mut) of a window's memory, as a kernel that writes sees it.
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
    /// How many elements the whole region has.
    pub fn whole_len(&self) -> usize {
        self.members.whole_len
    }

    /// The elements that it holds, as [`IndexSet::ranges`].
    pub fn ranges(&self) -> &'k [Range<usize>] {
        self.members.set.ranges()
    }

    /// Neighbouring elements of the region.
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
        // SAFETY: `from` points to `len` elements of this part, live and written by nobody for `'k`: see `get`. All bytes
        // of an element are valid.
        unsafe { std::slice::from_raw_parts(first, len) }
    }

    /// Where a range begins, all of which it holds.
    #[inline]
    #[track_caller]
    fn from(&self, range: Range<usize>) -> *const T {
        let none = range.start == range.end && range.end <= self.whole_len();
        if range.start > range.end || !(none || self.members.set.covers(range.start, range.end)) {
            outside_of_part(&range);
        }
        self.ptr.wrapping_add(range.start)
    }

    /// Element `index` of the region.
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
        // SAFETY: `at` points to an element of this part, live while the kernel runs; other parts do not hold it (nor do
        // origins access it, if this is the rest of a window's memory), and what else uses this one is ordered with the
        // kernel.
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
    /// How many elements the whole region has.
    pub fn whole_len(&self) -> usize {
        self.0.whole_len()
    }

    /// Element `index` of the region.
    ///
    /// # Panics
    ///
    /// As [`Cells::get`].
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

    /// The elements that it holds, as [`IndexSet::ranges`].
    pub fn ranges(&self) -> &'k [Range<usize>] {
        self.0.ranges()
    }

    /// Neighbouring elements of the region.
    ///
    /// # Panics
    ///
    /// As [`Cells::slice`].
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

    /// Neighbouring elements of the region, to be written.
    ///
    /// # Panics
    ///
    /// As [`Cells::slice`].
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
        // SAFETY: as for `Cells::slice`; the kernel has the part exclusively, and the view is borrowed exclusively for as
        // long as the slice lives.
        unsafe { std::slice::from_raw_parts_mut(first, len) }
    }

    /// Sets element `index` of the region.
    ///
    /// # Panics
    ///
    /// As [`Cells::get`].
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
        // SAFETY: as for `get`; the kernel has the part exclusively.
        unsafe { self.0.at(index).cast_mut().write(value) }
    }
}

/// A view of a part to be; `WRITE` if it is exclusive.
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
    fn new<D: Device>(part: &Part<T, On<'_, D>>) -> Self {
        Self::of(part.body.ptr(), part.body.len(), &part.members)
    }

    /// A view of some of the `whole_len` elements at `ptr`.
    pub(crate) fn of(ptr: Ptr, whole_len: usize, members: &Arc<Members>) -> Self {
        let members: *const Members = &**members;
        LoweredPart {
            ptr,
            whole_len,
            members: Ptr(members.cast_mut().cast()),
            marker: PhantomData,
        }
    }

    /// Device code gets the whole region, and whoever binds it promises that it keeps to the part.
    fn push_whole(self, parameters: &mut Parameters) {
        parameters.push(&self.ptr);
        parameters.push(&(self.whole_len as u64));
    }

    /// # Safety
    ///
    /// As [`Lowered::view`].
    unsafe fn cells<'k>(self) -> Cells<'k, T> {
        // SAFETY: the members are retired in stream order, with the memory (`Body::keep`, or the inbox).
        let members = unsafe { &*self.members.0.cast::<Members>() };
        Cells {
            ptr: self.ptr.0.cast(),
            members,
            marker: PhantomData,
        }
    }
}

// SAFETY: the part is at home on the stream; a shared borrow gives a shared view.
unsafe impl<'s, T: Element, D: Device> Argument<'s, D> for &Part<T, On<'s, D>> {
    type Lowered = LoweredPart<T, false>;
    #[inline]
    fn lower(self, stream: &Stream<'s, D>) -> Result<LoweredPart<T, false>> {
        self.body.settle(stream, Touch::Read, Location::caller())?;
        Ok(LoweredPart::new(self))
    }
}

// SAFETY: the part is at home on the stream; an exclusive borrow gives the one exclusive view.
unsafe impl<'s, T: Element, D: Device> Argument<'s, D> for &mut Part<T, On<'s, D>> {
    type Lowered = LoweredPart<T, true>;
    #[inline]
    fn lower(self, stream: &Stream<'s, D>) -> Result<LoweredPart<T, true>> {
        self.body.settle(stream, Touch::Write, Location::caller())?;
        Ok(LoweredPart::new(self))
    }
}

// SAFETY: see `cells`.
unsafe impl<T: Element> Lowered for LoweredPart<T, false> {
    type View<'k> = Cells<'k, T>;
    unsafe fn view<'k>(self) -> Cells<'k, T> {
        // SAFETY: the caller's promise.
        unsafe { self.cells() }
    }

    fn push(self, parameters: &mut Parameters) {
        self.push_whole(parameters);
    }
}

// SAFETY: see `cells`.
unsafe impl<T: Element> Lowered for LoweredPart<T, true> {
    type View<'k> = CellsMut<'k, T>;
    unsafe fn view<'k>(self) -> CellsMut<'k, T> {
        // SAFETY: the caller's promise.
        CellsMut(unsafe { self.cells() })
    }

    fn push(self, parameters: &mut Parameters) {
        self.push_whole(parameters);
    }
}

#[cfg(test)]
#[allow(
    clippy::single_range_in_vec_init,
    reason = "sets of one range are meant"
)]
mod tests;
