//! Pictures of the results of `scripts/gpu.sh`, for documents.
//!
//! # Model
//!
//! [`Results`] is the `results.json` that the script leaves: the machine, all rows with their steps, and timelines. Several
//! can be [joined](Results::join), since a machine may have time for a part of the steps only. [`draw`] makes the
//! [`Chart`]s, each an SVG on white, with the machine and the date:
//!
//! | file | shows |
//! |---|---|
//! | `exchange.svg` | the exchange alone, ours and others, on the stream and in a graph |
//! | `share.svg`, `share-compute.svg` | whole shares, in the same way |
//! | `growth-exchange.svg`, `growth-share.svg` | both by the number of GPUs |
//! | `neighbours.svg` | small messages to 1 to 26 neighbours |
//! | `pair-latency.svg`, `pair-bandwidth.svg` | two GPUs, by the size of a message |
//! | `timeline.svg` | the operations of rank 0 over time, stream-triggered and host-synchronised |
//!
//! Failed rows are in no picture. [`large_jobs`] draws what `benches/growth.rs` measures.
//!
//! # Failures
//!
//! [`FileError`](crate::results::files::FileError) for a file that cannot be read or written. A picture whose rows are missing is not drawn, and
//! [`Missing`] says which rows those are.

mod all;
mod bars;
pub(crate) mod between;
mod gantt;
mod lines;
mod pick;
mod results;
#[cfg(test)]
mod tests;

pub use all::{Chart, Missing, draw, run, throttling};
pub use lines::{Growth, large_jobs};
pub use results::{Entry, RESULTS, Recorded, Results};
