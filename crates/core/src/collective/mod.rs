//! What all ranks do together on the stream.
//!
//! Each collective is a file here. It is made of a window by slot, or of an epoch's parts, and knows no device: so it runs,
//! is captured and replayed, and fails as windows do.

mod all_reduce;
mod barrier;

pub use all_reduce::AllReduce;
pub use barrier::Barrier;
