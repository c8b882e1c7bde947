//! A GPU as a device of the hal.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate_ffi::cuda::DevicePtr;
use tidegate_hal::batch::POISON;
use tidegate_hal::control::Handle;
use tidegate_hal::device::{Device, DeviceError, StreamConfig};
use tidegate_hal::memory::{Ptr, Sharing};
use tidegate_hal::nic::Register;

use crate::block::CudaBlock;
use crate::gpu::Gpu;
use crate::lower::address;
use crate::stream::CudaStream;

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
#[derive(Clone)]
pub struct Cuda {
    gpu: Arc<Gpu>,
}

impl std::fmt::Debug for Cuda {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cuda")
            .field("name", &self.name())
            .field("ordinal", &self.ordinal())
            .finish_non_exhaustive()
    }
}

impl Cuda {
    pub(crate) fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// How many GPUs the driver lists.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Missing`] if there is no driver.
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
    pub fn count() -> Result<usize, DeviceError> {
        Gpu::driver()?
            .device_count()
            .map_err(|error| DeviceError::Missing {
                device: "cuda",
                detail: error.to_string(),
            })
    }

    /// The GPU's name, as the driver gives it.
    pub fn name(&self) -> &str {
        &self.gpu.name
    }

    /// The GPU's number among the devices that the process may see.
    pub fn ordinal(&self) -> usize {
        self.gpu.device.0 as usize
    }

    /// The GPU's UUID. It is the same in every process, whatever number a process gives the GPU.
    pub fn uuid(&self) -> [u8; 16] {
        self.gpu.uuid
    }

    /// The GPU's compute capability: 9 and 0 for a Hopper GPU.
    pub fn compute_capability(&self) -> (u32, u32) {
        self.gpu.capability
    }

    /// How many multiprocessors this process may use: all of the GPU's, unless MPS limits the process to a portion.
    pub fn multiprocessors(&self) -> usize {
        self.gpu.multiprocessors
    }

    /// Whether the process uses the GPU by MPS. Then kernels of several processes run at the same time, and not in
    /// turn.
    pub fn mps(&self) -> bool {
        self.gpu.mps
    }
}

// SAFETY: the batch kernel executes batches (see `CudaStream`); the `impl Block` of blocks keeps their promises.
unsafe impl Device for Cuda {
    type Block = CudaBlock;
    type Stream = CudaStream;
    const NAME: &'static str = "cuda";

    fn open(local_rank: usize) -> Result<Self, DeviceError> {
        Ok(Cuda {
            gpu: Gpu::open(local_rank)?,
        })
    }

    fn open_local(rank: usize) -> Result<Self, DeviceError> {
        let gpu = Gpu::open(rank)?;
        gpu.crowd();
        Ok(Cuda { gpu })
    }

    fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.gpu, &other.gpu)
    }

    fn hardware(&self) -> Vec<u8> {
        self.gpu.uuid.to_vec()
    }

    fn portion(&self) -> usize {
        if self.gpu.mps {
            self.gpu.multiprocessors
        } else {
            0
        }
    }

    fn shared_with(&self, processes: usize, portion: usize) {
        self.gpu.shared_with(processes, portion);
    }

    fn expect_waiting(&self, streams: usize) {
        self.gpu.expect_waiting(streams);
    }

    fn staged(&self) -> bool {
        true
    }

    fn land_up_to(&self) -> usize {
        // A gate can look at words only.
        if self.gpu.gated() {
            return 0;
        }
        self.gpu.land_up_to
    }

    unsafe fn map_register(&self, register: &Register) -> Result<Register, DeviceError> {
        // SAFETY: the caller's promise.
        unsafe { self.gpu.map_register(register) }
    }

    fn alloc(&self, bytes: usize, sharing: Sharing) -> Result<CudaBlock, DeviceError> {
        CudaBlock::alloc(&self.gpu, bytes, sharing)
    }

    fn map(&self, handle: Handle, bytes: usize) -> Result<CudaBlock, DeviceError> {
        CudaBlock::map(&self.gpu, handle, bytes)
    }

    unsafe fn stream(&self, config: StreamConfig) -> Result<CudaStream, DeviceError> {
        CudaStream::new(&self.gpu, config)
    }

    unsafe fn poison(&self, word: Ptr, _bell: Ptr) {
        // Waits of a GPU poll, so nobody has to be woken by the bell.
        // SAFETY: the caller's promise.
        unsafe { self.gpu.poison(address(word)) };
    }

    unsafe fn peek(&self, word: Ptr) -> u64 {
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

    unsafe fn init_word(&self, word: Ptr, value: u64) {
        // SAFETY: the caller's promise.
        if let Some(word) = unsafe { self.gpu.pinned_word(word.0) } {
            return word.store(value, Ordering::Release);
        }
        // SAFETY: the caller's promise.
        if let Err(error) = unsafe { self.write(word, &value.to_ne_bytes()) } {
            tidegate_hal::tell(|| tracing::error!(%error, "a word could not be set"));
        }
    }

    unsafe fn read(&self, src: Ptr, dst: &mut [u8]) -> Result<(), DeviceError> {
        if dst.is_empty() {
            return Ok(());
        }
        // SAFETY: the caller promises the source; the destination lives until the service stream is done.
        self.gpu
            .serve("reading memory of the device", |driver, stream| unsafe {
                driver.memcpy_dtoh_async(
                    dst.as_mut_ptr().cast(),
                    DevicePtr(address(src)),
                    dst.len(),
                    stream,
                )
            })
    }

    unsafe fn write(&self, dst: Ptr, src: &[u8]) -> Result<(), DeviceError> {
        if src.is_empty() {
            return Ok(());
        }
        // SAFETY: the caller promises the destination; the source lives until the service stream is done.
        self.gpu
            .serve("writing memory of the device", |driver, stream| unsafe {
                driver.memcpy_htod_async(
                    DevicePtr(address(dst)),
                    src.as_ptr().cast(),
                    src.len(),
                    stream,
                )
            })
    }
}
