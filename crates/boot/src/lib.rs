//! How the ranks of a job find each other.

mod config;
mod door;
mod error;
mod events;
mod handshake;
mod hub;
mod inherit;
pub mod launch;
mod link;
mod local;
mod node;
mod rounds;
mod secret;
mod service;
mod shared;
mod tcp;
mod wire;

pub use config::Config;
pub use error::BootError;
pub use local::{LocalControl, local};
pub use tcp::TcpControl;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, whatever happened to an earlier holder: no code here panics while it holds a lock half-way through a change.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
