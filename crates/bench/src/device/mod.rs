//! A device of the benchmarks: more than the library asks of it.
//!
//! # Model
//!
//! Benchmarks are written once, over a [`BenchDevice`]. Devices differ in a handful of kernels, and in how the host sees
//! memory. [`host`] and [`gpu`] are the two kinds of devices; [`crate::faces::device`] has what Faces needs in addition.
//!
//! # Failures
//!
//! [`BenchDevice::available`] names the missing part, in the words of the library, before any rank is
//! started.

pub mod gpu;
pub mod host;

use tidegate_core::window::BySlot;
use tidegate_core::{Element, OnHost, Region, Result, Stream, World};
use tidegate_hal::device::{Device, DeviceError};

/// At home on a stream.
pub type On<'s, D> = tidegate_core::On<'s, D>;
/// The words that the exchange benchmarks send.
pub type Words<'s, D> = Region<u64, On<'s, D>>;
/// The inbox that they arrive in.
pub type WordsIn<'s, D> = tidegate_core::window::Inbox<'s, u64, D, BySlot>;
/// The outbox that they leave by.
pub type WordsOut<'s, D> = tidegate_core::window::Outbox<'s, u64, D, BySlot>;

/// A device that benchmarks run on.
pub trait BenchDevice: Device {
    /// The kernel that gathers the received words.
    type Gather;

    /// Whether there is such a device on this machine.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Missing`], which names the missing part.
    fn available() -> std::result::Result<(), DeviceError>;

    /// Its name in reports: `host`, or a GPU's name.
    fn label(&self) -> String;

    /// Gives memory that is with the host to `check`, as a slice.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    fn look<T: Element + Default>(
        region: &Region<T, OnHost<Self>>,
        check: &mut dyn FnMut(&[T]),
    ) -> Result<()>;

    /// Makes the kernel; before any stream has work.
    ///
    /// # Errors
    ///
    /// If the device does not take it.
    fn gather_kernel(world: &World<Self>) -> Result<Self::Gather>;

    /// Enqueues a copy of all slots of an inbox, one after the other, to `out`.
    ///
    /// # Errors
    ///
    /// As [`Stream::launch`].
    fn gather<'s>(
        kernel: &Self::Gather,
        stream: &Stream<'s, Self>,
        inbox: &WordsIn<'s, Self>,
        out: &mut Words<'s, Self>,
    ) -> Result<()>;
}
