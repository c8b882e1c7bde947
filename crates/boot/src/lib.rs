//! How the ranks of a job find each other.
//!
//! # Model
//!
//! Everything here implements the contract in [`tidegate_hal::control`]:
//!
//! - [`local`]: ranks are threads of one process. No sockets; for tests, and for programs that want no processes.
//! - [`TcpControl`]: ranks are processes, on one host or many. [`TcpControl::from_env`] reads what a starter has put
//!   into the environment ([`Config`] has the table), and asks the store of a launcher (`mpirun`, `srun`) where it is
//!   that who started this rank; without any, the process is a job of its own.
//!
//! ```
//! use tidegate_boot::TcpControl;
//! use tidegate_hal::control::{Control, Packet};
//!
//! let control = TcpControl::from_env()?;
//! let all = control.exchange("hello", Packet { bytes: vec![control.rank() as u8], handles: vec![] })?;
//! assert_eq!(all.len(), control.size());
//! control.leave();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Failure
//!
//! Joining fails with a [`BootError`] that names the variable, the missing ranks, or the step. After that, ends of peers are
//! events, and end the exchanges that miss them. Whoever cannot prove to know the job's secret is logged
//! (`tracing`) and refused, and changes nothing for the job.
//!
//! What is *not* promised: messages are authenticated, not secret; a rank of the job is trusted not to attack it;
//! and a lost rank may still be running ([`TcpControl`] says when).

mod config;
mod door;
mod error;
mod events;
mod from_env;
#[doc(hidden)]
pub mod fuzz;
mod handshake;
mod hub;
mod inherit;
mod launchers;
mod link;
mod local;
mod loopback;
mod node;
mod process;
mod reach;
mod rounds;
mod secret;
mod service;
mod shared;
#[doc(hidden)]
pub mod starter;
mod tcp;
mod variables;
mod wire;

pub use config::Config;
pub use error::BootError;
pub use launchers::Invitation;
pub use local::{LocalControl, local};
pub use tcp::TcpControl;
pub use variables::own_address;
