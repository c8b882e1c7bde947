//! CUDA devices.
//!
//! # Model
//!
//! A [`Cuda`] is one GPU, driven through its primary context. Memory for peers is virtual-memory allocations, handed
//! over as file descriptors, so that a peer's mapping keeps the memory alive whatever becomes of its owner; other
//! memory comes from a pool of the stream-ordered allocator. A stream is a `CUstream`; a batch is *one* launch of the
//! batch kernel (`kernels/batch.cu`), whatever the number of peers, with arguments that a recording can repeat (where processes
//! share the GPU without MPS, up to three, with gates: `gates.rs`; large puts go by copy engines beside it:
//! `courier.rs`); a recording is a CUDA graph. The host only enqueues: nothing here polls, and no thread runs beside the caller's.
//!
//! # What would deadlock, and does not
//!
//! A kernel that waits for a peer holds what it runs on until the peer has come. [`gpu`] owns the rules that keep this
//! from blocking the job: how many blocks may wait at a time, over all streams of the device (and, under MPS, of all
//! processes that use it: `share.rs`), so that what others wait for finds room; how many streams there may be for the
//! hardware's queues; which calls of the driver must not be made behind a wait (loading code, `cuMemFree`, `cuMemFreeHost`): they are made before any wait, or not at all.
//!
//! # Failure
//!
//! No library, symbol or device is [`DeviceError::Missing`](tidegate_hal::device::DeviceError), with what was looked
//! for. A wait whose word is poisoned fails its stream: batches move nothing from then on; kernels of the user still
//! run, on data that no one gets to see (the region does not come back to the host). An error that the context does not
//! survive (an illegal address in a user's kernel) is reported by every later call on the stream as a kernel's fault.

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
