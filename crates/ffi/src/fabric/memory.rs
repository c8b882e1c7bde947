//! Registered memory.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::counter::Counter;
use super::domain::Domain;
use super::endpoint::{Desc, Endpoint};
use super::error::{FabricError, Result};
use super::flags::{Access, Counted, MrMode};
use super::object::{Keep, Owned, required};
use super::sys::{self, Zeroed};

/// How memory is registered.
#[derive(Debug, Clone, Default)]
pub struct RegisterOptions<'a> {
    /// The accesses that are allowed.
    pub access: Access,
    /// The key, if the provider does not choose it. By default, one that this process has not used. No other memory of
    /// the domain has the same key.
    pub key: Option<u64>,
    /// The endpoint that the memory belongs to, if [`MrMode::ENDPOINT`] demands it; ignored otherwise.
    pub endpoint: Option<&'a Arc<Endpoint>>,
    /// The counter of peers' writes to it. Needs [`Caps::RMA_EVENT`](super::Caps::RMA_EVENT).
    pub counter: Option<&'a Arc<Counter>>,
}

/// The description that a peer needs to reach memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionKey {
    /// The remote address of its first byte.
    pub base: u64,
    /// Its key, as bytes: 8 in most cases.
    pub key: Vec<u8>,
}

/// Registered memory (`fi_mr(3)`), until it is dropped.
pub struct MemoryRegion {
    raw: ManuallyDrop<Owned<sys::fid_mr>>,
    base: u64,
    len: usize,
    // The values that must outlive the registration, and the memory's owner. They are leaked if the library refuses to
    // close it.
    alive: ManuallyDrop<Alive>,
}

struct Alive {
    domain: Arc<Domain>,
    _endpoint: Option<Arc<Endpoint>>,
    _counter: Option<Arc<Counter>>,
    _keep: Keep,
}

/// The next automatic key. Keys are small numbers, which fit all providers.
static NEXT_KEY: AtomicU64 = AtomicU64::new(1);

const CALL: &str = "fi_mr_regattr";

impl MemoryRegion {
    /// Registers memory of the CPU (`fi_mr_regattr`), binds it where necessary, and enables it.
    ///
    /// # Errors
    ///
    /// [`is_refused`](FabricError::is_refused) for memory that must belong to an endpoint, without one, and whatever
    /// the provider says.
    ///
    /// # Safety
    ///
    /// The memory lives as long as `keep`. Anybody who can reach the endpoint, and has or guesses the key, may make the
    /// accesses of `options.access` at any time until this value is dropped. This process accesses the memory only in
    /// ways that allow for that.
    pub unsafe fn register(
        domain: &Arc<Domain>,
        address: *mut c_void,
        len: usize,
        options: &RegisterOptions<'_>,
        keep: Keep,
    ) -> Result<MemoryRegion> {
        let mode = domain.info().mr_mode();
        let endpoint = options.endpoint.filter(|_| mode.contains(MrMode::ENDPOINT));
        if mode.contains(MrMode::ENDPOINT) && endpoint.is_none() {
            return Err(FabricError::refused(
                CALL,
                "memory belongs to an endpoint here, and none was given",
            ));
        }
        let others = [
            endpoint.map(|e| e.domain()),
            options.counter.map(|c| c.domain()),
        ];
        if others
            .iter()
            .flatten()
            .any(|other| !Arc::ptr_eq(other, domain))
        {
            return Err(FabricError::refused(
                CALL,
                "the endpoint or the counter is of another domain",
            ));
        }
        let iov = sys::iovec {
            iov_base: address,
            iov_len: len,
        };
        let mut attr = sys::mr_attr::zeroed();
        attr.attr.mr_iov = &iov;
        attr.attr.iov_count = 1;
        attr.attr.access = options.access.0;
        attr.attr.requested_key = options
            .key
            .unwrap_or_else(|| NEXT_KEY.fetch_add(1, Ordering::Relaxed));
        // SAFETY: the domain is alive, and its table lives as long.
        let register = unsafe { required!((*domain.as_raw()).mr, fi_ops_mr, regattr, CALL) }?;
        let mut raw = null_mut();
        // SAFETY: the domain is alive; the attributes and their list live, with zeros behind them where newer libraries
        // look; one pointer is written into a live variable; the caller vouches for the memory.
        let answer = unsafe { register(domain.object().fid(), &attr.attr, 0, &mut raw) };
        domain.library().check(CALL, answer.into())?;
        // SAFETY: the library made it for this caller.
        let raw = unsafe { Owned::new(domain.library(), CALL, raw) }?;
        // From here on, a drop closes the registration before the objects that it needs.
        let region = MemoryRegion {
            raw: ManuallyDrop::new(raw),
            base: if mode.intersects(MrMode::VIRT_ADDR | MrMode::BASIC) {
                address as u64
            } else {
                0
            },
            len,
            alive: ManuallyDrop::new(Alive {
                domain: Arc::clone(domain),
                _endpoint: endpoint.cloned(),
                _counter: options.counter.cloned(),
                _keep: keep,
            }),
        };
        if let Some(counter) = options.counter {
            // SAFETY: the counter is kept as long as the region, which nobody else has yet.
            unsafe {
                region.raw.bind(
                    "fi_mr_bind",
                    counter.object().fid(),
                    Counted::REMOTE_WRITE.0,
                )
            }?;
        }
        if let Some(endpoint) = endpoint {
            // SAFETY: the endpoint is kept as long as the region, which nobody else has yet.
            unsafe { region.raw.bind("fi_mr_bind", endpoint.object().fid(), 0) }?;
        }
        let to_enable =
            endpoint.is_some() || options.counter.is_some() && mode.contains(MrMode::RMA_EVENT);
        if to_enable {
            // SAFETY: the command takes no argument.
            unsafe {
                region
                    .raw
                    .control("fi_mr_enable", sys::FI_ENABLE, null_mut())
            }?;
        }
        Ok(region)
    }

