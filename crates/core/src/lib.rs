//! Regions, windows and typed epochs over streams.
//!
//! This crate knows no vendor: it is generic over a device of `tidegate-hal`. The facade `tidegate` re-exports it for the devices
//! that are built in.

mod barrier;
pub mod capture;
pub mod element;
pub mod error;
pub mod kernel;
mod layout;
mod meet;
mod message;
mod nic;
pub mod part;
mod place;
mod reduce;
mod region;
pub mod stream;
mod watch;
mod watched;
pub mod window;
mod world;

pub use barrier::Barrier;
pub use capture::{Carry, Graph, PairGraph};
pub use element::{Arithmetic, Element};
pub use error::{Error, Rejected, Result};
pub use layout::Layout;
pub use nic::{Chunks, Route, Throttle, WorldOptions};
pub use part::{Cells, CellsMut, IndexSet, Part};
pub use place::{On, OnHost, Place};
pub use reduce::AllReduce;
pub use region::Region;
pub use stream::{Stream, UnboundStream};
pub use tidegate_hal::device::Priority;
pub use window::Window;
pub use world::{StreamOptions, World};

#[doc(hidden)]
pub mod __private {
    pub use crate::place::{StreamsDoNotMix, brand};
    pub use generativity::{Guard, Id};
    pub use tidegate_hal::device::LaunchDevice;
}
