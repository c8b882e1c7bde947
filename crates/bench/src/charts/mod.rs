//! Pictures of what `scripts/gpu.sh` has measured, for documents.
//!
//! # Model
//!
//! [`Results`] is the `results.json` that the script leaves: the machine, all rows with the step that they are of, and
//! timelines. Several can be [joined](Results::join), since a machine may be lent for a part of the steps only.
//! [`draw`] makes the [`Chart`]s, each an SVG on white that stands alone, with the machine and the date in it:
//!
//! | file | shows |
//! |---|---|
//! | `exchange.svg` | the exchange alone, ours and others, on the stream and in a graph |
//! | `share.svg`, `share-compute.svg` | whole shares likewise |
//! | `growth-exchange.svg`, `growth-share.svg` | both by the number of GPUs |
//! | `neighbours.svg` | small messages to 1 to 26 neighbours |
//! | `pair-latency.svg`, `pair-bandwidth.svg` | two GPUs, by the size of a message |
//! | `timeline.svg` | what rank 0 does when, stream-triggered and host-synchronised |
//!
//! Failed rows are in no picture.
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
pub use results::{Entry, RESULTS, Recorded, Results};
