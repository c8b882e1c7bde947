//! Safe, GPU-stream-aware, one-sided messaging: active-target RMA whose epochs are typed tokens.

pub use tidegate_boot::launch;
pub use tidegate_core::{
    Arithmetic, Carry, Cells, CellsMut, Element, Error, IndexSet, OnHost, Place, Priority,
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

pub use window::{Atomic, Buffers, ByRange, BySlot, Group, Op, Slot, Slots, Window, exchange};

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
        Access, Barrier, Carry, Element, Exposed, Graph, Group, Inbox, Layout, On, Op, Outbox,
        Part, Region, Result, Slot, Slots, Stream, Window, World, exchange, stream,
    };
    #[cfg(feature = "mpi")]
    pub use tidegate_mpi::FromMpi;
}

pub mod coming_from_mpi;

/// The README's programs, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
