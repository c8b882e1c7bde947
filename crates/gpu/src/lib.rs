//! GPUs of any vendor as devices.
//!
//! # Model
//!
//! A [`GpuDevice`] is one GPU of the process. A vendor's crate brings its driver ([`driver::Driver`]), and types of its
//! own over those of this crate ([`vendor!`]). Here is everything that does not depend on the vendor:
//!
//! - *Memory for peers* is mapped by other processes. All other memory comes from an allocator in the order of a stream.
//! - *A batch* is one launch of the batch kernel (`kernels/batch.cu`), however many peers it has. Its arguments are
//!   fixed, so a recording can repeat it. There are two exceptions. Where processes share the GPU in turn, a batch is up
//!   to three launches with gates (`gates.rs`). Large puts go by copy engines beside the launch (`courier.rs`).
//! - *A recording* is a graph of the driver.
//!
//! The host only enqueues: nothing here polls, and there are no threads besides the caller's.
//!
//! # Why it does not deadlock
//!
//! A kernel that waits for a peer occupies its blocks and its hardware queue until the peer has come. [`gpu`] owns the
//! rules that keep this from blocking the job:
//!
//! - how many blocks may wait at a time, over all streams of the device, so that the work that they wait for finds room
//!   (`share.rs`; over all processes that use the device at the same time);
//! - how many streams there may be, given the number of hardware queues;
//! - which calls of the driver must not be made behind a wait (loading code, freeing some kinds of memory). They are
//!   made before any wait, or not at all.
//!
//! # Failure
//!
//! A missing library, symbol or device is [`DeviceError::Missing`](tidegate_hal::device::DeviceError), which names it.
//!
//! A wait whose word is poisoned fails its stream. From then on batches move nothing. Kernels of the user still run,
//! but nobody sees their data, since the region does not come back to the host.
//!
//! After an error that destroys the context (such as an illegal address in a user's kernel), every later call on the
//! stream reports a kernel's fault.

mod admit;
mod attendant;
mod block;
mod clock;
mod courier;
mod device;
pub mod driver;
mod followed;
mod gates;
pub mod gpu;
mod graph;
mod kernels;
mod last;
mod line;
mod lower;
mod module;
mod owners;
mod pinned;
mod place;
mod position;
mod quota;
mod reclaim;
mod recordings;
mod registers;
mod reports;
mod reserve;
mod share;
mod stamps;
mod stream;
mod strikes;
mod submit;
mod timing;
mod unroll;
mod vendor;

pub use block::GpuBlock;
pub use device::GpuDevice;
pub use driver::Keep;
pub use graph::GpuGraph;
pub use module::{GpuFunction, GpuModule};
pub use reclaim::StreamState;
pub use stream::{GpuEvent, GpuStream};
pub use timing::TimedEvent;

#[doc(hidden)]
pub use lower::layout;

/// What [`vendor!`] names.
#[doc(hidden)]
pub mod __private {
    pub use tidegate_hal as hal;
}
