//! Using a GPU together with other libraries.
//!
//! # Model
//!
//! Everything here lives in the device's *primary* context, like everything that the CUDA runtime and `cudarc` make. A
//! stream of another library is *adopted* ([`CudaStream::adopt`], through `World::adopt_stream`): this library enqueues
//! on it, and does not destroy it. Memory of another library is adopted too ([`CudaBlock::adopt`], through
//! `Region::adopt`), together with its owner, which [`CudaBlock::into_adopted`] returns. Kernels of another library are
//! launched by `tidegate_core::kernel::foreign`, with the addresses of regions.
//!
//! # Failure
//!
//! A raw handle cannot be checked: the contracts are in the `unsafe` functions. A handle that is read back
//! ([`CudaStream::as_raw`]) is a plain value.

use tidegate_ffi::cuda::sys;

use crate::{Cuda, CudaBlock, CudaStream};

tidegate_gpu::interop! {
    Cuda;
    CudaStream(sys::CUstream) {
        /// A stream over one that another library has made, and that `keep` owns.
        ///
        /// # Errors
        ///
        /// The errors of making a stream.
        ///
        /// # Safety
        ///
        /// - `raw` is a non-blocking stream of the device's primary context (not of a green context, whose work runs on a
        ///   part of the multiprocessors). It lives as long as `keep`, and is captured only through the result.
        /// - Other work on it leaves the memory alone that is at home on this stream, unless the caller orders it with that
        ///   memory's use.
        /// - Other work on it does not end before the work in front of it. A kernel that is launched programmatically waits
        ///   for that work in each of its threads, and is not launched programmatically behind work that is enqueued here.
        /// - A kernel that waits for a peer does not let the next launch begin before that wait is over.
        ///
        /// # Examples
        ///
        /// ```
        /// use std::ffi::c_void;
        /// use std::sync::Arc;
        /// use tidegate::cuda::{Cuda, CudaStream, prelude::*};
        /// use tidegate::stream::UnboundStream;
        ///
        /// /// Adopts a stream of another library, which its owner destroys.
        /// fn adopt<T: Send + Sync + 'static>(world: &World, raw: *mut c_void, owner: Arc<T>) -> Result<UnboundStream<Cuda>> {
        ///     // SAFETY: it is non-blocking, of the primary context, and alive as long as the owner, who enqueues nothing there.
        ///     unsafe { world.adopt_stream("theirs", |gpu, config| CudaStream::adopt(gpu, raw.cast(), owner, config)) }
        /// }
        /// ```
        adopt;

        /// The driver's handle. Work that is enqueued on it directly is not counted here.
        as_raw;
    }

    CudaBlock {
        /// A block over memory that another library has allocated, and that `owner` frees.
        ///
        /// # Safety
        ///
        /// `address .. address + bytes` is memory of the device, initialised, and aligned to at least 64 bytes. It lives as
        /// long as `owner`, and nothing else accesses it meanwhile.
        ///
        /// # Examples
        ///
        /// ```
        /// use std::any::Any;
        /// use tidegate::cuda::{CudaBlock, prelude::*};
        ///
        /// /// A region over memory of another library, which its owner frees.
        /// fn adopt(world: &World, address: u64, len: usize, owner: Box<dyn Any + Send + Sync>) -> Result<Region<f64>> {
        ///     // SAFETY: it is memory of this GPU, aligned and initialised, and the owner leaves it alone.
        ///     unsafe { Region::adopt(world, CudaBlock::adopt(world.device(), address, 8 * len, owner), len) }
        /// }
        /// ```
        adopt;

        /// The owner of adopted memory.
        ///
        /// # Errors
        ///
        /// The block itself, if it was allocated here.
        ///
        /// # Examples
        ///
        /// ```
        /// use std::any::Any;
        /// use tidegate::cuda::prelude::*;
        ///
        /// /// Gives memory that was adopted back to its owner.
        /// fn give_back(x: Region<f64>) -> Result<Option<Box<dyn Any + Send + Sync>>> {
        ///     Ok(x.into_block()?.into_adopted().ok())
        /// }
        /// ```
        into_adopted;
    }
}
