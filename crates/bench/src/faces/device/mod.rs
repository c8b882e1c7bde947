//! The devices of Faces: the four kernels of a share on each, and the two that surround it.
//!
//! # Model
//!
//! A [`FacesDevice`] has a set of [`FacesKernels`], made once for a world and a [`Shape`], before any
//! stream is. The [variants](super::variants) enqueue them by that trait alone, so they contain nothing of
//! any device.
//!
//! | device | kernels |
//! |---|---|
//! | [`host`] | closures over [`super::kernels`]; parts of the block are seen through views that check every index |
//! | [`gpu`] | functions of `kernels/faces.cu`, which are given a [`geometry::FacesGeometry`] |
//!
//! # Failures
//!
//! A device that does not take the kernels, or a block that they cannot address, is an error when the set
//! is made.

pub mod geometry;
pub mod gpu;
pub mod host;
mod shape;

pub use shape::Shape;

use crate::device::{BenchDevice, On};
#[cfg(doc)]
use crate::faces::layout::Geometry;
use std::ops::Range;
use std::sync::Arc;
use tidegate_core::window::BySlot;
use tidegate_core::{Result, Stream, World};

/// Values on a stream: a block, or a packed buffer.
pub type Values<'s, D> = tidegate_core::Region<f64, On<'s, D>>;
/// A part of a block.
pub type Part<'s, D> = tidegate_core::Part<f64, On<'s, D>>;
/// The received messages: a slot for each neighbour, in the order of directions.
pub type Inbox<'s, D> = tidegate_core::window::Inbox<'s, f64, D, BySlot>;
/// The outbound slots to the neighbours.
pub type Outbox<'s, D> = tidegate_core::window::Outbox<'s, f64, D, BySlot>;

/// The right of a kernel to put to all neighbours and to complete them.
pub type All<'b, 's, D> = tidegate_core::window::LastOfAll<'b, 's, f64, D>;
/// Both halves of the window, for the kernel that owns them.
pub type Halves<'b, 's, D> = (
    tidegate_core::window::LentInbox<'b, 's, f64, D>,
    tidegate_core::window::LentOutbox<'b, 's, f64, D>,
);
/// A message: the neighbour's slot, and where the message is in a packed buffer.
pub type Message = (tidegate_core::window::Out<f64>, Range<usize>);

/// A device that Faces runs on.
pub trait FacesDevice: BenchDevice {
    /// Its kernels for one shape.
    type Kernels: FacesKernels<Self>;

    /// Where host-synchronised messages are best enqueued: on an inline stream, which the calling thread
    /// executes itself (`true`), or on the kernels' own, with explicit synchronisations.
    const INLINE_MESSAGES: bool;

    /// A point of a stream that has a time once the stream has come there.
    type Moment: Clone;

    /// Enqueues a moment, on the stream that some values are at home on. In a capture each replay sets its time anew.
    ///
    /// # Errors
    ///
    /// As [`Stream::launch`].
    fn moment<'s>(stream: &Stream<'s, Self>, at: &Values<'s, Self>) -> Result<Self::Moment>;

    /// The same where a part of a block is.
    ///
    /// # Errors
    ///
    /// As [`Stream::launch`].
    fn moment_at_part<'s>(stream: &Stream<'s, Self>, at: &Part<'s, Self>) -> Result<Self::Moment>;

    /// The microseconds from one moment to another; `None` while one of them has not come.
    ///
    /// # Errors
    ///
    /// If the device does not know.
    fn us_between(from: &Self::Moment, to: &Self::Moment) -> Result<Option<f64>>;

    /// Makes the kernels; before any stream has work.
    ///
    /// # Errors
    ///
    /// If the device does not take them, or they cannot handle the shape.
    ///
    /// # Safety
    ///
    /// They are enqueued only with memory of this shape: blocks of [`Geometry::len`] values, parts of such
    /// blocks by [`Geometry::surface_ranges`] and [`Geometry::interior_ranges`], packed buffers of [`Geometry::packed_len`]
    /// values, and inboxes with a slot of [`Geometry::message_len`] values for each neighbour, in the order of directions.
    unsafe fn kernels(world: &World<Self>, shape: Arc<Shape>) -> Result<Self::Kernels>;
}

