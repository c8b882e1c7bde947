//! The regions that an epoch reads and writes on this rank.

use std::marker::PhantomData;
use std::ops::Range;

use tidegate_hal::device::Device;
use tidegate_hal::memory::Ptr;

use crate::element::Element;
use crate::error::Result;
use crate::layout::Layout;
use crate::place::{Brand, On};
use crate::region::{Region, RegionBody, bounds};

/// The source of an operation: a region of the stream, or some of its elements. It is borrowed until the epoch is
/// complete.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
/// let mut epoch = outbox.start();
/// let middle = src.slice(1..3)?; // borrows `src`
/// epoch.put(middle, to)?;
/// let (inbox, _outbox) = exchange(s, inbox, epoch)?;
/// # Ok(()) });
/// ```
pub struct Source<'b, 's, T, D: Device> {
    pub(super) local: (Ptr, u64),
    pub(super) count: usize,
    pub(super) layout: Option<&'b Layout<D>>,
    pub(super) body: &'b RegionBody<D>,
    marker: PhantomData<(&'b T, Brand<'s>)>,
}

/// The destination of a get or fetch: a region of the stream, or some of its elements. It is borrowed exclusively until
/// the epoch is complete.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// # tidegate::doc::ranges(|s, (inbox, outbox), to, src| {
/// # let mut got = Region::<u64>::zeroed(s.world(), 4)?.on(s)?;
/// let mut epoch = outbox.start();
/// let last = got.slice_mut(2..4)?; // borrows `got`
/// epoch.get(last, to)?; // the first 2 elements
/// let (inbox, _outbox) = exchange(s, inbox, epoch)?;
/// # Ok(()) });
/// ```
pub struct SourceMut<'b, 's, T, D: Device> {
    pub(super) source: Source<'b, 's, T, D>,
    marker: PhantomData<&'b mut T>,
}

/// A value that can be the source of an operation: `&region`, or what [`Region::slice`] or [`Region::with`] returns.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::host::Host;
/// use tidegate::window::IntoSource;
///
/// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
/// /// Puts a region, or some of its elements.
/// fn put<'s, 'b>(
///     epoch: &mut Access<'s, 'b, u64>,
///     src: impl IntoSource<'b, 's, u64, Host>,
///     to: Out<u64>,
/// ) -> Result<()> {
///     epoch.put(src, to)
/// }
/// let mut epoch = outbox.start();
/// put(&mut epoch, &src, to)?;
/// # let _halves = exchange(s, inbox, epoch)?;
/// # Ok(()) });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the source of an operation of this epoch",
    label = "not at home on the epoch's stream, or not of the window's elements",
    note = "a source is `&region`, `region.slice(range)?` or `region.with(&layout)?`, where the region has the window's elements and is at home on its stream (`region.on(&stream)?`)"
)]
pub trait IntoSource<'b, 's, T: Element, D: Device>: Into<Source<'b, 's, T, D>> {}

impl<'b, 's, T: Element, D: Device> IntoSource<'b, 's, T, D> for &'b Region<T, On<'s, D>> {}
impl<'b, 's, T: Element, D: Device> IntoSource<'b, 's, T, D> for Source<'b, 's, T, D> {}

/// A value that a get or an atomic fetch can write to: `&mut region`, or what [`Region::slice_mut`] or
/// [`Region::with_mut`] returns.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::host::Host;
/// use tidegate::window::IntoSourceMut;
///
/// # tidegate::doc::ranges(|s, (inbox, outbox), to, src| {
/// /// Gets into a region, or into some of its elements.
/// fn get<'s, 'b>(
///     epoch: &mut Access<'s, 'b, u64, ByRange>,
///     into: impl IntoSourceMut<'b, 's, u64, Host>,
///     from: Out<u64>,
/// ) -> Result<()> {
///     epoch.get(into, from)
/// }
/// # let mut got = Region::<u64>::zeroed(s.world(), 4)?.on(s)?;
/// let mut epoch = outbox.start();
/// get(&mut epoch, &mut got, to)?;
/// # let _halves = exchange(s, inbox, epoch)?;
/// # Ok(()) });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the destination of a get or fetch of this epoch",
    label = "not at home on the epoch's stream, or not of the window's elements",
    note = "a get or fetch writes to `&mut region`, `region.slice_mut(range)?` or `region.with_mut(&layout)?`, where the region has the window's elements and is at home on its stream (`region.on(&stream)?`)"
)]
pub trait IntoSourceMut<'b, 's, T: Element, D: Device>: Into<SourceMut<'b, 's, T, D>> {}

impl<'b, 's, T: Element, D: Device> IntoSourceMut<'b, 's, T, D> for &'b mut Region<T, On<'s, D>> {}
impl<'b, 's, T: Element, D: Device> IntoSourceMut<'b, 's, T, D> for SourceMut<'b, 's, T, D> {}

impl<'b, 's, T: Element, D: Device> From<&'b Region<T, On<'s, D>>> for Source<'b, 's, T, D> {
    fn from(region: &'b Region<T, On<'s, D>>) -> Self {
        Source {
            local: (region.body.ptr(), region.body.id),
            count: region.len(),
            layout: None,
            body: &region.body,
            marker: PhantomData,
        }
    }
}

