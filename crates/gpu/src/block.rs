//! Memory of a device.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

use tidegate_hal::control::Handle;
use tidegate_hal::device::DeviceError;
use tidegate_hal::memory::{Block, Ptr, Sharing};

use crate::driver::PeerMemory;
use crate::gpu::Gpu;

/// A block of memory of the device, or a mapping of a peer's block.
///
pub struct GpuBlock {
    pub(crate) gpu: Arc<Gpu>,
    pub(crate) base: u64,
    pub(crate) bytes: usize,
    pub(crate) kind: Kind,
}

// SAFETY: the pointer leads to memory that is never freed. The block's users are responsible for their accesses.
unsafe impl Send for GpuBlock {}
// SAFETY: as above; a shared block gives only its address.
unsafe impl Sync for GpuBlock {}

pub(crate) enum Kind {
    /// From the stream-ordered pool.
    Pool,
    /// Memory of the host.
    Pinned(NonNull<u8>),
    /// Memory that peers map, or a mapping of a peer's.
    Mapped(PeerMemory),
    /// Memory of another library, with its owner.
    Adopted(Option<Box<dyn Any + Send + Sync>>),
}

impl GpuBlock {
    pub(crate) fn alloc(
        gpu: &Arc<Gpu>,
        bytes: usize,
        sharing: Sharing,
    ) -> Result<Self, DeviceError> {
        let block = match sharing {
            Sharing::Nics => {
                let pinned = gpu.pin(bytes)?;
                let block = GpuBlock {
                    gpu: gpu.clone(),
                    base: pinned.addr().get() as u64,
                    bytes,
                    kind: Kind::Pinned(pinned),
                };
                if gpu.gated() {
                    gpu.operands().allocated(block.base, bytes as u64, true);
                }
                return Ok(block);
            }
            Sharing::Private => {
                let what = "allocating memory of the device";
                let mut made = None;
                let served = gpu.serve(what, |driver, stream| {
                    // SAFETY: the stream is never destroyed.
                    let base = unsafe { driver.alloc(bytes, stream) };
                    base.map(|base| *made.insert(base))
                });
                if let (Err(_), Some(base)) = (&served, made) {
                    // SAFETY: it was just allocated, and nobody else uses it.
                    gpu.serve_later(|driver, stream| unsafe { driver.free(base, stream) });
                }
                let base = served?;
                GpuBlock {
                    gpu: gpu.clone(),
                    base,
                    bytes,
                    kind: Kind::Pool,
                }
            }
            Sharing::Peers => {
                gpu.sweep_memory();
                gpu.enter()?;
                Self::mapped(gpu, gpu.driver.alloc_for_peers(bytes)?, bytes)
            }
        };
        if gpu.gated() {
            // All operands in the block are zero.
            gpu.operands()
                .allocated(block.base, bytes as u64, sharing == Sharing::Peers);
        }
        // SAFETY: the block is live, and only this call uses it.
        gpu.serve("clearing memory", |driver, stream| unsafe {
            driver.fill(block.base, 0, bytes, stream)
        })?;
        Ok(block)
    }

    /// Maps a peer's block.
    pub(crate) fn map(gpu: &Arc<Gpu>, handle: Handle, bytes: usize) -> Result<Self, DeviceError> {
        gpu.sweep_memory();
        gpu.enter()?;
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
        Ok(Self::mapped(gpu, gpu.driver.map_peer(&fd, bytes)?, bytes))
    }

    fn mapped(gpu: &Arc<Gpu>, memory: PeerMemory, bytes: usize) -> Self {
        GpuBlock {
            gpu: gpu.clone(),
            base: memory.base,
            bytes,
            kind: Kind::Mapped(memory),
        }
    }

    /// The owner of adopted memory.
    ///
    /// # Errors
    ///
    /// The block itself, if it was allocated here.
    pub fn into_adopted(mut self) -> Result<Box<dyn Any + Send + Sync>, Self> {
        match &mut self.kind {
            Kind::Adopted(owner) => Ok(owner
                .take()
                .expect("only a block that is being dropped has no owner")),
            _ => Err(self),
        }
    }
}

// SAFETY: the memory is device memory, from an allocator that aligns to 256 bytes (or to pages), and stays mapped for
// this device until the block is dropped; or it is pinned memory, which the device reaches at the host's address.
unsafe impl Block for GpuBlock {
    fn base(&self) -> Ptr {
        match self.kind {
            // Threads of the host use this pointer.
            Kind::Pinned(base) => Ptr(base.as_ptr()),
            _ => Ptr(std::ptr::without_provenance_mut(self.base as usize)),
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
            Kind::Mapped(memory) => {
                self.gpu.enter()?;
                // SAFETY: the memory is given up when the block is dropped.
                unsafe { self.gpu.driver.export(&memory) }.map(|fd| Handle::Fd(Arc::new(fd)))
            }
        }
    }
}

impl Drop for GpuBlock {
    fn drop(&mut self) {
        if !self.gpu.process.is_this() {
            return;
        }
        if self.gpu.gated() && !matches!(self.kind, Kind::Adopted(_)) {
            self.gpu.operands.freed(self.base);
        }
        // The block's last holder has made sure that no stream uses it any more.
        match self.kind {
            Kind::Adopted(_) => {}
            Kind::Pinned(base) => self.gpu.pinned.give_back(base),
            // SAFETY: it came from the pool, and is not used any more. It is freed on the stream on which the next
            // block is allocated.
            Kind::Pool => self
                .gpu
                .serve_later(|driver, stream| unsafe { driver.free(self.base, stream) }),
            Kind::Mapped(memory) => {
                if self.gpu.enter().is_ok() {
                    // SAFETY: it is this block's memory, and is not used any more.
                    unsafe { self.gpu.driver.unmap(memory) };
                }
            }
        }
    }
}
