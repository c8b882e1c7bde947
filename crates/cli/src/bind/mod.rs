//! `--bind`: which processors each rank may use, and which memory it prefers.
//!
//! # Model
//!
//! [`topology`] reads which processors and memory this process may use, [`devices`] where GPUs and NICs are, and
//! [`plan`] gives each rank its part. A rank gets it between fork and exec ([`apply`]), so that all its threads have it.
//! Everything is read below a root folder, which in tests is a made-up machine.
//!
//! # Failure
//!
//! If the machine cannot bind the ranks as asked for, that is a [`BindError`] before the first one starts. Whether the
//! kernel agrees, the launcher tries on a thread of its own.

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