impl<'b, 's, T: Element, D: Device> From<&'b mut Region<T, On<'s, D>>> for SourceMut<'b, 's, T, D> {
    fn from(region: &'b mut Region<T, On<'s, D>>) -> Self {
        SourceMut {
            source: Source::from(&*region),
            marker: PhantomData,
        }
    }
}

impl<'s, T: Element, D: Device> Region<T, On<'s, D>> {
    /// A run of elements, as the source of a put.
    ///
    /// # Errors
    ///
    /// [`RegionError::OutOfBounds`](crate::error::RegionError::OutOfBounds) if the range does not lie within
    /// the region.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// let mut epoch = outbox.start();
    /// epoch.put(src.slice(1..3)?, to)?; // 2 elements
    /// let (mut inbox, _outbox) = exchange(s, inbox, epoch)?;
    /// assert_eq!(inbox.read(s)?.slot(from), [7, 7, 0, 0]);
    /// # Ok(()) });
    /// ```
    pub fn slice(&self, range: Range<usize>) -> Result<Source<'_, 's, T, D>> {
        Source::from(self).slice(range, self.len())
    }

    /// The elements that a layout chooses, as the source of a put.
    ///
    /// # Errors
    ///
    /// [`RegionError::OutOfBounds`](crate::error::RegionError::OutOfBounds) if the layout reaches beyond the region.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// let every_third = Layout::strided(0, &[(2, 3)])?; // elements 0 and 3
    /// let mut epoch = outbox.start();
    /// epoch.put(src.with(&every_third)?, to)?;
    /// let (mut inbox, _outbox) = exchange(s, inbox, epoch)?;
    /// assert_eq!(inbox.read(s)?.slot(from), [7, 7, 0, 0]);
    /// # Ok(()) });
    /// ```
    pub fn with<'b>(&'b self, layout: &'b Layout<D>) -> Result<Source<'b, 's, T, D>> {
        Source::from(self).with(layout, self.len())
    }

    /// A run of elements, as the destination of a get or fetch.
    ///
    /// # Errors
    ///
    /// [`RegionError::OutOfBounds`](crate::error::RegionError::OutOfBounds) if the range does not lie within
    /// the region.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranges(|s, (inbox, outbox), to, src| {
    /// let mut got = Region::from_slice(s.world(), &[5; 4])?.on(s)?;
    /// let mut epoch = outbox.start();
    /// epoch.get(got.slice_mut(1..3)?, to)?;
    /// let (inbox, _outbox) = exchange(s, inbox, epoch)?;
    /// assert_eq!(got.into_host(s)?[..], [5, 0, 0, 5]);
    /// # Ok(()) });
    /// ```
    pub fn slice_mut(&mut self, range: Range<usize>) -> Result<SourceMut<'_, 's, T, D>> {
        let len = self.len();
        let SourceMut { source, marker } = SourceMut::from(self);
        Ok(SourceMut {
            source: source.slice(range, len)?,
            marker,
        })
    }

    /// The elements that a layout chooses, as the destination of a get. No element may occur twice.
    ///
    /// # Errors
    ///
    /// Those of [`Region::with`], and [`EpochError::NotDistinct`](crate::error::EpochError::NotDistinct) if an element
    /// occurs twice.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranges(|s, (inbox, outbox), to, src| {
    /// let mut got = Region::from_slice(s.world(), &[5; 4])?.on(s)?;
    /// let odd = Layout::strided(1, &[(2, 2)])?;
    /// let mut epoch = outbox.start();
    /// epoch.get(got.with_mut(&odd)?, to)?;
    /// let (inbox, _outbox) = exchange(s, inbox, epoch)?;
    /// assert_eq!(got.into_host(s)?[..], [5, 0, 5, 0]);
    /// # Ok(()) });
    /// ```
    pub fn with_mut<'b>(&'b mut self, layout: &'b Layout<D>) -> Result<SourceMut<'b, 's, T, D>> {
        layout.as_destination()?;
        let len = self.len();
        let SourceMut { source, marker } = SourceMut::from(self);
        Ok(SourceMut {
            source: source.with(layout, len)?,
            marker,
        })
    }
}

impl<'b, T: Element, D: Device> Source<'b, '_, T, D> {
    /// The elements of a part that a layout chooses. The caller has checked that the part holds them.
    pub(crate) fn of(body: &'b RegionBody<D>, layout: &'b Layout<D>) -> Self {
        Source {
            local: (body.ptr(), body.id),
            count: layout.count(),
            layout: Some(layout),
            body,
            marker: PhantomData,
        }
    }

    fn slice(mut self, range: Range<usize>, len: usize) -> Result<Self> {
        if range.start > range.end || range.end > len {
            return Err(bounds("a region", range, len));
        }
        self.local.0 = self.local.0.byte_add(range.start * size_of::<T>());
        self.count = range.len();
        Ok(self)
    }

    fn with(mut self, layout: &'b Layout<D>, len: usize) -> Result<Self> {
        if layout.extent() > len {
            return Err(bounds("a region", 0..layout.extent(), len));
        }
        self.count = layout.count();
        self.layout = Some(layout);
        Ok(self)
    }
}
