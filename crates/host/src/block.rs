//! Memory: on the heap, or in a memfd that peers can map.

use std::alloc::Layout;
use std::any::Any;
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::process::{Resource, getrlimit};
use tidegate_hal::control::Handle;
use tidegate_hal::device::DeviceError;
use tidegate_hal::far::{Bus, Reached, Span};
use tidegate_hal::limits::{no_larger_files, refused};
use tidegate_hal::lock;
use tidegate_hal::memory::{Allocation, Block, Ptr, Sharing};
use tidegate_hal::process::{Process, Unforked};

use crate::mapping::Mapping;

/// Blocks are aligned to pages, which suits rows of fields and vector units.
const ALIGN: usize = 4096;

/// A block of the host device.
///
/// # Examples
///
/// ```
/// # mod tidegate {
/// #     pub mod hal { pub use {tidegate_hal::*, tidegate_host as host}; }
/// #     pub use tidegate_host as host;
/// # }
/// use tidegate::hal::device::Device;
/// use tidegate::hal::host::HostBlock;
/// use tidegate::hal::memory::{Block, Sharing};
/// use tidegate::host::Host;
///
/// let block: HostBlock = Host::for_threads().alloc(4096, Sharing::Private)?;
/// assert!(block.bytes() >= 4096);
/// # Ok::<(), tidegate::hal::device::DeviceError>(())
/// ```
#[derive(Debug)]
pub struct HostBlock {
    backing: Backing,
    bytes: usize,
}

#[derive(Debug)]
enum Backing {
    /// Memory of this process, which ranks that are its threads share.
    Heap(Arc<Heap>),
    /// Memory of a memfd, which children do not get. The descriptor is kept as long as it may be handed on; the mapping
    /// does not need it.
    Mapped {
        map: Unforked<Mapping>,
        fd: Mutex<Option<OwnedFd>>,
    },
    /// Memory of a bus: this rank's, with the key by which peers reach it, or a peer's, whose address may be far.
    Bus {
        base: Ptr,
        key: Option<Vec<u8>>,
        _keep: BusMemory,
    },
}

/// Keeps memory of a bus. In a forked child, the bus is not told when the memory is dropped.
struct BusMemory(ManuallyDrop<Arc<dyn Any + Send + Sync>>, Process);

impl BusMemory {
    fn new(keep: Arc<dyn Any + Send + Sync>) -> Self {
        BusMemory(ManuallyDrop::new(keep), Process::this())
    }
}

impl Drop for BusMemory {
    fn drop(&mut self) {
        if self.1.is_this() {
            // SAFETY: this is its only drop.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        }
    }
}

impl std::fmt::Debug for BusMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BusMemory")
    }
}

/// Heap memory.
pub(crate) struct Heap {
    memory: ManuallyDrop<Allocation>,
    /// The bus that may have been told to read or write the memory.
    bus: Option<Arc<dyn Bus>>,
}

impl std::fmt::Debug for Heap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Heap").field(&*self.memory).finish()
    }
}

impl Heap {
    fn new(bytes: usize, bus: Option<Arc<dyn Bus>>) -> Result<Self, DeviceError> {
        let out = |detail: String| DeviceError::Exhausted {
            what: "memory",
            detail,
        };
        let layout = Layout::from_size_align(bytes, ALIGN)
            .map_err(|e| out(format!("{bytes} bytes: {e}")))?;
        debug_assert_ne!(bytes, 0, "core asks for no empty blocks");
        let memory = Allocation::zeroed(layout).ok_or_else(|| out(format!("{bytes} bytes")))?;
        let memory = ManuallyDrop::new(memory);
        Ok(Heap { memory, bus })
    }

