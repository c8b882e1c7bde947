//! The CUDA driver API, from `libcuda.so.1`.
//!
//! # Model
//!
//! [`Driver::load`] opens the library that the *kernel driver* brings. No toolkit is needed, neither to build nor to
//! run. It fills a table of function pointers, each looked up by its exact name, version suffix included. The methods
//! of [`Driver`] have the names of the functions without `cu`, in snake case. Each method's documentation names its
//! function, and what NVIDIA documents for that function holds here too. Sizes are in bytes unless the text says
//! otherwise.
//!
//! Handles are plain values: copying one copies no object, and dropping one destroys nothing. So every method that
//! takes a handle is `unsafe`, and its first condition is that the handle is *alive*: made by this driver, and not yet
//! destroyed. Devices are ordinals, which the driver checks. Methods that take only those are safe, and so are methods
//! that make something new. "Current" refers to the calling thread.
//!
//! Structures and enumerations for input come from `cudarc`'s bindings ([`sys`]). Its functions are never called: they
//! panic if a symbol is missing, and they return an enumeration, for which an unknown code would be undefined
//! behaviour. Enumerations that come *out* of the driver are read as integers.
//!
//! Loading sets nothing in the environment, and does not initialise the driver. Variables that the driver reads at its
//! start (`CUDA_DEVICE_MAX_CONNECTIONS`) can be set until [`Driver::init`].
//!
//! # Failure
//!
//! - [`LoadError`]: no library, one that lacks a function, one that is too old, or a stub.
//! - [`CudaError`]: the call, the code as a number, and the driver's words for it. A function that only newer drivers
//!   have may be missing. Then only its call fails ([`CudaError::is_missing`]).
//! - "Not ready" is an answer, not an error: the queries return `Ok(false)`.
//! - The next call, whatever it is, reports errors of kernels that ran earlier. Those that make every later call fail
//!   have a kind of their own ([`CudaError::kind`]).

mod context;
mod device;
mod error;
mod graph;
mod handle;
mod launch;
mod load;
mod memop;
mod memory;
mod module;
mod pool;
mod stream;
mod table;
mod vmm;

/// `cudarc`'s bindings, for their types only: see the [module's documentation](self).
pub use cudarc::driver::sys;

/// What can be asked of a pair of devices (`CUdevice_P2PAttribute`).
pub use cudarc::driver::sys::CUdevice_P2PAttribute as P2pAttribute;
/// What can be asked of a device (`CUdevice_attribute`).
pub use cudarc::driver::sys::CUdevice_attribute as DeviceAttribute;
/// What can be asked of an address (`CUpointer_attribute`).
pub use cudarc::driver::sys::CUpointer_attribute as PointerAttribute;

pub use context::ContextFlags;
pub use error::{CudaError, Result};
pub use graph::{Dependency, Edge, GraphFlags, KernelNode};
pub use handle::{
    Context, Device, DevicePtr, Event, Function, Graph, GraphExec, GraphNode, MemHandle, Module,
    Pool, Stream,
};
pub use launch::{HostFn, LaunchConfig};
pub use load::{Driver, LIBRARIES, LoadError, MIN_VERSION};
pub use memop::MemOp;
pub use memory::{HostFlags, RegisterFlags};
pub use pool::PoolProps;
pub use stream::{CaptureInfo, CaptureStatus, EventFlags};
pub use table::{OPTIONAL, REQUIRED};
pub use vmm::{AccessDesc, AllocationProp};
