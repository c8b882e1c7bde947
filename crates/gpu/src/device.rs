//! A GPU of any vendor as a device.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate_hal::batch::POISON;
use tidegate_hal::code::Code;
use tidegate_hal::control::Handle;
use tidegate_hal::device::{DeviceError, StreamConfig};
use tidegate_hal::memory::{Ptr, Sharing};
use tidegate_hal::nic::Register;

use crate::block::{GpuBlock, Kind};
use crate::driver::{self, Driver, Keep, Limits, Vendor};
use crate::gpu::Gpu;
use crate::lower::{address, landings};
use crate::module::GpuModule;
use crate::reclaim::StreamState;
use crate::stream::GpuStream;

/// A GPU as a device. The methods without an example do what the method of the same name says in
/// [`Device`](tidegate_hal::device::Device).
#[derive(Clone)]
pub struct GpuDevice {
    gpu: Arc<Gpu>,
}

impl std::fmt::Debug for GpuDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GpuDevice")
            .field("name", &self.limits().name)
            .field("ordinal", &self.limits().ordinal)
            .finish_non_exhaustive()
    }
}

#[allow(missing_docs, reason = "they are documented in `Device`")]
#[allow(clippy::missing_safety_doc, reason = "as above")]
impl GpuDevice {
    pub(crate) fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// The limits of the device, as its vendor's driver gave them.
    pub fn limits(&self) -> &Limits {
        &self.gpu.limits
    }

    /// The driver, of its vendor's own type.
    ///
    /// # Panics
    ///
    /// If another vendor has started the device.
    pub fn driver<D: Driver>(&self) -> &'static D {
        let driver: &'static dyn Any = self.gpu.driver;
        driver.downcast_ref().expect("each vendor has one driver")
    }

    pub fn open(vendor: &'static Vendor, local_rank: usize) -> Result<Self, DeviceError> {
        let gpu = Gpu::open(vendor, local_rank)?;
        Ok(GpuDevice { gpu })
    }

    pub fn open_local(vendor: &'static Vendor, rank: usize) -> Result<Self, DeviceError> {
        let gpu = Gpu::open(vendor, rank)?;
        gpu.crowd();
        Ok(GpuDevice { gpu })
    }

    pub fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.gpu, &other.gpu)
    }

    pub fn hardware(&self) -> Vec<u8> {
        self.gpu.limits.uuid.to_vec()
    }

    pub fn portion(&self) -> usize {
        match self.gpu.limits.sharing {
            driver::Sharing::Together => self.gpu.limits.multiprocessors,
            driver::Sharing::InTurn | driver::Sharing::Unknown => 0,
        }
    }

    pub fn shared_with(&self, processes: usize, portion: usize) {
        self.gpu.shared_with(processes, portion);
    }

    pub fn expect_waiting(&self, streams: usize) {
        self.gpu.expect_waiting(streams);
    }

    pub fn land_up_to(&self) -> usize {
        // A gate can look at words only.
        if self.gpu.gated() {
            return 0;
        }
        self.gpu.land_up_to
    }

    pub fn reduce_up_to(&self) -> usize {
        match self.land_up_to() {
            0 => 0,
            // One block is for the posts.
            least => {
                let blocks = self.gpu.would_grant().saturating_sub(1);
                self.gpu
                    .reduce_up_to
                    .min(blocks * landings::UP_TO)
                    .max(least)
            }
        }
    }

    pub unsafe fn map_register(&self, register: &Register) -> Result<Register, DeviceError> {
        // SAFETY: the caller's promise.
        unsafe { self.gpu.map_register(register) }
    }

    pub fn alloc(&self, bytes: usize, sharing: Sharing) -> Result<GpuBlock, DeviceError> {
        GpuBlock::alloc(&self.gpu, bytes, sharing)
    }

    pub fn map(&self, handle: Handle, bytes: usize) -> Result<GpuBlock, DeviceError> {
        GpuBlock::map(&self.gpu, handle, bytes)
    }

    pub unsafe fn stream(&self, config: StreamConfig) -> Result<GpuStream, DeviceError> {
        GpuStream::new(&self.gpu, config)
    }

    pub unsafe fn poison(&self, word: Ptr, _bell: Ptr) {
        // Waits of a GPU poll, so nobody has to be woken by the bell.
        // SAFETY: the caller's promise.
        unsafe { self.gpu.poison(address(word)) };
    }

    pub unsafe fn peek(&self, word: Ptr) -> u64 {
        // SAFETY: the caller's promise.
        if let Some(word) = unsafe { self.gpu.pinned_word(word.0) } {
            return word.load(Ordering::Acquire);
        }
        let mut bytes = [0; 8];
        // SAFETY: the caller's promise; a copy of an aligned word is not torn.
        match unsafe { self.read(word, &mut bytes) } {
            Ok(()) => u64::from_ne_bytes(bytes),
            // A word that cannot be read will never come.
            Err(_) => POISON,
        }
    }

    pub unsafe fn init_word(&self, word: Ptr, value: u64) {
        // SAFETY: the caller's promise.
        if let Some(word) = unsafe { self.gpu.pinned_word(word.0) } {
            return word.store(value, Ordering::Release);
        }
        // SAFETY: the caller's promise.
        if let Err(error) = unsafe { self.write(word, &value.to_ne_bytes()) } {
            tidegate_hal::tell(|| tracing::error!(%error, "a word could not be set"));
        }
    }

    pub unsafe fn read(&self, src: Ptr, dst: &mut [u8]) -> Result<(), DeviceError> {
        if dst.is_empty() {
            return Ok(());
        }
        // SAFETY: the caller promises the source; the destination lives until the service stream is done.
        self.gpu
            .serve("reading memory of the device", |driver, stream| unsafe {
                driver.copy_out(dst.as_mut_ptr(), address(src), dst.len(), stream)
            })
    }

    pub unsafe fn write(&self, dst: Ptr, src: &[u8]) -> Result<(), DeviceError> {
        if src.is_empty() {
            return Ok(());
        }
        // SAFETY: the caller promises the destination; the source lives until the service stream is done.
        self.gpu
            .serve("writing memory of the device", |driver, stream| unsafe {
                driver.copy_in(address(dst), src.as_ptr(), src.len(), stream)
            })
    }

    pub fn load(&self, code: &Code<'_>) -> Result<Arc<GpuModule>, DeviceError> {
        GpuModule::load(&self.gpu, code)
    }
}

