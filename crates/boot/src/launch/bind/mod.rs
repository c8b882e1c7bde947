//! `--bind`: which processors each rank may use, and which memory it prefers.
//!
//! # Model
//!
//! [`topology`] reads what the machine has and what this process may use of it, [`devices`] where GPUs and NICs are, and
//! [`plan`] gives each rank its part. A rank gets it between fork and exec ([`apply`]), so that all its threads have it.
//! Everything is read below a root folder, which in tests is a made-up machine.
//!
//! # Failure
//!
//! What the machine cannot give is a [`BindError`] before the first rank starts: each part is tried on a thread of the
//! launcher first.

mod apply;
mod devices;
mod error;
mod numbers;
mod plan;
#[cfg(test)]
mod tests;
mod topology;

pub(super) use apply::Masks;
pub use error::BindError;
pub use plan::Bind;
pub(super) use plan::{Binding, plan};
