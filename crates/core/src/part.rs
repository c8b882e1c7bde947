//! Disjoint parts of a region, which can be on different streams.
//!
//! # Model
//!
//! [`Region::partition`] splits a region by [`IndexSet`]s. It checks that they are disjoint and lie within the region.
//! Each [`Part`] can then be at home on the host or on a stream of its own. So one stream can pack and exchange the
//! surface of a block while another computes the interior. [`Region::reunite`] joins the parts again.
//!
//! Kernels see a part as [`Cells`] (to read) or [`CellsMut`] (to write). They access elements by their index in the
//! region, one at a time or as slices. Each access is checked, because another stream may be writing the other
//! elements. A bit map tells about a single element (a load and a test), and the part's ranges about a slice.
//!
//! # Failure
//!
//! `partition` refuses sets that overlap or have indices outside of the region.

mod cells;
mod set;

use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::Location;
use std::sync::Arc;

use tidegate_hal::device::{Call, Device, Stream as _};

use crate::argument::Argument;
use crate::carry::{Carry, Visitor};
use crate::element::Element;
#[cfg(doc)]
use crate::error::Error;
use crate::error::{RegionError, Rejected, Result};
use crate::layout::Layout;
use crate::nic::Touch;
use crate::place::{On, OnHost, Place};
use crate::region::{Region, RegionBody, bounds};
use crate::stream::Stream;
use crate::window::Source;

/// How many layouts a part remembers as its own, so that it need not look at their runs again.
const ADMITTED: usize = 8;

pub use cells::{Cells, CellsMut, LoweredPart};
pub use set::IndexSet;
pub(crate) use set::Members;

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
    body: RegionBody<P::Device>,
    set: IndexSet,
    /// The set in the form that kernels use. The body keeps it, too, until the stream has passed.
    members: Arc<Members>,
    /// The partition that this part belongs to. Only parts of one partition can be reunited.
    whole: Arc<Whole>,
    /// The number of this part in the partition.
    index: usize,
    /// Layouts that were found to lie within the set.
    admitted: RefCell<Vec<Layout<P::Device>>>,
    marker: PhantomData<(T, P)>,
}

struct Whole {
    parts: usize,
}

impl<T: Element, P: Place> Region<T, P> {
    /// Splits the region into parts. Elements that no set contains cannot be reached until [`Region::reunite`].
    ///
    /// # Errors
    ///
    /// [`RegionError::Overlap`] if two sets overlap. [`RegionError::OutOfBounds`] if a set reaches beyond the region.
    /// [`Error::Device`] if there is not enough memory; a part takes a bit for each element of the whole region. The
    /// region is then lost.
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

    /// Like [`Region::partition`], but returns the region if it fails.
    ///
    /// # Errors
    ///
    /// The same as [`Region::partition`].
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

    /// Joins all parts of one partition, in their order.
    ///
    /// # Errors
    ///
    /// [`RegionError::NotOnePartition`] if they are not all parts of one partition, in their order. They are then lost.
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
    ///
    /// Without parts it does not compile:
    ///
    /// ```compile_fail,E0080
    /// # use tidegate::host::prelude::*;
    /// let none = Region::<f64>::reunite([]);
    /// ```
    pub fn reunite<const N: usize>(parts: [Part<T, P>; N]) -> Result<Self> {
        Self::try_reunite(parts).map_err(Rejected::into_error)
    }

