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
//! - `code.rs`, `msgpack.rs`: the code object for a GPU, a check that it is complete, and the parameters of its kernels.
//! - [`interop`]: streams and memory of other HIP libraries.
//!
//! # Failure
//!
//! A missing library, symbol or device is [`DeviceError::Missing`](tidegate_hal::device::DeviceError), which names it.
//! So is a library that is too old. An architecture for which there is no code is
//! [`DeviceError::Unsupported`](tidegate_hal::device::DeviceError).

mod code;
mod driver;
pub mod interop;
mod life;
mod msgpack;
mod peers;
#[cfg(test)]
#[path = "../../../tests/common/skipped.rs"]
mod skipped;
mod start;

pub use tidegate_gpu::{
    GpuEvent as HipEvent, GpuFunction as HipFunction, GpuGraph as HipGraph, GpuModule as HipModule,
    Keep, StreamState, TimedEvent, gpu,
};

use std::sync::Arc;

use tidegate_hal::device::DeviceError;

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
    device Hip;

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
    stream HipStream;
}

impl Hip {
    /// How many GPUs the runtime lists.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Missing`] if there is no runtime, or no GPU.
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
    pub fn count() -> Result<usize, DeviceError> {
        (start::HIP.count)()
    }

    /// The GPU's name, as the runtime gives it.
    pub fn name(&self) -> &str {
        &self.0.limits().name
    }

    /// The GPU's number among the devices that the process may see.
    pub fn ordinal(&self) -> usize {
        self.0.limits().ordinal
    }

    /// The GPU's UUID. If it has none, these bytes say where it is on its machine.
    pub fn uuid(&self) -> [u8; 16] {
        self.0.limits().uuid
    }

    /// The GPU's architecture, with its features: `gfx942:sramecc+:xnack-`. Code objects are made for one of these.
    pub fn architecture(&self) -> &'static str {
        start::architecture(self.ordinal())
    }

    /// How many multiprocessors the GPU has, as the runtime counts them.
    pub fn multiprocessors(&self) -> usize {
        self.0.limits().multiprocessors
    }
}

impl HipStream {
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
    pub fn timed_event(&self) -> Result<Arc<TimedEvent>, DeviceError> {
        self.0.timed_event()
    }
}