    /// The handle for operations with local buffers in it (`fi_mr_desc`).
    pub fn desc(&self) -> Desc {
        // SAFETY: the object lives as long as this value; the field does not change once the region is enabled.
        Desc(unsafe { (*self.raw.as_ptr()).mem_desc })
    }

    /// The key (`fi_mr_key`). `None` if keys are strings of bytes ([`export`](Self::export) handles both).
    pub fn key(&self) -> Option<u64> {
        // SAFETY: as for `desc`.
        let key = unsafe { (*self.raw.as_ptr()).key };
        (key != sys::FI_KEY_NOTAVAIL).then_some(key)
    }

    /// The remote address of its first byte: the local address if the mode has `VIRT_ADDR`, and 0 otherwise.
    pub fn remote_base(&self) -> u64 {
        self.base
    }

    /// The domain.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.alive.domain
    }

    /// The description for a peer, whatever the length of keys.
    ///
    /// # Errors
    ///
    /// The errors of the provider.
    pub fn export(&self) -> Result<RegionKey> {
        if let Some(key) = self.key() {
            return Ok(RegionKey {
                base: self.base,
                key: key.to_le_bytes().to_vec(),
            });
        }
        const CALL: &str = "fi_mr_raw_attr";
        let mut length = self.domain().info().key_size().max(16);
        // Call it twice: the first call says how much room it needs.
        for _ in 0..2 {
            let (mut base, mut key) = (0, vec![0u8; length]);
            let mut attr = sys::fi_mr_raw_attr {
                flags: 0,
                base_addr: &mut base,
                raw_key: key.as_mut_ptr(),
                key_size: &mut length,
            };
            // SAFETY: the command takes these attributes, which live; the buffer has room for as many bytes as the size
            // says.
            let answer = unsafe {
                self.raw
                    .control(CALL, sys::FI_GET_RAW_MR, (&raw mut attr).cast())
            };
            match answer {
                Ok(()) => {
                    key.truncate(length);
                    return Ok(RegionKey { base, key });
                }
                Err(error) if error.code == sys::FI_ETOOSMALL => {}
                Err(error) => return Err(error),
            }
        }
        Err(FabricError::unexpected(
            CALL,
            "it never says how long the key is",
        ))
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        // SAFETY: it is taken once, here.
        let raw = unsafe { ManuallyDrop::take(&mut self.raw) };
        if raw.close_now() {
            // SAFETY: as above. The registration is gone, and nobody touches the memory through it any more.
            unsafe { ManuallyDrop::drop(&mut self.alive) };
        }
    }
}

impl std::fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryRegion")
            .field("base", &self.base)
            .field("len", &self.len)
            .field("key", &self.key())
            .finish_non_exhaustive()
    }
}

/// A peer's memory, in the form that operations of this domain take.
#[derive(Debug)]
pub struct RemoteRegion {
    base: u64,
    key: u64,
    /// Set if the key was mapped and must be unmapped.
    mapped: Option<Arc<Domain>>,
}

impl RemoteRegion {
    /// The remote address of its first byte.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Its key.
    pub fn key(&self) -> u64 {
        self.key
    }
}

impl Drop for RemoteRegion {
    fn drop(&mut self) {
        if let Some(domain) = &self.mapped {
            let mut key = self.key;
            // SAFETY: the command takes one number, which lives. Should it fail, the provider keeps a little memory.
            let _ = unsafe {
                domain
                    .object()
                    .control("fi_mr_unmap_key", sys::FI_UNMAP_KEY, (&raw mut key).cast())
            };
        }
    }
}

impl Domain {
    /// Makes a peer's memory known here, from the peer's [`MemoryRegion::export`]. Operations with it must be complete
    /// when it is dropped.
    ///
    /// # Errors
    ///
    /// [`is_refused`](FabricError::is_refused) for a key of the wrong length, and the errors of the provider.
    pub fn import(self: &Arc<Self>, key: &RegionKey) -> Result<RemoteRegion> {
        const CALL: &str = "fi_mr_map_raw";
        if !self.info().mr_mode().contains(MrMode::RAW) {
            let Ok(bytes) = <[u8; 8]>::try_from(&*key.key) else {
                return Err(FabricError::refused(
                    CALL,
                    format!("a key of {} bytes, where 8 are needed", key.key.len()),
                ));
            };
            return Ok(RemoteRegion {
                base: key.base,
                key: u64::from_le_bytes(bytes),
                mapped: None,
            });
        }
        let (mut bytes, mut number) = (key.key.clone(), 0);
        if bytes.len() < self.info().key_size() {
            return Err(FabricError::refused(
                CALL,
                format!(
                    "a key of {} bytes, where {} are needed",
                    bytes.len(),
                    self.info().key_size()
                ),
            ));
        }
        let mut map = sys::fi_mr_map_raw {
            flags: 0,
            base_addr: key.base,
            raw_key: bytes.as_mut_ptr(),
            key_size: bytes.len(),
            key: &mut number,
        };
        // SAFETY: the command takes this structure, which lives, and reads no more of the key than it has.
        unsafe {
            self.object()
                .control(CALL, sys::FI_MAP_RAW_MR, (&raw mut map).cast())
        }?;
        Ok(RemoteRegion {
            base: key.base,
            key: number,
            mapped: Some(Arc::clone(self)),
        })
    }
}
