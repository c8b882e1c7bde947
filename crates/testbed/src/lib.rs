//! Nodes on one machine: network namespaces, and a wire between them that may be slow, lossy, or cut.
//!
//! # Model
//!
//! A [`Bed`] has nodes on one switch. Each is a network namespace with one interface ([`INTERFACE`]) and one address
//! ([`Bed::address`]). [`Bed::enter`] starts programs in a node. Packets to a node over the switch are delayed, lost
//! and throttled according to the [`Shape`]. A node's link can be cut and mended ([`Bed::cut`], [`Bed::mend`]).
//!
//! | wire | what it is | when |
//! |---|---|---|
//! | [`Wire::Bridge`] | pairs of `veth` and a bridge, in a namespace of their own | nothing is shaped |
//! | [`Wire::Netem`] | the same, and `tc netem` at each port of the bridge | the kernel has `sch_netem` |
//! | [`Wire::Relay`] | a TAP device in each node, and a thread of this process that passes frames on | elsewhere, and where losses are to be the same again ([`Builder::seed`]) |
//!
//! If this process has the privileges of root, it makes the namespaces with those. Otherwise it makes them in a user
//! namespace, which needs none. There the user keeps its number, and programs have no privileges.
//!
//! Neighbours are entered once and for all, so a link never loses ARP packets. A cut link is silent: it causes no
//! errors except by the programs' own clocks.
//!
//! ```no_run
//! use tidegate_testbed::Bed;
//! use std::{process::Command, time::Duration};
//!
//! let bed = Bed::builder(2).delay(Duration::from_millis(1)).loss(0.01).build()?;
//! let mut command = Command::new("my-server");
//! command.arg(bed.address(1).to_string());
//! bed.enter(1, &mut command);
//! let server = command.spawn()?;
//! bed.cut(1)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Failure
//!
//! Nothing here has a name, so nothing can be left behind. A namespace exists as long as a descriptor of this process,
//! or a process in it; its devices go with it. However this process ends, the kernel cleans up when the last program in
//! the nodes has ended, too. So the next start has nothing to clean up.
//!
//! If something is missing (privileges, `iproute2`, devices of the kernel), a [`BedError`] names it.
//! [`BedError::is_missing`] tells that from other errors.

mod address;
mod bed;
mod error;
mod helper;
mod relay;
mod shape;
mod skip;
mod skipped;
mod space;
mod switch;
mod tap;

pub use address::{INTERFACE, MAX_NODES};
pub use bed::{Bed, Builder, Wire, WireChoice};
pub use error::BedError;
pub use relay::Traffic;
pub use shape::{Shape, parse_delay, parse_loss, parse_rate};
