//! CUDA devices.
//!
//! # Model
//!
//! A [`Cuda`] is one GPU, used through its primary context.
//!
//! - *Memory for peers* is made of virtual-memory allocations, which peers map by file descriptors. A peer's mapping
//!   keeps the memory alive after its owner has gone. All other memory comes from a pool of the stream-ordered
//!   allocator.
//! - *A stream* is a `CUstream`.
//! - *A batch* is one launch of the batch kernel (`kernels/batch.cu`), however many peers it has. Its arguments are
//!   fixed, so a recording can repeat it. There are two exceptions. Where processes share the GPU without MPS, a batch
//!   is up to three launches with gates (`gates.rs`). Large puts go by copy engines beside the launch (`courier.rs`).
//! - *A recording* is a CUDA graph.
//!
//! The host only enqueues: nothing here polls, and there are no threads besides the caller's.
//!
//! # Why it does not deadlock
//!
//! A kernel that waits for a peer occupies its blocks and its hardware queue until the peer has come. [`gpu`] owns the
//! rules that keep this from blocking the job:
//!
//! - how many blocks may wait at a time, over all streams of the device, so that the work that they wait for finds room
//!   (`share.rs`; under MPS, over all processes that use the device);
//! - how many streams there may be, given the number of hardware queues;
//! - which calls of the driver must not be made behind a wait (loading code, `cuMemFree`, `cuMemFreeHost`). They are
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

mod block;
mod code;
mod courier;
mod device;
mod error;
mod followed;
mod gates;
pub mod gpu;
mod graph;
pub mod interop;
mod last;
mod line;
mod lower;
mod module;
mod pinned;
mod place;
mod reclaim;
mod registers;
mod reports;
mod reserve;
mod share;
mod stream;
mod submit;
mod timing;
mod unroll;

pub use block::CudaBlock;
pub use device::Cuda;
pub use gpu::ENVIRONMENT;
pub use graph::CudaGraph;

pub use module::{CudaFunction, CudaModule};
pub use reclaim::Shared;
pub use stream::{CudaEvent, CudaStream, Keep};
pub use timing::TimedEvent;