/// Which part of a block a kernel computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Points with a coordinate that is the first or the last of the block.
    Surface,
    /// All points that are not on the surface.
    Interior,
}

/// The kernels, each enqueued by one call.
pub trait FacesKernels<D: FacesDevice> {
    /// Sets the block to its initial values.
    ///
    /// # Errors
    ///
    /// As [`Stream::launch`].
    fn initialise<'s>(&self, stream: &Stream<'s, D>, u: &mut Values<'s, D>) -> Result<()>;

    /// Sets a part of the block to its initial values.
    ///
    /// # Errors
    ///
    /// As [`Stream::launch`].
    fn initialise_part<'s>(
        &self,
        stream: &Stream<'s, D>,
        which: Which,
        u: &mut Part<'s, D>,
    ) -> Result<()>;

    /// Copies a part to where it lies in the block.
    ///
    /// # Errors
    ///
    /// As [`Stream::launch`].
    fn copy_part<'s>(
        &self,
        stream: &Stream<'s, D>,
        which: Which,
        u: &Part<'s, D>,
        block: &mut Values<'s, D>,
    ) -> Result<()>;

    /// Packs the messages.
    ///
    /// # Errors
    ///
    /// As [`Stream::launch`].
    fn pack<'s>(
        &self,
        stream: &Stream<'s, D>,
        u: &Values<'s, D>,
        out: &mut Values<'s, D>,
    ) -> Result<()>;

    /// Packs the messages out of the surface alone.
    ///
    /// # Errors
    ///
    /// As [`Stream::launch`].
    fn pack_part<'s>(
        &self,
        stream: &Stream<'s, D>,
        surface: &Part<'s, D>,
        out: &mut Values<'s, D>,
    ) -> Result<()>;

    /// Puts the messages to the neighbours, and completes them. A kernel of the host packs the messages before.
    ///
    /// # Errors
    ///
    /// As [`Stream::launch`].
    fn send<'s>(
        &self,
        stream: &Stream<'s, D>,
        u: &Values<'s, D>,
        packed: (&mut Values<'s, D>, &[Message]),
        out: All<'_, 's, D>,
    ) -> Result<()>;

    /// Like [`send`](Self::send), out of the surface alone.
    ///
    /// # Errors
    ///
    /// As [`Stream::launch`].
    fn send_part<'s>(
        &self,
        stream: &Stream<'s, D>,
        surface: &Part<'s, D>,
        packed: (&mut Values<'s, D>, &[Message]),
        out: All<'_, 's, D>,
    ) -> Result<()>;

    /// Sums the surface with the received messages.
    ///
    /// # Errors
    ///
    /// As [`Stream::launch`].
    fn unpack<'s>(
        &self,
        stream: &Stream<'s, D>,
        received: &Inbox<'s, D>,
        u: &mut Values<'s, D>,
    ) -> Result<()>;

    /// Like [`unpack`](Self::unpack), of the surface alone.
    ///
    /// # Errors
    ///
    /// As [`Stream::launch`].
    fn unpack_part<'s>(
        &self,
        stream: &Stream<'s, D>,
        received: &Inbox<'s, D>,
        surface: &mut Part<'s, D>,
    ) -> Result<()>;

    /// Makes so many shares, in one kernel: it gathers the messages, exchanges them by itself, and sums the surface. A
    /// kernel of the host packs the messages before.
    ///
    /// # Errors
    ///
    /// As [`Stream::launch`].
    fn shares<'s>(
        &self,
        stream: &Stream<'s, D>,
        u: &mut Values<'s, D>,
        packed: (&mut Values<'s, D>, &[Message]),
        halves: Halves<'_, 's, D>,
        count: u64,
    ) -> Result<()>;

    /// Like [`shares`](Self::shares), of the surface alone.
    ///
    /// # Errors
    ///
    /// As [`Stream::launch`].
    fn shares_part<'s>(
        &self,
        stream: &Stream<'s, D>,
        surface: &mut Part<'s, D>,
        packed: (&mut Values<'s, D>, &[Message]),
        halves: Halves<'_, 's, D>,
        count: u64,
    ) -> Result<()>;

    /// Sums the points inside that elements share.
    ///
    /// # Errors
    ///
    /// As [`Stream::launch`].
    fn compute<'s>(&self, stream: &Stream<'s, D>, interior: &mut Part<'s, D>) -> Result<()>;
}
