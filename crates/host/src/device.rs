//! The device.

use std::sync::Arc;

use tidegate_hal::batch::{Op, Scalar};
use tidegate_hal::control::Handle;
use tidegate_hal::device::{ClosureDevice, Device, DeviceError, HostAccess, Issues, StreamConfig};
use tidegate_hal::far::Bus;
use tidegate_hal::memory::{Allocation, Ptr, Sharing};
use tidegate_hal::nic::Register;
use tidegate_words::{Bell, Word};

use crate::block::HostBlock;
use crate::stream::HostStream;

/// The host as a device.
///
/// # Examples
///
/// ```
/// # mod tidegate { pub use {tidegate_hal as hal, tidegate_host as host}; }
/// use tidegate::hal::device::Device;
/// use tidegate::host::Host;
///
/// let host = Host::open(0)?; // what `World::init` does
/// assert_eq!(Host::NAME, "host");
/// # Ok::<(), tidegate::hal::device::DeviceError>(())
/// ```
#[derive(Clone)]
pub struct Host {
    options: Arc<Options>,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Options { by_fd, bus } = &*self.options;
        f.debug_struct("Host")
            .field("by_fd", by_fd)
            .field("bus", &bus.as_ref().map(|bus| bus.name()))
            .finish()
    }
}

struct Options {
    /// Whether memory for peers is a memfd. (Ranks that are threads share heap memory instead.)
    by_fd: bool,
    /// Reaches peers that are not mapped.
    bus: Option<Arc<dyn Bus>>,
}

impl Host {
    /// The device for ranks that are processes: memory for peers can be mapped by file descriptor.
    ///
    /// # Examples
    ///
    /// ```
    /// # mod tidegate { pub use {tidegate_hal as hal, tidegate_host as host}; }
    /// use tidegate::host::Host;
    ///
    /// let host = Host::for_processes(); // for `World::from_control`
    /// ```
    pub fn for_processes() -> Self {
        Host {
            options: Arc::new(Options {
                by_fd: true,
                bus: None,
            }),
        }
    }

    /// The device for ranks that are processes, and that reach each other through a bus if they do not map each other's
    /// memory.
    ///
    /// # Examples
    ///
    /// ```
    /// # mod tidegate { pub use {tidegate_hal as hal, tidegate_host as host}; }
    /// use std::sync::Arc;
    /// use tidegate::hal::far::Bus;
    /// use tidegate::host::Host;
    ///
    /// fn device(bus: impl Bus) -> Host {
    ///     Host::over(Arc::new(bus))
    /// }
    /// ```
    pub fn over(bus: Arc<dyn Bus>) -> Self {
        Host {
            options: Arc::new(Options {
                by_fd: true,
                bus: Some(bus),
            }),
        }
    }

    /// The device for ranks that are threads of this process.
    ///
    /// # Examples
    ///
    /// ```
    /// # mod tidegate { pub use {tidegate_hal as hal, tidegate_host as host}; }
    /// use tidegate::host::Host;
    ///
    /// let host = Host::for_threads(); // what `World::local` does
    /// ```
    pub fn for_threads() -> Self {
        Host {
            options: Arc::new(Options {
                by_fd: false,
                bus: None,
            }),
        }
    }
}

// SAFETY: streams keep their order and run batches with the engine (see `HostStream`); blocks are as promised.
unsafe impl Device for Host {
    type Block = HostBlock;
    type Stream = HostStream;
    const NAME: &'static str = "host";

    fn describe(&self) -> String {
        "host streams".to_owned()
    }

    fn open(_local_rank: usize) -> Result<Self, DeviceError> {
        Ok(Host::for_processes())
    }

    fn open_local(_rank: usize) -> Result<Self, DeviceError> {
        Ok(Host::for_threads())
    }

    /// Streams of another bus, or of none, must not use memory of this bus: only its own bus knows that it must be kept
    /// if the bus fails.
    fn same(&self, other: &Self) -> bool {
        match (&self.options.bus, &other.options.bus) {
            (None, None) => true,
            (Some(mine), Some(others)) => std::ptr::addr_eq(Arc::as_ptr(mine), Arc::as_ptr(others)),
            _ => false,
        }
    }

