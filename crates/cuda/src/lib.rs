//! CUDA devices: the driver of NVIDIA's GPUs for `tidegate-gpu`, and what only CUDA has.
//!
//! # Model
//!
//! A [`Cuda`] is one GPU, used through its primary context. `tidegate-gpu` has everything that does not depend on the
//! vendor. What it needs of a vendor is in this crate:
//!
//! - `driver.rs`: the calls of the driver. Memory for peers is made of virtual-memory allocations, which peers map by
//!   file descriptors. A peer's mapping keeps the memory alive after its owner has gone. All other memory comes from a
//!   pool of the stream-ordered allocator.
//! - `start.rs`: a GPU's limits, from its attributes, from MPS, and from the environment.
//! - `code.rs`: a check that code is complete before the driver gets it.
//! - [`interop`]: streams and memory of other CUDA libraries.
//!
//! # Failure
//!
//! A missing library, symbol or device is [`DeviceError::Missing`](tidegate_hal::device::DeviceError), which names it.

mod code;
mod driver;
mod here;
pub mod interop;
#[cfg(test)]
mod ptx;
mod start;

pub use here::{Here, HereGpu, here};
pub use start::{ENVIRONMENT, QUEUES};
pub use tidegate_gpu::{
    GpuEvent as CudaEvent, GpuFunction as CudaFunction, GpuGraph as CudaGraph,
    GpuModule as CudaModule, Keep, StreamState, TimedEvent, gpu,
};

tidegate_gpu::vendor! {
    &start::CUDA, "cuda";

    /// A GPU as a device.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::cuda::prelude::*;
    ///
    /// fn describe(world: &World) {
    ///     let gpu = world.device();
    ///     println!("rank {} has GPU {}, {}", world.rank(), gpu.ordinal(), gpu.name());
    /// }
    /// ```
    device Cuda {
        /// How many GPUs the driver lists.
        ///
        /// # Errors
        ///
        /// [`DeviceError::Missing`](tidegate_hal::device::DeviceError) if there is no driver.
        ///
        /// # Examples
        ///
        /// ```
        /// use tidegate::cuda::Cuda;
        ///
        /// match Cuda::count() {
        ///     Ok(gpus) => println!("{gpus} GPUs"),
        ///     Err(error) => println!("{error}"), // there is no driver
        /// }
        /// ```
        count;
    }

    /// A block of memory of the device, or a mapping of a peer's block.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::cuda::{CudaBlock, prelude::*};
    /// use tidegate::hal::memory::Block;
    ///
    /// /// Where a region lies, for a library that takes addresses.
    /// fn address(x: Region<f64>) -> Result<(CudaBlock, *mut u8)> {
    ///     let block = x.into_block()?;
    ///     let address = block.base().0;
    ///     Ok((block, address))
    /// }
    /// ```
    block CudaBlock;

    /// A stream of a GPU.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::cuda::{CudaStream, prelude::*};
    /// # fn transform<'s>(s: &Stream<'s>, x: &mut Region<f32, On<'s>>, fft: fn(*mut u8, *mut f32)) -> Result<()> {
    /// // SAFETY: `fft` enqueues on that stream, keeps to `x`, and ends; the first parameter of a slice is its address.
    /// let kernel = unsafe { tidegate::kernel::foreign(|stream: &CudaStream, parameters: &tidegate::kernel::Parameters| {
    ///     let x = parameters.addresses().next().expect("it is there").cast::<*mut f32>().read();
    ///     Ok(fft(stream.as_raw().cast(), x))
    /// }) };
    /// s.launch(kernel, (x,))
    /// # }
    /// ```
    stream CudaStream {
        /// Enqueues an event that records a time.
        ///
        /// # Errors
        ///
        /// If the driver refuses.
        ///
        /// # Examples
        ///
        /// ```
        /// use std::sync::Arc;
        /// use tidegate::cuda::{Cuda, CudaStream, TimedEvent, prelude::*};
        /// use tidegate::kernel::Parameters;
        /// use tidegate::kernel::foreign;
        ///
        /// /// Enqueues an event: the device's stream is had by a foreign kernel.
        /// fn event<'s>(s: &Stream<'s>, x: &Region<f64, On<'s>>) -> Result<Option<Arc<TimedEvent>>> {
        ///     let mut event = None;
        ///     let record = |stream: &CudaStream, _: &Parameters| {
        ///         event = Some(stream.timed_event()?);
        ///         Ok(())
        ///     };
        ///     // SAFETY: an event accesses no memory.
        ///     s.launch(unsafe { foreign(record) }, (x,))?;
        ///     Ok(event)
        /// }
        /// ```
        timed_event;
    }
}

impl Cuda {
    /// The GPU's compute capability: 9 and 0 for a Hopper GPU.
    pub fn compute_capability(&self) -> (u32, u32) {
        self.0.driver::<driver::CudaDriver>().capability
    }

    /// How many hardware queues the process has. Streams that wait need one each.
    pub fn queues(&self) -> usize {
        self.0.limits().queues
    }

    /// Whether the process uses the GPU by MPS. Then kernels of several processes run at the same time, and not in
    /// turn.
    pub fn mps(&self) -> bool {
        self.0.limits().sharing == tidegate_gpu::driver::Sharing::Together
    }
}
