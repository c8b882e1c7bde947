//! The host device: memory of this process or of a memfd, and streams that are threads.
//!
//! # Model
//!
//! A [`HostStream`] is a queue (`queue.rs`) and a thread that executes its items in order (`stream.rs`). An inline
//! stream has no thread: the submitting thread does the work itself. A work item is a batch, a kernel (a closure), an
//! event, or the replay of a recording (`graph.rs`); `executor.rs` goes through the items. The engine of
//! `tidegate-words` runs the batches (`runner.rs`), with the moves of `moves/`. Peers of the same node map each other's
//! memory by file descriptor (`block.rs`). Ranks that are threads share memory by reference. If there is a bus, it
//! reaches the memory that is not mapped (`far.rs`).
//!
//! # Failure
//!
//! After a poisoned wait or a panic in a kernel, a stream skips what follows, as the hal requires. A panic never
//! unwinds into the queue.

mod block;
mod device;
mod executor;
mod far;
mod faulting;
mod graph;
mod job;
mod mapping;
mod moves;
mod queue;
mod reclaim;
mod runner;
mod stamps;
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