    /// Whether a failed bus may still read or write the memory, for an unknown time.
    fn is_given_up(&self) -> bool {
        (self.bus.as_ref()).is_some_and(|bus| bus.failure().is_some())
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        if !self.is_given_up() {
            // SAFETY: this is its only drop, and `into_allocation` does not drop a heap whose memory it has taken.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}

impl HostBlock {
    /// Allocates memory. A bus may be told to read or write it.
    pub(crate) fn alloc(
        bytes: usize,
        sharing: Sharing,
        by_fd: bool,
        bus: Option<&Arc<dyn Bus>>,
    ) -> Result<Self, DeviceError> {
        if bytes == 0 {
            return Err(DeviceError::Exhausted {
                what: "memory",
                detail: "0 bytes asked for".into(),
            });
        }
        let backing = match sharing {
            // NICs may be peers of the node themselves, so both need a memfd.
            Sharing::Peers | Sharing::Nics if by_fd => Self::memfd(bytes)?,
            _ => Backing::Heap(Arc::new(Heap::new(bytes, bus.cloned())?)),
        };
        Ok(HostBlock { backing, bytes })
    }

    /// Makes a block of memory that this process already has. From now on a bus may be told to read or write it.
    pub(crate) fn adopt(memory: Allocation, bus: Option<&Arc<dyn Bus>>) -> Self {
        let bytes = memory.bytes();
        let heap = Heap {
            memory: ManuallyDrop::new(memory),
            bus: bus.cloned(),
        };
        HostBlock {
            backing: Backing::Heap(Arc::new(heap)),
            bytes,
        }
    }

    /// The block's heap memory, if it is heap memory and nothing else uses it.
    pub(crate) fn into_allocation(self) -> Result<Allocation, Self> {
        let HostBlock { backing, bytes } = self;
        let back = |backing| Err(HostBlock { backing, bytes });
        let Backing::Heap(heap) = backing else {
            return back(backing);
        };
        match Arc::try_unwrap(heap) {
            Ok(heap) if heap.is_given_up() => back(Backing::Heap(Arc::new(heap))),
            Ok(heap) => {
                let mut heap = ManuallyDrop::new(heap);
                drop(heap.bus.take());
                // SAFETY: the heap is not dropped, so only this takes the memory.
                Ok(unsafe { ManuallyDrop::take(&mut heap.memory) })
            }
            Err(heap) => back(Backing::Heap(heap)),
        }
    }

    pub(crate) fn by_bus(bus: &dyn Bus, bytes: usize) -> Result<Self, DeviceError> {
        let Span { base, key, keep } = bus.alloc(bytes)?;
        let backing = Backing::Bus {
            base,
            key: Some(key),
            _keep: BusMemory::new(keep),
        };
        Ok(HostBlock { backing, bytes })
    }

    pub(crate) fn reach(bus: &dyn Bus, key: &[u8], bytes: usize) -> Result<Self, DeviceError> {
        let Reached { base, keep } = bus.reach(key, bytes)?;
        let backing = Backing::Bus {
            base,
            key: None,
            _keep: BusMemory::new(keep),
        };
        Ok(HostBlock { backing, bytes })
    }

    fn memfd(bytes: usize) -> Result<Backing, DeviceError> {
        // Memory for peers counts as a file. If it were larger than the limit, the kernel would kill this process by
        // SIGXFSZ.
        let limit = getrlimit(Resource::Fsize).current;
        if limit.is_some_and(|limit| limit < bytes as u64) {
            return Err(DeviceError::Exhausted {
                what: "shared memory",
                detail: format!("{MAKING} ({bytes} bytes): {}", no_larger_files()),
            });
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd =
            rustix::fs::memfd_create("tidegate", flags).map_err(|e| refused(MAKING, bytes, e))?;
        rustix::fs::ftruncate(&fd, bytes as u64).map_err(|e| refused(MAKING, bytes, e))?;
        // If a peer could shrink the file, this process could die of SIGBUS.
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(|e| system("F_ADD_SEALS", &e))?;
        let map = Self::mapped(&fd, bytes)?;
        let fd = Mutex::new(Some(fd));
        Ok(Backing::Mapped { map, fd })
    }

    fn mapped(fd: &OwnedFd, bytes: usize) -> Result<Unforked<Mapping>, DeviceError> {
        let refused = |errno| refused("mapping shared memory", bytes, errno);
        let map = Mapping::new(fd, bytes).map_err(refused)?;
        let base = map.base();
        // SAFETY: this is the whole mapping, which `map` keeps.
        unsafe { Unforked::new(map, base, bytes) }
    }

    pub(crate) fn map(handle: Handle, bytes: usize) -> Result<Self, DeviceError> {
        let bad = |what: String| DeviceError::BadHandle(what);
        let backing = match handle {
            Handle::Fd(fd) => {
                let held = rustix::fs::fstat(&fd)
                    .map_err(|e| system("fstat", &e))?
                    .st_size;
                if u64::try_from(held).ok() != Some(bytes as u64) {
                    return Err(bad(format!(
                        "it holds {held} bytes where {bytes} were announced"
                    )));
                }
                // If the file is not sealed, the peer could shrink it, and this process would die of SIGBUS.
                let seals =
                    rustix::fs::fcntl_get_seals(&fd).map_err(|e| system("F_GET_SEALS", &e))?;
                if !seals.contains(SealFlags::SHRINK) {
                    return Err(bad("its size is not sealed".into()));
                }
                Backing::Mapped {
                    map: Self::mapped(&fd, bytes)?,
                    fd: Mutex::new(None),
                }
            }
            Handle::Lost(why) => {
                return Err(DeviceError::Exhausted {
                    what: "descriptors",
                    detail: why,
                });
            }
            Handle::Key(_) => return Err(bad("it is for a bus".into())),
            Handle::Local(any) => {
                let heap = any
                    .downcast::<Heap>()
                    .map_err(|_| bad("it is of another device".into()))?;
                let held = heap.memory.bytes();
                if held != bytes {
                    return Err(bad(format!(
                        "it holds {held} bytes where {bytes} were announced"
                    )));
                }
                Backing::Heap(heap)
            }
        };
        Ok(HostBlock { backing, bytes })
    }
}

/// The operation that errors name when memory for peers cannot be made.
const MAKING: &str = "making shared memory";

fn system(what: &'static str, error: &dyn std::fmt::Display) -> DeviceError {
    DeviceError::System {
        what,
        detail: error.to_string(),
    }
}

// SAFETY: heap memory and mappings live until the block is dropped (the heap perhaps longer, if a peer shares it).
// Allocated memory is aligned to `ALIGN` or a page, and zero at first; adopted memory is as it was. A bus promises the
// same of its memory; far addresses are names, which streams recognise.
unsafe impl Block for HostBlock {
    #[inline]
    fn base(&self) -> Ptr {
        Ptr(match &self.backing {
            Backing::Heap(heap) => heap.memory.base().0,
            Backing::Mapped { map, .. } => map.get().base().0,
            Backing::Bus { base, .. } => base.0,
        })
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn share(&self) -> Result<Handle, DeviceError> {
        match &self.backing {
            Backing::Heap(heap) => Ok(Handle::Local(heap.clone())),
            Backing::Mapped { fd, .. } => match &*lock(fd) {
                Some(fd) => rustix::io::fcntl_dupfd_cloexec(fd, 0)
                    .map(|fd| Handle::Fd(Arc::new(fd)))
                    .map_err(|e| refused("sharing memory", self.bytes, e)),
                None => Err(DeviceError::BadHandle(
                    "a peer's memory, or this rank's own that nobody was to share any more".into(),
                )),
            },
            Backing::Bus { key: Some(key), .. } => Ok(Handle::Key(key.clone())),
            Backing::Bus { key: None, .. } => Err(DeviceError::BadHandle("a peer's memory".into())),
        }
    }

    fn share_no_more(&self) {
        if let Backing::Mapped { fd, .. } = &self.backing {
            lock(fd).take();
        }
    }
}
