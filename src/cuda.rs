//! NVIDIA GPUs: the same names as [`host`](crate::host), and what only CUDA has.
//!
//! A program for GPUs differs from one for the host by its prelude and its kernels: `examples/ring.rs` and
//! `examples/ring_cuda.rs`.
//!
//! ```no_run
//! use tidegate::cuda::prelude::*;
//!
//! # fn main() -> Result<()> {
//! let world = World::init()?; // an error says so if there is no driver or no GPU
//! stream!(let s = world.stream()?);
//! let x = Region::from_slice(&world, &[1.0, 2.0])?.on(&s)?;
//! let mut back = [0.0; 2];
//! x.into_host(&s)?.read(0, &mut back)?;
//! # Ok(())
//! # }
//! ```

use crate::devices;

#[doc(inline)]
pub use tidegate_cuda::*;

devices::names!(Cuda, CarryCuda, prelude {
    pub use super::Cuda;
    pub use crate::kernel::{self, Module, Plain};
});
