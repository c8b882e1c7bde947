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

/// Blocks are aligned to pages, so that rows of a field and vector units are content.
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
    /// Of this process; shared with ranks that are threads of it.
    Heap(Arc<Heap>),
    /// Of a memfd, which children do not get, with the descriptor as long as it may be handed on: the mapping needs none.
    Mapped {
        map: Unforked<Mapping>,
        fd: Mutex<Option<OwnedFd>>,
    },
    /// Of a bus: this rank's own, with the key by which peers reach it, or a peer's, whose address may be far.
    Bus {
        base: Ptr,
        key: Option<Vec<u8>>,
        _keep: Keep,
    },
}

/// Keeps memory of a bus, which is not told of its end in a child.
struct Keep(ManuallyDrop<Arc<dyn Any + Send + Sync>>, Process);

impl Keep {
    fn new(keep: Arc<dyn Any + Send + Sync>) -> Self {
        Keep(ManuallyDrop::new(keep), Process::this())
    }
}

impl Drop for Keep {
    fn drop(&mut self) {
        if self.1.is_this() {
            // SAFETY: this is its only drop.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        }
    }
}

impl std::fmt::Debug for Keep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keep")
    }
}

/// Heap memory.
pub(crate) struct Heap {
    memory: ManuallyDrop<Allocation>,
    /// What may have been told to read or write it.
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

    /// Whether something that has been told to read or write the memory may still do so, and nobody knows when it ends.
    fn is_given_up(&self) -> bool {
        (self.bus.as_ref()).is_some_and(|bus| bus.failure().is_some())
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        if !self.is_given_up() {
            // SAFETY: it is dropped or taken only here, once.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}

impl HostBlock {
    /// Memory of this process, which a bus may be told to read or write.
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
            // For peers, or for NICs that are themselves peers of the node.
            Sharing::Peers | Sharing::Nics if by_fd => Self::memfd(bytes)?,
            _ => Backing::Heap(Arc::new(Heap::new(bytes, bus.cloned())?)),
        };
        Ok(HostBlock { backing, bytes })
    }

    /// Memory that this process had already, and that a bus may be told to read or write from now on.
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

    /// The memory of the heap that it is, if it is, and nothing else uses it.
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
                // SAFETY: the heap is not dropped, so that this is the only one who takes the memory.
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
            _keep: Keep::new(keep),
        };
        Ok(HostBlock { backing, bytes })
    }

    pub(crate) fn reach(bus: &dyn Bus, key: &[u8], bytes: usize) -> Result<Self, DeviceError> {
        let Reached { base, keep } = bus.reach(key, bytes)?;
        let backing = Backing::Bus {
            base,
            key: None,
            _keep: Keep::new(keep),
        };
        Ok(HostBlock { backing, bytes })
    }

    fn memfd(bytes: usize) -> Result<Backing, DeviceError> {
        // Memory for peers counts as a file. Beyond the limit the kernel would kill this process by SIGXFSZ.
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
        // A peer that shrank the file would make us die of SIGBUS.
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
                // The peer could shrink what is not sealed, and this process would die of SIGBUS.
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

/// What is done when memory for peers is made.
const MAKING: &str = "making shared memory";

fn system(what: &'static str, error: &dyn std::fmt::Display) -> DeviceError {
    DeviceError::System {
        what,
        detail: error.to_string(),
    }
}

// SAFETY: heap memory and mappings live until the block is dropped (the heap perhaps longer, if a peer shares it). What was
// allocated is aligned to `ALIGN` or a page, and zero at first; what was adopted is as it was. A bus promises the same of its
// memory; far addresses are names, which streams recognise.
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
                    .map(Handle::Fd)
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
