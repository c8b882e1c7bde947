//! Collectives: operations of all ranks together, on the stream.
//!
//! # Model
//!
//! A collective is opened by all ranks together, with a name and a shape: a number of elements, and perhaps a root or
//! an operation. Then it is called any number of times. A call enqueues, and the host does not wait. Calls can be
//! captured and replayed. The regions of a call may differ from those of the call before, but have the lengths of the
//! shape. (`once` opens a collective for one call. So the host waits until all ranks have come, and a capture refuses
//! it.)
//!
//! | collective | brings |
//! |---|---|
//! | [`Barrier`] | nothing: later work waits for earlier work of all ranks |
//! | [`Broadcast`] | the vector of one rank to all |
//! | [`Gather`], [`Scatter`] | blocks of all ranks to one rank, and of one rank to all |
//! | [`AllGather`] | blocks of all ranks to all |
//! | [`AllToAll`] | a block of each rank to each rank |
//! | [`CountedAllToAll`] | rows of each rank to each rank, as many as a kernel says |
//! | [`Reduce`], [`AllReduce`] | the sum of all vectors to one rank, or to all |
//! | [`ReduceScatter`] | a block of the sum to each rank |
//! | [`Scan`] | the sum of the vectors of the ranks up to each rank |
//!
//! All ranks must make the same calls in the same order. If ranks call two collectives in different orders, or if a call
//! was refused on only one rank, they wait for each other. Like all long waits this is reported, and a limit can end it
//! (`fail_after`).
//!
//! **Reductions go in the order of the ranks**: `op(…op(op(x0, x1), x2)…)`, for each element. This does not depend on the
//! length, the algorithm, the device, or a [`Choice`]. So a result has the same bits on all ranks and in every run. Floats
//! are rounded after each step.
//!
//! A [`Choice`] says where a collective changes from one algorithm to another, and how long its messages are.
//!
//! Inside, a collective is a window by slot with two buffers, and a call consists of epochs. So it runs on every device
//! and over every NIC that windows do. A rank has room for two pieces from each rank that sends to it,
//! or for four if the algorithm has two phases. Between streams of the host it has room for up to 32 short ones, so a
//! rank that only sends runs ahead of the others.
//!
//! The first call for certain regions prepares its batches. The last eight such sets are kept.
//!
//! # Failure
//!
//! A collective fails like a window with its name: see [the failures of windows](crate::window#failure). If a rank is lost
//! in the middle of a call, the waits of the others end with an error that names it. What is in the output then is
//! unspecified.

mod algorithms;
mod all_gather;
mod all_reduce;
mod all_to_all;
mod barrier;
mod broadcast;
mod choice;
mod counted;
mod executor;
mod gather;
mod handle;
mod nodes;
mod reduce;
mod reduce_scatter;
mod reduction;
mod scan;
mod scatter;
mod schedule;
#[cfg(test)]
mod simulated;
#[cfg(test)]
mod tests;

pub use all_gather::AllGather;
pub use all_reduce::AllReduce;
pub use all_to_all::AllToAll;
pub use barrier::Barrier;
pub use broadcast::Broadcast;
pub use choice::Choice;
pub use counted::CountedAllToAll;
pub use gather::Gather;
pub use reduce::Reduce;
pub use reduce_scatter::ReduceScatter;
pub use scan::Scan;
pub use scatter::Scatter;
