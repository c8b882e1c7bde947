//! Nodes on one machine: network namespaces, and a wire between them that may be slow, lossy, or cut.
//!
//! # Model
//!
//! A [`Bed`] has nodes, each a network namespace with one interface ([`INTERFACE`]) and one address ([`Bed::address`]),
//! on one switch. Programs are started in a node with [`Bed::enter`]. What goes to a node over the switch is held up,
//! lost and throttled as the [`Shape`] says; a node's link can be cut and mended ([`Bed::cut`], [`Bed::mend`]).
//!
//! | wire | what it is | when |
//! |---|---|---|
//! | [`Wire::Bridge`] | pairs of `veth` and a bridge, in a namespace of their own | nothing is shaped |
//! | [`Wire::Netem`] | the same, and `tc netem` at each port of the bridge | the kernel has `sch_netem` |
//! | [`Wire::Relay`] | a TAP device in each node, and a thread of this process that passes frames on | elsewhere, and where losses are to be the same again ([`Builder::seed`]) |
//!
//! Namespaces are made with the privileges of root where this process has them, else in a user namespace, which
//! needs none. There the user keeps the own number; programs have no privileges.
//!
//! Neighbours are entered once and for all, so nothing of what a link loses is an ARP packet, and a cut link is
//! silent: no error comes of it, but what the programs' own clocks say.
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
//! Nothing here has a name, so nothing can be left: the namespaces exist while a descriptor of this process, or a
//! process in them, does; with them go their devices. However this process ends, the kernel cleans up when the last
//! program in the nodes has ended too. So there is nothing to sweep at the next start, either.
//!
//! What is missing (privileges, `iproute2`, devices of the kernel) is a [`BedError`] that names it;
//! [`BedError::is_missing`] tells it from what went wrong.

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
