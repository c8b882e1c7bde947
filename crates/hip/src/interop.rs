//! Using a GPU together with other libraries.
//!
//! # Model
//!
//! A stream of another library is *adopted* ([`HipStream::adopt`], through `World::adopt_stream`): this library
//! enqueues on it, and does not destroy it. Memory of another library is adopted too ([`HipBlock::adopt`], through
//! `Region::adopt`), together with its owner, which [`HipBlock::into_adopted`] returns. Kernels of another library are
//! launched by `tidegate_core::kernel::foreign`, with the addresses of regions.
//!
//! Streams with masks, as all streams here, are waited for by the *null stream*. While a stream waits for a peer, work
//! on the null stream waits, too. So other libraries must not use it.
//!
//! # Failure
//!
//! A raw handle cannot be checked: the contracts are in the `unsafe` functions. A handle that is read back
//! ([`HipStream::as_raw`]) is a plain value.

use tidegate_ffi::hip::sys;

use crate::{Hip, HipBlock, HipStream};

tidegate_gpu::interop! {
    Hip;
    HipStream(sys::hipStream_t) {
        /// A stream over one that another library has made, and that `keep` owns.
        ///
        /// # Errors
        ///
        /// The errors of making a stream.
        ///
        /// # Safety
        ///
        /// - `raw` was made by `hipExtStreamCreateWithCUMask` on the device, so that it has a hardware queue of its own:
        ///   the runtime does not tell whether a stream has one.
        /// - Its mask has all compute units. The room for work that waits is counted on the whole GPU. On a part of it, a
        ///   kernel that owns a half of a window may wait for its own blocks that never run.
        /// - It lives as long as `keep`, and is captured only through the result. Nobody uses the null stream while it
        ///   waits.
        /// - Other work on it leaves the memory alone that is at home on this stream, unless the caller orders it with that
        ///   memory's use.
        ///
        /// # Examples
        ///
        /// ```
        /// use std::ffi::c_void;
        /// use std::sync::Arc;
        /// use tidegate::hip::{Hip, HipStream, prelude::*};
        /// use tidegate::stream::UnboundStream;
        ///
        /// /// Adopts a stream of another library, which its owner destroys.
        /// fn adopt<T: Send + Sync + 'static>(world: &World, raw: *mut c_void, owner: Arc<T>) -> Result<UnboundStream<Hip>> {
        ///     // SAFETY: its mask has all compute units, and it is alive as long as the owner, which enqueues nothing there.
        ///     unsafe { world.adopt_stream("theirs", |gpu, config| HipStream::adopt(gpu, raw.cast(), owner, config)) }
        /// }
        /// ```
        adopt;

        /// The runtime's handle. Work that is enqueued on it directly is not counted here.
        as_raw;
    }

    HipBlock {
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
        /// use tidegate::hip::{HipBlock, prelude::*};
        ///
        /// /// A region over memory of another library, which its owner frees.
        /// fn adopt(world: &World, address: u64, len: usize, owner: Box<dyn Any + Send + Sync>) -> Result<Region<f64>> {
        ///     // SAFETY: it is memory of this GPU, aligned and initialised, and the owner leaves it alone.
        ///     unsafe { Region::adopt(world, HipBlock::adopt(world.device(), address, 8 * len, owner), len) }
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
        /// use tidegate::hip::prelude::*;
        ///
        /// /// Gives memory that was adopted back to its owner.
        /// fn give_back(x: Region<f64>) -> Result<Option<Box<dyn Any + Send + Sync>>> {
        ///     Ok(x.into_block()?.into_adopted().ok())
        /// }
        /// ```
        into_adopted;
    }
}
