//! The types as they are defined: generic over the device.
//!
//! The modules of the devices ([`host`](crate::host), [`cuda`](crate::cuda), `hip`) define aliases of these types with the
//! device filled in. Code for any device uses the types of this module. Their device parameter comes before the discipline of the window,
//! which defaults to [`BySlot`](crate::BySlot).
//!
//! ```
//! use tidegate::generic::{Device, Inbox, On, Outbox, Region, Stream};
//! use tidegate::{Out, Result, exchange};
//!
//! /// What a solver keeps between its steps, on any device.
//! #[derive(tidegate::host::Carry)]
//! struct Halo<'s, D: Device> {
//!     x: Region<f64, On<'s, D>>,
//!     inbox: Inbox<'s, f64, D>,
//!     outbox: Outbox<'s, f64, D>,
//! }
//!
//! fn step<'s, D: Device>(s: &Stream<'s, D>, to: Out<f64>, mut h: Halo<'s, D>) -> Result<Halo<'s, D>> {
//!     let mut epoch = h.outbox.start();
//!     epoch.put(&h.x, to)?;
//!     (h.inbox, h.outbox) = exchange(s, h.inbox, epoch)?;
//!     Ok(h)
//! }
//!
//! use tidegate::host::prelude::{Init, SlotWindow, World, stream};
//! # fn main() -> Result<()> {
//! let world = World::init()?;
//! stream!(let s = world.stream()?);
//! let mut window = SlotWindow::new("halo");
//! let (from, to) = (window.slot_from(0, 0, 4), window.slot_to(0, 0));
//! let (inbox, outbox) = window.open(&s)?;
//! let x = Region::from_slice(&world, &[7.0; 4])?.on(&s)?;
//! let mut halo = step(&s, to, Halo { x, inbox, outbox })?;
//! assert_eq!(halo.inbox.read(&s)?.slot(from), [7.0; 4]);
//! # Ok(())
//! # }
//! ```

#[doc(inline)]
pub use tidegate_core::capture::{Graph, PairGraph};
#[doc(inline)]
pub use tidegate_core::window::{
    Access, Exposed, Inbox, InboxView, Last, LastOfAll, LentInbox, LentOutbox, Memory, MemoryMut,
    Opened, OpenedSlots, Outbox, Tested,
};
#[doc(inline)]
pub use tidegate_core::{
    AllGather, AllReduce, AllToAll, Barrier, Broadcast, Carry, CountedAllToAll, Gather, Layout, On,
    OnHost, Part, Place, Reduce, ReduceScatter, Region, Scan, Scatter, Stream, Team, TeamOn, World,
};
#[doc(inline)]
pub use tidegate_hal::device::{ClosureDevice, Device, HostAccess, LaunchDevice};
