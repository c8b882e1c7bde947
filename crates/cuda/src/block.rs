//! Memory of a device.

use std::any::Any;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::Arc;

use tidegate_ffi::cuda::{
    AccessDesc, AllocationProp, Device, DevicePtr, MemHandle, P2pAttribute, PointerAttribute,
};
use tidegate_hal::control::Handle;
use tidegate_hal::device::DeviceError;
use tidegate_hal::memory::{Block, Ptr, Sharing};

use crate::error::Doing;
use crate::gpu::Gpu;

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
pub struct CudaBlock {
    pub(crate) gpu: Arc<Gpu>,
    pub(crate) base: DevicePtr,
    pub(crate) bytes: usize,
    pub(crate) kind: Kind,
}

// SAFETY: the pointer leads to memory that is never freed. The block's users are responsible for their accesses.
unsafe impl Send for CudaBlock {}
// SAFETY: as above; a shared block gives only its address.
unsafe impl Sync for CudaBlock {}

pub(crate) enum Kind {
    /// From the stream-ordered pool.
    Pool,
    /// Memory of the host.
    Pinned(NonNull<u8>),
    /// Physical memory, of which `size` bytes are mapped. The mapping and the handle both hold it.
    Mapped { handle: MemHandle, size: usize },
    /// Memory of another library, with its owner.
    Adopted(Option<Box<dyn Any + Send + Sync>>),
}

impl CudaBlock {
    pub(crate) fn alloc(
        gpu: &Arc<Gpu>,
        bytes: usize,
        sharing: Sharing,
    ) -> Result<Self, DeviceError> {
        let block = match sharing {
            Sharing::Nics => {
                let pinned = gpu.pin(bytes)?;
                let block = CudaBlock {
                    gpu: gpu.clone(),
                    base: DevicePtr(pinned.addr().get() as u64),
                    bytes,
                    kind: Kind::Pinned(pinned),
                };
                if gpu.gated() {
                    gpu.operands().allocated(block.base.0, bytes as u64, true);
                }
                return Ok(block);
            }
            Sharing::Private => {
                let what = "allocating memory of the device";
                let mut made = None;
                let served = gpu.serve(what, |driver, stream| {
                    // SAFETY: pool and stream are never destroyed.
                    let base = unsafe { driver.mem_alloc_from_pool_async(bytes, gpu.pool, stream) };
                    base.map(|base| *made.insert(base))
                });
                if let (Err(_), Some(base)) = (&served, made) {
                    // SAFETY: it was just allocated, and nobody else uses it.
                    gpu.serve_later(|driver, stream| unsafe {
                        driver.mem_free_async(base, stream)
                    });
                }
                let base = served?;
                CudaBlock {
                    gpu: gpu.clone(),
                    base,
                    bytes,
                    kind: Kind::Pool,
                }
            }
            Sharing::Peers => {
                let what = "allocating memory for peers";
                gpu.enter()?;
                let prop = AllocationProp::pinned(gpu.device).shareable();
                let granularity = gpu.driver.mem_granularity(&prop).doing(what)?;
                let size = bytes.checked_next_multiple_of(granularity).ok_or_else(|| {
                    DeviceError::Exhausted {
                        what: "memory of the device",
                        detail: format!("{bytes} bytes"),
                    }
                })?;
                let handle = gpu.driver.mem_create(size, &prop).doing(what)?;
                Self::mapping(gpu, handle, size, bytes)?
            }
        };
        if gpu.gated() {
            // All operands in the block are zero.
            gpu.operands()
                .allocated(block.base.0, bytes as u64, sharing == Sharing::Peers);
        }
        // SAFETY: the block is live, and only this call uses it.
        gpu.serve("clearing memory", |driver, stream| unsafe {
            driver.memset_d8_async(block.base, 0, bytes, stream)
        })?;
        Ok(block)
    }

    /// Maps a peer's block.
    pub(crate) fn map(gpu: &Arc<Gpu>, handle: Handle, bytes: usize) -> Result<Self, DeviceError> {
        let fd = match handle {
            Handle::Fd(fd) => fd,
            Handle::Lost(why) => {
                return Err(DeviceError::Exhausted {
                    what: "descriptors",
                    detail: why,
                });
            }
            _ => {
                return Err(DeviceError::BadHandle(
                    "memory of a GPU is handed over as a file descriptor".into(),
                ));
            }
        };
        gpu.enter()?;
        let what = "mapping a peer's memory";
        let prop = AllocationProp::pinned(gpu.device).shareable();
        let granularity = gpu.driver.mem_granularity(&prop).doing(what)?;
        let size = bytes.next_multiple_of(granularity);
        let handle = gpu
            .driver
            .mem_import_fd(fd.as_fd())
            .map_err(|error| DeviceError::BadHandle(error.to_string()))?;
        let block = Self::mapping(gpu, handle, size, bytes)?;
        block.check_atomics()?;
        Ok(block)
    }

