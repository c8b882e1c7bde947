//! Where a region is at home: with the host, or on one stream.

use std::marker::PhantomData;

use tidegate_hal::device::Device;

/// Who may touch a region now. Sealed: [`OnHost`] and [`On`].
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
    /// The kind of device whose memory it is.
    type Device: Device;
}

/// At home with the host: no stream has work for it.
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

/// At home on the stream with the brand `'s`: whatever touches it is in that stream's order.
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

/// A type that is spoken of and not held; invariant.
pub(crate) type Of<T> = PhantomData<fn(T) -> T>;

/// A variable in a stream's block that marks where its brand must have ended: part of [`stream!`](crate::stream!).
///
/// The brand has to last until [`StreamsDoNotMix`] is dropped, and to end before the `Id` below it is. Any two streams
/// have two such places, one of which comes first, so no lifetime fits both.
#[doc(hidden)]
pub struct Id<'s>(Brand<'s>);

/// The right to give a stream the brand `'s`; there is one for each brand.
#[doc(hidden)]
pub struct Guard<'s>(Brand<'s>);

/// A mark of [`stream!`](crate::stream!) that is dropped at the end of the stream's block, so that its brand is no other stream's.
///
/// Programs do not use it, but errors about lifetimes name it. Such an error says one of these:
///
/// - *It names two streams*: something that is at home on the one was given to the other. It does not say in which call.
///   Hand it over ([`Stream::hand_off`](crate::Stream::hand_off)), or make it on the stream that uses it.
/// - *It names one stream*: a reference to the stream lasts as long as the stream itself, because somewhere
///   `&'s Stream<'s>` is written. Write `&Stream<'s>`.
pub struct StreamsDoNotMix<'s>(PhantomData<&'s Id<'s>>);

impl Id<'_> {
    /// # Safety
    ///
    /// It stays where it is, in a variable, until the end of the block, and a [`StreamsDoNotMix`] with the same lifetime
    /// is dropped there before it. The compiler sees a way through the program that comes to that end.
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
    // Without this the compiler would not ask the brand to last until here.
    fn drop(&mut self) {}
}

/// Ties a brand to the place where its `Id` is.
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
