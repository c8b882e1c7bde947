//! Where a region is at home: with the host, or on one stream.

use std::marker::PhantomData;

use tidegate_hal::device::Device;

/// Who may touch a region now. Sealed: [`OnHost`] and [`On`].
pub trait Place: sealed::Sealed {
    /// The kind of device whose memory it is.
    type Device: Device;
}

/// At home with the host: no stream has work for it.
pub struct OnHost<D>(Of<D>);

/// At home on the stream with the brand `'s`: whatever touches it is in that stream's order.
///
/// The lifetime is invariant, and belongs to one stream alone: see [`stream!`](crate::stream!).
pub struct On<'s, D>(Brand<'s>, Of<D>);

/// A lifetime that stands for a stream; invariant.
pub(crate) type Brand<'s> = PhantomData<fn(&'s ()) -> &'s ()>;

/// A type that is spoken of and not held; invariant.
pub(crate) type Of<T> = PhantomData<fn(T) -> T>;

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
