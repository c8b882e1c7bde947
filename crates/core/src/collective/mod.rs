//! Operations of all ranks together, on the stream.
//!
//! Each collective is a file here. It consists of a window by slot, or of parts of an epoch, and knows no device. So it
//! runs, is captured and replayed, and fails like a window.

mod all_reduce;
mod barrier;

pub use all_reduce::AllReduce;
pub use barrier::Barrier;
