//! How the ranks of a job find each other.
//!
//! # Model
//!
//! This crate implements the contract in [`tidegate_hal::control`] twice:
//!
//! - [`local`]: ranks are threads of one process. It uses no sockets. It is for tests, and for programs of one process.
//! - [`TcpControl`]: ranks are processes, on one host or many. [`TcpControl::from_env`] reads the environment that a
//!   launcher has set ([`Config`] has the table). If `mpirun` or `srun` started this rank, it asks that launcher's
//!   store. Without a launcher, the process is a job of its own.
//!
//! ```
//! use tidegate_boot::TcpControl;
//! use tidegate_hal::control::Control;
//!
//! let control = TcpControl::from_env()?;
//! let all = control.exchange("hello", vec![control.rank() as u8])?;
//! assert_eq!(all.len(), control.size());
//! control.leave();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Failure
//!
//! Joining fails with a [`BootError`], which names the variable, the missing ranks, or the step. Later, the end of a
//! peer is an event, and ends the exchanges that need the peer. A caller that cannot prove that it knows the job's
//! secret is logged (`tracing`) and refused. It changes nothing for the job.
//!
//! Three things are *not* promised. Messages are authenticated, but not secret. A rank of the job is trusted not to
//! attack it. And a lost rank may still be running ([`TcpControl`] says when).

mod branch;
mod callers;
mod config;
mod desks;
mod door;
mod ends;
mod error;
mod events;
mod fields;
mod from_env;
#[cfg(test)]
mod fuzz;
mod handshake;
mod hop;
mod hub;
mod inherit;
mod launchers;
mod link;
mod local;
mod loopback;
mod mail;
mod node;
mod process;
mod reach;
mod ready;
mod rounds;
mod secret;
mod service;
mod set;
mod shared;
#[cfg(test)]
mod simulated;
#[doc(hidden)]
pub mod starter;
mod tally;
mod tcp;
mod teams;
mod variables;
mod votes;
mod wire;

pub use config::Config;
pub use error::BootError;
pub use launchers::Invitation;
pub use local::{LocalControl, local, local_on};
pub use tcp::TcpControl;
pub use variables::own_address;