impl GpuBlock {
    /// A block over memory that another library has allocated, and that `owner` frees.
    ///
    /// # Safety
    ///
    /// `address .. address + bytes` is memory of the device, initialised, and aligned to at least 64 bytes. It lives as
    /// long as `owner`, and nothing else accesses it meanwhile.
    pub unsafe fn adopt(
        device: &GpuDevice,
        address: u64,
        bytes: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Self {
        GpuBlock {
            gpu: device.gpu().clone(),
            base: address,
            bytes,
            kind: Kind::Adopted(Some(owner)),
        }
    }
}

impl GpuStream {
    /// A stream over one that another library has made, and that `keep` owns.
    ///
    /// # Safety
    ///
    /// - `raw` is a stream of the device, which lives as long as `keep`, and is captured only through the result. No
    ///   other stream waits for it implicitly. Its work may run on all multiprocessors, since room is counted so.
    /// - Other work on it leaves the memory alone that is at home on this stream, unless the caller orders it with that
    ///   memory's use.
    /// - Other work on it does not end before the work in front of it, and does not let later work begin while it waits
    ///   for a peer.
    pub unsafe fn adopt(
        device: &GpuDevice,
        raw: driver::Stream,
        keep: Keep,
        config: StreamConfig,
    ) -> Result<Self, DeviceError> {
        let gpu = device.gpu();
        gpu.enter()?;
        // SAFETY: the caller's promise; `keep` is held as long as the stream, which waits at its end until everything
        // has been passed.
        let shared = unsafe { StreamState::new(gpu, raw, Some(keep), config.stamped) }?;
        Ok(Self::over(shared, config))
    }
}
