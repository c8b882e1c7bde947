//! NVIDIA GPUs: the same names as [`host`](crate::host), and what only CUDA has.
//!
//! A program for GPUs differs from one for the host by its prelude and its kernels: `examples/ring.rs` and
//! `examples/ring_cuda.rs`. What must differ can stand in one file for each device, and all else in one text for both:
//! `examples/heat3d/solver.rs`, with `host.rs` and `cuda.rs` beside it. Such a text keeps to what both devices have:
//!
//! | the host alone | both |
//! |---|---|
//! | `x[0]`, of a region that is with the host | [`to_vec`](crate::generic::Region::to_vec) of one on its stream; `read`, `into_vec` of one with the host |
//! | `x[0] = 1.0` | `write`, or `Region::from_vec` |
//! | [`Inbox::read`](crate::generic::Inbox::read), `host_mut` | a kernel that gets `inbox.view()` or `inbox.memory()`, and writes a region |
//! | `s.launch(move \|x: &mut [f64]\| …, &mut x)` | a method of the device's file: `kernels.fill(s, &mut x)` |
//!
//! And what only GPUs ask for does no harm on the host: [`waiting_streams`](crate::WorldOptions::waiting_streams) where
//! more than two streams have epochs, code that is loaded and steps that are recorded before any stream waits, numbers of
//! a fixed size for kernels, and windows by slot where ranks are on several nodes.
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
pub use tidegate_cuda::{Cuda, CudaBlock, CudaStream, ENVIRONMENT, Keep, TimedEvent, gpu, interop};

devices::names!(Cuda, CarryCuda, prelude {
    pub use super::Cuda;
    pub use crate::kernel::{self, Module, Plain};
});
