//! Where a region is at home: on the host, or on one stream.

use std::marker::PhantomData;

use tidegate_hal::device::Device;

/// Says who may touch a region now: the host ([`OnHost`]), or one stream ([`On`]). Sealed.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::generic;
///
/// # tidegate::doc::stream(|world, s| {
/// /// Regions have a length wherever they are at home.
/// fn bytes<P: generic::Place>(x: &generic::Region<f64, P>) -> usize {
///     x.len() * size_of::<f64>()
/// }
/// let x = Region::from_slice(world, &[1.0; 4])?;
/// assert_eq!(bytes(&x), bytes(&x.on(s)?) );
/// # Ok(()) });
/// ```
pub trait Place: sealed::Sealed {
    /// The kind of device whose memory the region is in.
    type Device: Device;
}

/// At home on the host: no stream has work for the region.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// # tidegate::doc::stream(|world, s| {
/// let x: Region<f64, OnHost> = Region::zeroed(world, 3)?;
/// assert_eq!(x[..], [0.0; 3]);
/// # Ok(()) });
/// ```
pub struct OnHost<D>(Of<D>);

/// At home on the stream with the brand `'s`: the region is used in the order of that stream's work.
///
/// The lifetime is invariant, and belongs to one stream alone: see [`stream!`](crate::stream!).
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// # tidegate::doc::stream(|world, s| {
/// /// What a function takes that enqueues work with a region.
/// fn step<'s>(s: &Stream<'s>, x: &mut Region<f64, On<'s>>) -> Result<()> {
///     s.launch(|x: &mut [f64]| x[0] += 1.0, x)
/// }
/// let mut x = Region::zeroed(world, 1)?.on(s)?;
/// step(s, &mut x)?;
/// # Ok(()) });
/// ```
pub struct On<'s, D>(Brand<'s>, Of<D>);

/// A lifetime that stands for a stream; invariant.
pub(crate) type Brand<'s> = PhantomData<fn(&'s ()) -> &'s ()>;

/// Marks a type parameter that is named but not held; invariant.
pub(crate) type Of<T> = PhantomData<fn(T) -> T>;

/// A variable in a stream's block. It marks the place where the stream's brand must have ended. Part of
/// [`stream!`](crate::stream!).
///
/// The brand has to last until [`StreamsDoNotMix`] is dropped, and to end before the `Id` below it is dropped. Two
/// streams have two such places, one before the other, so no lifetime fits both.
#[doc(hidden)]
pub struct Id<'s>(Brand<'s>);

/// The right to give a stream the brand `'s`. Each brand has one guard.
#[doc(hidden)]
pub struct Guard<'s>(Brand<'s>);

/// A mark that [`stream!`](crate::stream!) drops at the end of the stream's block, so that no other stream has the same
/// brand.
///
/// Programs do not use it, but compiler errors about lifetimes name it. Such an error means one of these:
///
/// - *The error names two streams*: a thing that is at home on one stream was given to the other. (The error does not
///   say in which call.) Hand the thing over by [`Stream::hand_off`](crate::Stream::hand_off), or make it on the stream
///   that uses it.
/// - *The error names one stream*: somewhere `&'s Stream<'s>` is written, which borrows the stream for as long as it
///   lives. Write `&Stream<'s>`.
pub struct StreamsDoNotMix<'s>(PhantomData<&'s Id<'s>>);

impl Id<'_> {
    /// # Safety
    ///
    /// The caller keeps the `Id` in a variable, does not move it, and drops a [`StreamsDoNotMix`] with the same
    /// lifetime before it, at the end of the block. The compiler must see a path through the program that reaches that
    /// end.
    pub unsafe fn new() -> Self {
        Id(PhantomData)
    }
}

impl<'s> Guard<'s> {
    /// # Safety
    ///
    /// The `Id` has no other guard.
    pub unsafe fn of(id: &Id<'s>) -> Self {
        Guard(id.0)
    }
}

impl Drop for StreamsDoNotMix<'_> {
    // Because of this impl, the compiler requires that the brand lasts until here.
    fn drop(&mut self) {}
}

/// Ties a brand to the place of its `Id`.
#[doc(hidden)]
pub fn brand<'s>(_: &'s Id<'s>) -> StreamsDoNotMix<'s> {
    StreamsDoNotMix(PhantomData)
}

impl<D: Device> Place for OnHost<D> {
    type Device = D;
}

impl<D: Device> Place for On<'_, D> {
    type Device = D;
}

mod sealed {
    pub trait Sealed {}
    impl<D> Sealed for super::OnHost<D> {}
    impl<D> Sealed for super::On<'_, D> {}
}