    /// Checks that this GPU can add to words in the block. Over a link without atomics (PCI Express mostly has none) an
    /// add would get lost, and a wait would end too early or never. If the driver does not tell, atomics are taken to
    /// work. That is so for GPUs that this process may not see, but their memory is not mapped in the first place.
    fn check_atomics(&self) -> Result<(), DeviceError> {
        let (driver, own) = (self.gpu.driver, self.gpu.device);
        let owner = driver.pointer_attribute(
            self.base,
            PointerAttribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        );
        let Ok(owner) = owner.map(|owner| Device(owner as i32)) else {
            return Ok(());
        };
        let native = P2pAttribute::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED;
        if owner != own && driver.device_p2p_attribute(native, own, owner) == Ok(0) {
            return Err(DeviceError::Unsupported {
                device: "cuda",
                what: format!(
                    "adds from GPU {} to words of GPU {}: the link between them has no atomics (a NIC can reach it: `Route::Nic`)",
                    own.0, owner.0
                ),
            });
        }
        Ok(())
    }

    /// Maps physical memory, and takes its handle.
    fn mapping(
        gpu: &Arc<Gpu>,
        handle: MemHandle,
        size: usize,
        bytes: usize,
    ) -> Result<Self, DeviceError> {
        let (driver, what) = (gpu.driver, "mapping memory");
        let release = || {
            // SAFETY: the handle is not used any more.
            let _ = unsafe { driver.mem_release(handle) };
        };
        let base = driver
            .mem_address_reserve(size, 0, DevicePtr::NULL)
            .doing(what)
            .inspect_err(|_| release())?;
        // SAFETY: the range was just reserved, and is as large as the mapping. The driver refuses a handle of less
        // memory.
        let mapped = unsafe { driver.mem_map(base, size, 0, handle) };
        if let Err(error) = mapped {
            release();
            // SAFETY: nothing is mapped there.
            let _ = unsafe { driver.mem_address_free(base, size) };
            return Err(DeviceError::BadHandle(error.to_string()));
        }
        let block = CudaBlock {
            gpu: gpu.clone(),
            base,
            bytes,
            kind: Kind::Mapped { handle, size },
        };
        // SAFETY: the range is mapped. If this fails, dropping the block unmaps it.
        unsafe { driver.mem_set_access(base, size, &[AccessDesc::read_write(gpu.device)]) }
            .doing(what)?;
        Ok(block)
    }
}

// SAFETY: the memory is device memory, from an allocator that aligns to 256 bytes (or to pages), and stays mapped for
// this device until the block is dropped; or it is pinned memory, which the device reaches at the host's address.
unsafe impl Block for CudaBlock {
    fn base(&self) -> Ptr {
        match self.kind {
            // Threads of the host use this pointer.
            Kind::Pinned(base) => Ptr(base.as_ptr()),
            _ => Ptr(std::ptr::without_provenance_mut(self.base.0 as usize)),
        }
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn share(&self) -> Result<Handle, DeviceError> {
        match self.kind {
            Kind::Pool | Kind::Adopted(_) | Kind::Pinned(_) => Err(DeviceError::BadHandle(
                "the block was allocated for this process only".into(),
            )),
            Kind::Mapped { handle, .. } => {
                self.gpu.enter()?;
                // SAFETY: the handle is released when the block is dropped.
                let fd =
                    unsafe { self.gpu.driver.mem_export_fd(handle) }.doing("exporting memory")?;
                Ok(Handle::Fd(fd))
            }
        }
    }
}

impl Drop for CudaBlock {
    fn drop(&mut self) {
        if !self.gpu.process.is_this() {
            return;
        }
        if self.gpu.gated() && !matches!(self.kind, Kind::Adopted(_)) {
            self.gpu.operands.freed(self.base.0);
        }
        // The block's last holder has made sure that no stream uses it any more.
        match self.kind {
            Kind::Adopted(_) => {}
            Kind::Pinned(base) => self.gpu.pinned.give_back(base),
            // SAFETY: it came from the pool, and is not used any more. It is freed on the stream on which the next
            // block is allocated.
            Kind::Pool => self
                .gpu
                .serve_later(|driver, stream| unsafe { driver.mem_free_async(self.base, stream) }),
            Kind::Mapped { handle, size } => {
                if self.gpu.enter().is_ok() {
                    let driver = self.gpu.driver;
                    // SAFETY: mapped by `mapping`, and not used any more. If a call fails, the memory leaks.
                    let _ = unsafe { driver.mem_unmap(self.base, size) };
                    // SAFETY: nothing is mapped there now.
                    let _ = unsafe { driver.mem_address_free(self.base, size) };
                    // SAFETY: the handle is this block's.
                    let _ = unsafe { driver.mem_release(handle) };
                }
            }
        }
    }
}
