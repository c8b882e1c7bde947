//! Regions, windows and typed epochs over streams.
//!
//! This crate knows no vendor: it is generic over the devices of `tidegate-hal`. Programs use the facade `tidegate`,
//! which re-exports this crate for each built-in device.

// From the ground up: each group imports only from itself and from the groups above it, and no two files import each
// other.

mod bytes;
mod cartesian;
pub mod element;
mod epochs;
pub mod error;
mod footprint;
mod ground;
mod half_kind;
mod log;
mod members;
mod message;
pub mod observe;
mod place;
mod replays;

mod nic;
mod watch;
mod world;

pub mod verify;

mod carry;
mod myself;
mod stake;
pub mod stream;

mod argument;
mod layout;
mod region;

pub mod capture;
pub mod window;

pub mod collective;
pub mod kernel;
pub mod part;

#[cfg(test)]
#[path = "../../../tests/common/random.rs"]
mod random;
#[cfg(test)]
mod scarce;

pub use capture::{Graph, PairGraph};
pub use carry::Carry;
pub use cartesian::Cartesian;
pub use collective::{
    AllGather, AllReduce, AllToAll, Barrier, Broadcast, Choice, CountedAllToAll, Gather, Reduce,
    ReduceScatter, Scan, Scatter,
};
pub use element::{Arithmetic, Element, Reducible};
pub use error::{Error, Rejected, Result};
pub use layout::Layout;
pub use members::{Members, TeamOn};
pub use nic::{Chunks, Route, Throttle, WorldOptions};
pub use part::{Cells, CellsMut, IndexSet, Part};
pub use place::{On, OnHost, Place};
pub use region::Region;
pub use stream::{Stream, StreamOptions, UnboundStream};
pub use tidegate_hal::device::Priority;
pub use window::{AtomicWindow, In, Out, RangeWindow, SlotWindow, Window};
pub use world::{Team, World};

/// The names that the macros use. They use no others, because a program may replace `::core` by a crate of its own, and
/// may define macros, traits and constants with any name that has no path.
#[doc(hidden)]
pub mod __private {
    pub use crate::place::{Guard, Id, StreamsDoNotMix, brand};
    pub use std::option::Option::{None, Some};
    pub use std::{compile_error, concat, include_bytes, include_str, stringify};
    pub use tidegate_derive::named;
    pub use tidegate_hal::device::LaunchDevice;
}
