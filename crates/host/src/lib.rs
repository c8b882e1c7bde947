//! The host device: memory of this process or of a memfd, and streams that are threads.
//!
//! # Model
//!
//! A [`HostStream`] is a queue (`queue.rs`) and a thread that executes it in order (`stream.rs`); made inline, it is only the
//! executor, and the submitting thread does the work itself. Work is a batch, a kernel (a closure), an event, or the
//! replay of a recording (`graph.rs`). Batches are run by the engine of `tidegate-words`, with the moves of `moves/`.
//! Peers of the node map each other's memory by file descriptor (`block.rs`); ranks that are threads share it by
//! reference; and where there is a bus, what is not mapped is reached by that (`far.rs`).
//!
//! # Failure
//!
//! A wait that is poisoned or a kernel that panics makes the stream pass over what follows, as the hal says. A
//! panic never unwinds into the queue.

mod block;
mod device;
mod executor;
mod far;
mod graph;
mod job;
mod mapping;
mod moves;
mod queue;
mod reclaim;
#[cfg(test)]
mod standing;
mod stream;
#[cfg(test)]
mod tests;

pub use block::HostBlock;
pub use device::Host;
pub use graph::HostGraph;
pub use moves::{HostMover, copy_row, for_each_run};
pub use reclaim::StreamState;
pub use stream::{HostEvent, HostStream};
