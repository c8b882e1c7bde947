//! Registered memory, here and at peers.

use std::ffi::c_void;
use std::sync::atomic::AtomicU64;

use serde::{Deserialize, Serialize};
use tidegate_ffi::fabric::{Access, FabricError, RegionKey, RemoteRegion};
use tidegate_hal::nic::NicError;

/// Bytes of a pad.
pub(super) const PAD: usize = 8;

/// The key that a peer needs to reach the memory.
#[derive(Serialize, Deserialize)]
pub(super) struct Key {
    base: u64,
    key: Vec<u8>,
}

impl From<RegionKey> for Key {
    fn from(key: RegionKey) -> Self {
        Key {
            base: key.base,
            key: key.key,
        }
    }
}

impl Key {
    /// The key for a region of `bytes` bytes, if the region ends within the address space, because this rank will add
    /// offsets to the base.
    pub(super) fn checked(self, bytes: usize) -> Result<RegionKey, String> {
        let Key { base, key } = self;
        match base.checked_add(bytes as u64) {
            Some(_) => Ok(RegionKey { base, key }),
            None => Err(format!("{bytes} bytes at {base:#x} are no memory")),
        }
    }
}

/// Memory that notices without data are sent from, and written to.
#[derive(Default)]
pub(super) struct Pad(AtomicU64);

impl Pad {
    pub(super) fn at(&self) -> *mut c_void {
        self.0.as_ptr().cast()
    }
}

/// A peer's registered memory.
pub struct Remote {
    pub(super) region: RemoteRegion,
}

pub(super) fn system(what: &'static str) -> impl Fn(FabricError) -> NicError {
    move |error| NicError::System {
        what,
        detail: error.to_string(),
    }
}

/// How peers and this endpoint may access registered memory.
pub(super) fn access() -> Access {
    Access::SOURCE | Access::SINK | Access::REMOTE_READ | Access::REMOTE_WRITE
}
