//! AMD GPUs: the same names as [`host`](crate::host), and what only HIP has. **No AMD GPU has run it yet.**
//!
//! A program for AMD's GPUs differs from one for NVIDIA's by its prelude: compare the first lines of
//! `examples/ring_gpu.rs`. Its [`Code`](crate::kernel::Code) has code objects: one for each architecture
//! (`hipcc --genco`), or a bundle of them. For other architectures AMD's compiler makes one of the source at run time.
//! One process of a job uses each GPU. Other libraries of the process must not use HIP's null stream, which would wait
//! for the streams here.
//! [`guide::gpus`](crate::guide::gpus) says the rest.
//!
//! ```no_run
//! use tidegate::hip::prelude::*;
//!
//! # fn main() -> Result<()> {
//! let world = World::init()?; // an error says so if there is no runtime or no GPU
//! stream!(let s = world.stream()?);
//! let x = Region::from_slice(&world, &[1.0, 2.0])?.on(&s)?;
//! println!("{:?}", x.to_vec(&s)?);
//! # Ok(())
//! # }
//! ```

use crate::devices;

#[doc(inline)]
pub use tidegate_hip::{Hip, HipBlock, HipStream, Keep, TimedEvent, gpu, interop};

/// [`Hip`], by a name that the modules of all GPUs have. A program that uses it runs on another vendor's GPUs with
/// another prelude.
pub type Gpu = Hip;

devices::names!(Hip, CarryHip, prelude {
    pub use super::{Hip, Gpu};
    pub use crate::code;
    pub use crate::kernel::{self, Code, Module, Plain};
});