    /// Memory of a bus is found by the rank that allocated it, so only memory of the node is shared by all.
    fn shares_bells(&self) -> bool {
        self.options.bus.is_none()
    }

    fn alloc(&self, bytes: usize, sharing: Sharing) -> Result<HostBlock, DeviceError> {
        match &self.options.bus {
            Some(bus) if sharing == Sharing::Peers => HostBlock::by_bus(&**bus, bytes),
            bus => HostBlock::alloc(bytes, sharing, self.options.by_fd, bus.as_ref()),
        }
    }

    fn adopt(&self, memory: Allocation) -> Result<HostBlock, Allocation> {
        Ok(HostBlock::adopt(memory, self.options.bus.as_ref()))
    }

    fn into_allocation(block: HostBlock) -> Result<Allocation, HostBlock> {
        block.into_allocation()
    }

    fn map(&self, handle: Handle, bytes: usize) -> Result<HostBlock, DeviceError> {
        match (&self.options.bus, handle) {
            (Some(bus), Handle::Key(key)) => HostBlock::reach(&**bus, &key, bytes),
            (_, handle) => HostBlock::map(handle, bytes),
        }
    }

    /// A rank behind a bus does not see the other's stores.
    fn rings(&self) -> bool {
        self.options.bus.is_none()
    }

    fn reaches(&self, memory: Ptr) -> bool {
        let bus = self.options.bus.as_ref();
        bus.is_none_or(|bus| !bus.far().contains(&memory.0.addr()))
    }

    /// A bus may make memory by calls of all ranks, as MPI does.
    fn allocates_together(&self) -> bool {
        self.options.bus.is_some()
    }

    fn refuses(&self, reduction: Option<Op>, scalar: Scalar) -> Option<String> {
        self.options.bus.as_ref()?.refuses(reduction, scalar)
    }

    fn helps(&self) -> bool {
        true
    }

    unsafe fn map_register(&self, register: &Register) -> Result<Register, DeviceError> {
        // Streams are threads of this process.
        Ok(register.clone())
    }

    unsafe fn stream(&self, config: StreamConfig) -> Result<HostStream, DeviceError> {
        HostStream::new(config, self.options.bus.clone())
    }

    unsafe fn poison(&self, word: Ptr, bell: Ptr) {
        // SAFETY: the caller promises that both are live.
        let (word, bell) = unsafe { (&*word.0.cast::<Word>(), &*bell.0.cast::<Bell>()) };
        word.poison();
        // This ignores the flag, because a peer may have died after it took the flag and before it woke the sleepers.
        bell.wake_all();
    }

    unsafe fn peek(&self, word: Ptr) -> u64 {
        if let Some(bus) = &self.options.bus {
            // SAFETY: the caller promises that it is live.
            unsafe { bus.look(word) };
        }
        // SAFETY: the caller promises that it is live.
        unsafe { &*word.0.cast::<Word>() }.load()
    }

    unsafe fn init_word(&self, word: Ptr, value: u64) {
        // SAFETY: the caller promises that it is live and not used yet.
        unsafe { &*word.0.cast::<Word>() }.advance(value);
    }

    unsafe fn read(&self, src: Ptr, dst: &mut [u8]) -> Result<(), DeviceError> {
        // SAFETY: the caller promises that the source is live, initialised and not written; `dst` is exclusive.
        unsafe { std::ptr::copy_nonoverlapping(src.0, dst.as_mut_ptr(), dst.len()) };
        Ok(())
    }

    unsafe fn write(&self, dst: Ptr, src: &[u8]) -> Result<(), DeviceError> {
        // SAFETY: the caller promises that the destination is live and not accessed.
        unsafe { std::ptr::copy_nonoverlapping(src.as_ptr(), dst.0, src.len()) };
        Ok(())
    }
}

// SAFETY: blocks are heap memory or mappings of this process.
unsafe impl HostAccess for Host {}

// SAFETY: kernels run on the stream's one thread, in order.
unsafe impl ClosureDevice for Host {
    unsafe fn launch<N: 'static, K: Fn(&dyn Issues) + Send + 'static>(
        stream: &HostStream,
        kernel: K,
    ) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise.
        unsafe { stream.launch::<N, K>(kernel) }
    }
}
