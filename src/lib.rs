//! Safe, GPU-stream-aware, one-sided messaging: active-target RMA whose epochs are typed tokens.
//!
//! # Model
//!
//! The processes of a job are the *ranks* of a [`World`]. Work is enqueued on [`Stream`]s, which do it in order: kernels,
//! and epochs. A [`Region`] is memory that is at home on one stream (or on the host), and its type says which. All
//! ranks together create a [`Window`], and each gets two tokens:
//!
//! ```text
//! Inbox  --post-->  Exposed  --wait-->      Inbox       others put into it between the two
//! Outbox --start->  Access   --complete-->  Outbox      this rank puts into others' between the two
//! ```
//!
//! Every arrow takes the token and gives the next one, so that what is not allowed in a state does not exist in it; and
//! what is put is borrowed until its epoch is complete. `post`, `complete` and `wait` are *enqueued*: the stream opens and
//! closes the epochs by itself, and the host waits once, when it wants to see a result.
//!
//! ```
//! use tidegate::prelude::*;
//!
//! fn swap(world: World) -> Result<()> {
//!     let peer = 1 - world.rank();
//!     stream!(let s = world.stream()?);
//!     let window = Window::by_slot("swap").slot_from(peer, 0, 4).slot_to(peer, 0);
//!     let (inbox, outbox) = window.open(&s)?;
//!     let src = Region::from_slice(&world, &[world.rank() as u64; 4])?.on(&s)?;
//!
//!     let exposed = inbox.post(&s)?;
//!     let mut epoch = outbox.start();
//!     epoch.put(&src, Slot(0))?;
//!     let _outbox = epoch.complete(&s)?;
//!     let mut inbox = exposed.wait(&s)?;
//!
//!     assert_eq!(inbox.read(&s)?.slot(0), [peer as u64; 4]);
//!     Ok(())
//! }
//!
//! // Two ranks, as threads of this process; `World::init` joins a job of processes.
//! for outcome in World::local(2, swap) {
//!     outcome.expect("both ranks are there");
//! }
//! ```
//!
//! # Where to look
//!
//! | to | look at |
//! |---|---|
//! | start, and find the others | [`World::init`], [`World::local`], [`launch`] |
//! | say who may write what | [`window`]: by slot, by range, atomic |
//! | compute between epochs | [`Stream::launch`](tidegate_core::Stream::launch), on GPUs [`kernel!`] and [`cuda`] |
//! | do all of an epoch as one work item | [`exchange`]; who only receives [`Inbox::expose`] |
//! | record a step once, and replay it | [`capture`] |
//! | lend parts of one region to two streams | [`Region::partition`](tidegate_core::Region::partition), [`Part`], [`IndexSet`] |
//! | put what does not lie side by side | [`Layout`] |
//! | send messages whose length is known at run time only | [`varying_messages`] |
//! | wait in async code | [`Stream::synchronized`](tidegate_core::Stream::synchronized), [`Region::into_host_async`](tidegate_core::Region::into_host_async) |
//! | use streams and memory of another CUDA library | [`cuda::interop`] |
//! | reach other nodes | [`fabric`] and [`WorldOptions::nic`] |
//! | run inside an MPI job, or over nothing but an MPI | the feature `mpi`: `tidegate::mpi`, and [`coming_from_mpi`] |
//! | write a device or a NIC of one's own | [`hal`] |
//!
//! # Failure
//!
//! Every wait can end: by its event, by the limit of its window, or by the death of whom it waits for, which is noticed and
//! named. A call that fails gives its tokens back with the error ([`Error`], [`Rejected`]). A stream that fails passes over
//! what stands behind; what it would have signalled is poisoned, so that ranks that wait for it fail too, and whoever
//! synchronises with it gets the error. A token that is dropped half-way through its epoch revokes the window, for
//! everybody, with that as the cause.
//!
//! After a loss all windows and barriers of the job are revoked ([`Error::Revoked`] with the lost rank as its cause),
//! those between other ranks, too, and none can be opened ([`Error::Control`]). There is no shrink: end, and start anew.
//! What survives is a rank's own: regions of the host, and those of streams that have waited for nothing in vain, so
//! that it can save what it has. When a rank *leaves*, open windows serve on, but for waits for that rank; none can be
//! opened any more then, either.

pub use tidegate_boot::launch;
pub use tidegate_core::{
    Arithmetic, Carry, Cells, CellsMut, Chunks, Element, Error, IndexSet, OnHost, Place, Priority,
    Rejected, Result, Route, StreamOptions, Throttle, WorldOptions, capture, element, error,
    kernel, stream, window,
};
#[doc(inline)]
pub use tidegate_cuda as cuda;
pub use tidegate_cuda::Cuda;
pub use tidegate_derive::{Carry, Element};
#[doc(inline)]
pub use tidegate_fabric as fabric;
pub use tidegate_hal as hal;
pub use tidegate_host::Host;
#[cfg(feature = "mpi")]
#[doc(inline)]
pub use tidegate_mpi as mpi;

pub use window::{At, Atomic, Buffers, ByRange, BySlot, Group, Op, Slot, Slots, Window, exchange};

#[doc(hidden)]
pub use tidegate_core::__private;
pub use tidegate_core::UnboundStream;

/// One rank's view of the job, on a device (at first the host).
pub type World<D = Host> = tidegate_core::World<D>;
/// A stream with its brand.
pub type Stream<'s, D = Host> = tidegate_core::Stream<'s, D>;
/// At home on a stream.
pub type On<'s, D = Host> = tidegate_core::On<'s, D>;
/// A run of elements in memory of a device.
pub type Region<T, P = OnHost<Host>> = tidegate_core::Region<T, P>;
/// A part of a region.
pub type Part<T, P = OnHost<Host>> = tidegate_core::Part<T, P>;
/// The target's half of a window.
pub type Inbox<'s, T, K = BySlot, D = Host> = window::Inbox<'s, T, K, D>;
/// An inbox that is exposed.
pub type Exposed<'s, T, K = BySlot, D = Host> = window::Exposed<'s, T, K, D>;
/// The origin's half of a window.
pub type Outbox<'s, T, K = BySlot, D = Host> = window::Outbox<'s, T, K, D>;
/// An access epoch.
pub type Access<'s, 'b, T, K = BySlot, D = Host> = window::Access<'s, 'b, T, K, D>;
/// A barrier of all ranks.
pub type Barrier<'s, D = Host> = tidegate_core::Barrier<'s, D>;
/// A choice of elements.
pub type Layout<D = Host> = tidegate_core::Layout<D>;
/// A recorded step.
pub type Graph<'s, D = Host> = tidegate_core::Graph<'s, D>;

/// What most programs need.
pub mod prelude {
    pub use crate::{
        Access, At, Barrier, Carry, Element, Exposed, Graph, Group, Inbox, Layout, On, Op, Outbox,
        Part, Region, Result, Slot, Slots, Stream, Window, World, exchange, stream,
    };
    #[cfg(feature = "mpi")]
    pub use tidegate_mpi::FromMpi;
}

pub mod coming_from_mpi;
pub mod varying_messages;

/// The README's programs, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
