//! NVIDIA GPUs: the same names as [`host`](crate::host), and what only CUDA has.
//!
//! A program for GPUs differs from one for the host by its prelude and its kernels: compare `examples/ring.rs` with
//! `examples/ring_gpu.rs`. To write a program for both, put what differs into one file for each device, as
//! `examples/heat3d/host.rs` and `gpu.rs` do. The rest, `examples/heat3d/solver.rs`, uses only what both devices have:
//!
//! | on the host only | on both |
//! |---|---|
//! | `x[0]`, of a region at home with the host | [`to_vec`](crate::generic::Region::to_vec) of a region on its stream; `read` or `into_vec` of a region at home with the host |
//! | `x[0] = 1.0` | `write`, or `Region::from_vec` |
//! | [`Inbox::read`](crate::generic::Inbox::read), `host_mut` | a kernel that gets `inbox.view()` or `inbox.memory()`, and writes a region |
//! | `s.launch(move \|x: &mut [f64]\| …, &mut x)` | a method of the device's file: `kernels.fill(s, &mut x)` |
//!
//! Such a program also follows the rules that only GPUs have; on the host they do no harm. Set
//! [`waiting_streams`](crate::WorldOptions::waiting_streams) if more than two streams have epochs. Load code and record steps
//! before any stream waits. Pass kernels only numbers of a fixed size. Between nodes, put to slots and ranges only.
//!
//! ```no_run
//! use tidegate::cuda::prelude::*;
//!
//! # fn main() -> Result<()> {
//! let world = World::init()?; // an error says so if there is no driver or no GPU
//! stream!(let s = world.stream()?);
//! let x = Region::from_slice(&world, &[1.0, 2.0])?.on(&s)?;
//! println!("{:?}", x.to_vec(&s)?);
//! # Ok(())
//! # }
//! ```

use crate::devices;

#[doc(inline)]
pub use tidegate_cuda::{
    Cuda, CudaBlock, CudaStream, ENVIRONMENT, Keep, QUEUES, TimedEvent, gpu, interop,
};

/// [`Cuda`], by a name that the modules of all GPUs have. A program that uses it runs on another vendor's GPUs with
/// another prelude.
pub type Gpu = Cuda;

devices::names!(Cuda, CarryCuda, prelude {
    pub use super::{Cuda, Gpu};
    pub use crate::code;
    pub use crate::kernel::{self, Code, Module, Plain};
});
