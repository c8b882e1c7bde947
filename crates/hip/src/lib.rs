//! HIP devices: the driver of AMD's GPUs for `tidegate-gpu`, and what only HIP has.
//!
//! **No AMD GPU has run this yet.** What was compared with AMD's headers, documents and sources, and with an older
//! library, is in the tests.
//!
//! # Model
//!
//! A [`Hip`] is one GPU. `tidegate-gpu` has everything that does not depend on the vendor. What it needs of a vendor is
//! in this crate:
//!
//! - `driver.rs`: the calls of the HIP runtime. Each stream has a hardware queue of its own. Memory of the process
//!   comes from a pool of the stream-ordered allocator.
//! - `peers.rs`, `life.rs`: memory for peers. Where the runtime can, a peer's mapping owns the memory, as on CUDA.
//!   Elsewhere a *life file* tells the owner whether a peer still has it mapped, and it is not freed before.
//! - `start.rs`: a GPU's limits.
//! - `compile.rs`: code for other architectures, by AMD's compiler at run time.
//! - `code.rs`: the code object for a GPU, a check that it is complete, and the parameters of its kernels.
//! - [`interop`]: streams and memory of other HIP libraries.
//!
//! # Failure
//!
//! A missing library, symbol or device is [`DeviceError::Missing`](tidegate_hal::device::DeviceError), which names it.
//! So is a library that is too old. An architecture for which there is neither code nor a compiler is
//! [`DeviceError::Unsupported`](tidegate_hal::device::DeviceError).

mod code;
mod compile;
mod driver;
pub mod interop;
mod life;
mod peers;
#[cfg(test)]
#[path = "../../../tests/common/skipped.rs"]
mod skipped;
mod start;

pub use tidegate_gpu::{
    GpuEvent as HipEvent, GpuFunction as HipFunction, GpuGraph as HipGraph, GpuModule as HipModule,
    Keep, StreamState, TimedEvent, gpu,
};

tidegate_gpu::vendor! {
    &start::HIP, "hip";

    /// A GPU as a device.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::hip::prelude::*;
    ///
    /// fn describe(world: &World) {
    ///     let gpu = world.device();
    ///     println!("rank {} has GPU {}, {}", world.rank(), gpu.ordinal(), gpu.name());
    /// }
    /// ```
    device Hip {
        /// How many GPUs the runtime lists.
        ///
        /// # Errors
        ///
        /// [`DeviceError::Missing`](tidegate_hal::device::DeviceError) if there is no runtime, or no GPU.
        ///
        /// # Examples
        ///
        /// ```
        /// use tidegate::hip::Hip;
        ///
        /// match Hip::count() {
        ///     Ok(gpus) => println!("{gpus} GPUs"),
        ///     Err(error) => println!("{error}"), // there is no runtime
        /// }
        /// ```
        count;
    }

    /// A block of memory of the device, or a mapping of a peer's block.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::hip::{HipBlock, prelude::*};
    /// use tidegate::hal::memory::Block;
    ///
    /// /// Where a region lies, for a library that takes addresses.
    /// fn address(x: Region<f64>) -> Result<(HipBlock, *mut u8)> {
    ///     let block = x.into_block()?;
    ///     let address = block.base().0;
    ///     Ok((block, address))
    /// }
    /// ```
    block HipBlock;

    /// A stream of a GPU.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::hip::{HipStream, prelude::*};
    /// # fn transform<'s>(s: &Stream<'s>, x: &mut Region<f32, On<'s>>, fft: fn(*mut u8, *mut f32)) -> Result<()> {
    /// // SAFETY: `fft` enqueues on that stream, keeps to `x`, and ends; the first parameter of a slice is its address.
    /// let kernel = unsafe { tidegate::kernel::foreign(|stream: &HipStream, parameters: &tidegate::kernel::Parameters| {
    ///     let x = parameters.addresses().next().expect("it is there").cast::<*mut f32>().read();
    ///     Ok(fft(stream.as_raw().cast(), x))
    /// }) };
    /// s.launch(kernel, (x,))
    /// # }
    /// ```
    stream HipStream {
        /// Enqueues an event that records a time.
        ///
        /// # Errors
        ///
        /// If the runtime refuses.
        ///
        /// # Examples
        ///
        /// ```
        /// use std::sync::Arc;
        /// use tidegate::hip::{Hip, HipStream, TimedEvent, prelude::*};
        /// use tidegate::kernel::Parameters;
        /// use tidegate::kernel::foreign;
        ///
        /// /// Enqueues an event: the device's stream is had by a foreign kernel.
        /// fn event<'s>(s: &Stream<'s>, x: &Region<f64, On<'s>>) -> Result<Option<Arc<TimedEvent>>> {
        ///     let mut event = None;
        ///     let record = |stream: &HipStream, _: &Parameters| {
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

impl Hip {
    /// The GPU's architecture, with its features: `gfx942:sramecc+:xnack-`. Code objects are made for one of these.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::hip::prelude::*;
    ///
    /// fn describe(world: &World) {
    ///     println!("rank {} has a GPU of {}", world.rank(), world.device().architecture());
    /// }
    /// ```
    pub fn architecture(&self) -> &'static str {
        &self.0.driver::<driver::HipDriver>().architecture
    }
}