    /// Like [`Region::reunite`], but returns the parts if it fails.
    ///
    /// # Errors
    ///
    /// The same as [`Region::reunite`].
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
    pub fn try_reunite<const N: usize>(
        parts: [Part<T, P>; N],
    ) -> Result<Self, Rejected<[Part<T, P>; N]>> {
        const { assert!(N != 0, "a region has parts") };
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

/// Checks that all sets lie within `0..len` and are disjoint.
fn check(sets: &[IndexSet], len: usize) -> Result<()> {
    if let Some(range) = sets
        .iter()
        .filter_map(|set| set.ranges().last())
        .find(|range| range.end > len)
    {
        return Err(bounds("a region", range.clone(), len));
    }
    IndexSet::from_ranges(sets.iter().flat_map(|set| set.ranges().iter().cloned())).map(|_| ())
}

impl<T: Element, P: Place> Part<T, P> {
    /// The set of its elements.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use tidegate::IndexSet;
    ///
    /// # tidegate::doc::stream(|world, s| {
    /// let x = Region::from_slice(world, &[1.0; 10])?;
    /// let [low] = x.partition([IndexSet::from_ranges([0..4])?])?;
    /// assert_eq!(low.set().ranges(), [0..4]);
    /// # Ok(()) });
    /// ```
    pub fn set(&self) -> &IndexSet {
        &self.set
    }

    /// The number of elements of the whole region.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use tidegate::IndexSet;
    ///
    /// # tidegate::doc::stream(|world, s| {
    /// let x = Region::from_slice(world, &[1.0; 10])?;
    /// let [low] = x.partition([IndexSet::from_ranges([0..4])?])?;
    /// assert_eq!(low.whole_len(), 10);
    /// # Ok(()) });
    /// ```
    pub fn whole_len(&self) -> usize {
        self.body.len()
    }

    fn settled<Q: Place<Device = P::Device>>(
        self,
        body: impl FnOnce(&mut RegionBody<P::Device>),
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
    /// Hands the part to a stream: see [`Region::on`].
    ///
    /// # Errors
    ///
    /// [`CaptureError::Inside`](crate::error::CaptureError::Inside) while the stream is captured,
    /// [`RegionError::OtherDevice`] if the stream belongs to another device, or [`Error::Forked`]. The part is then
    /// lost.
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

    /// Like [`Part::on`], but returns the part if it fails.
    ///
    /// # Errors
    ///
    /// The same as [`Part::on`].
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
    /// Waits until the stream has done everything that is enqueued, and gives the part to the host: see
    /// [`Region::into_host`].
    ///
    /// # Errors
    ///
    /// The error that made the stream fail, or [`CaptureError::Inside`](crate::error::CaptureError::Inside) while the
    /// stream is captured. The part is then lost.
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

    /// Like [`Part::into_host`], but if it fails it returns the part, still on the stream.
    ///
    /// # Errors
    ///
    /// The same as [`Part::into_host`].
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

    /// The elements of the region that a layout chooses, as the source of a put. All of them must be in the part, which
    /// is checked when the layout is first used with it.
    ///
    /// # Errors
    ///
    /// [`RegionError::NotInPart`] if the part does not hold all of them, and [`RegionError::OutOfBounds`] if the layout
    /// reaches beyond the whole region.
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
            if admitted.len() == ADMITTED {
                admitted.remove(0);
            }
            admitted.push(layout.clone());
        }
        Ok(Source::of(&self.body, layout))
    }
}

// SAFETY: the one leaf is visited, and only `On<'s, D>` mentions the brand.
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
        let elements: usize = self.set.ranges().iter().map(Range::len).sum();
        let mut said = self.body.debug::<T>("Part", home, f);
        said.field("elements", &elements)
            .field("whole_len", &self.body.len())
            .finish()
    }
}

impl<T: Element, const WRITE: bool> LoweredPart<T, WRITE> {
    fn new<D: Device>(part: &Part<T, On<'_, D>>) -> Self {
        Self::of(part.body.ptr(), part.body.len(), &part.members)
    }
}

// SAFETY: the part is at home on the stream, and a shared borrow gives a shared view.
unsafe impl<'s, T: Element, D: Device> Argument<'s, D> for &Part<T, On<'s, D>> {
    type Lowered = LoweredPart<T, false>;
    #[inline]
    fn lower(&mut self, stream: &Stream<'s, D>) -> Result<LoweredPart<T, false>> {
        self.body.settle(stream, Touch::Read, Location::caller())?;
        Ok(LoweredPart::new(self))
    }
}

// SAFETY: the part is at home on the stream, and the exclusive borrow gives the only view.
unsafe impl<'s, T: Element, D: Device> Argument<'s, D> for &mut Part<T, On<'s, D>> {
    type Lowered = LoweredPart<T, true>;
    #[inline]
    fn lower(&mut self, stream: &Stream<'s, D>) -> Result<LoweredPart<T, true>> {
        self.body.settle(stream, Touch::Write, Location::caller())?;
        Ok(LoweredPart::new(self))
    }
}

#[cfg(test)]
#[allow(
    clippy::single_range_in_vec_init,
    reason = "sets of one range are meant"
)]
mod tests;
