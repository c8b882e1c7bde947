//! `--bind`: the processors that each rank may use, and the memory that it prefers.
//!
//! # Model
//!
//! [`topology`] reads which processors and memory this process may use, and [`devices`] reads where GPUs and NICs are.
//! [`plan`] gives each rank its part. A rank is bound between fork and exec ([`apply`]), so that the binding holds for
//! all its threads. All files are read below a root folder. In tests this is a made-up machine.
//!
//! # Failure
//!
//! If the machine cannot bind the ranks, that is a [`BindError`] before the first rank starts. The launcher tries each
//! binding on a thread of its own, to see whether the kernel agrees.

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
pub(super) use numbers::NumberSet;
pub use plan::Bind;
pub(super) use plan::{Binding, plan};
pub(super) use topology::Topology;
