//! Memory of the host that GPUs reach: what NICs read and write for a device whose memory they cannot work with.
//!
//! # Model
//!
//! It has one address, for the process's threads and for the GPU (`cuMemHostAlloc` with unified addressing). The driver frees such memory only when nothing waits on the device, so it is never given back: what is not used any more is kept for the next who
//! asks. Words in it are added to by one side each: by the GPU alone (doorbells), or by threads of the host alone (all that a NIC's agent adds to, and its poison); so nothing rests on atomic operations over the bus.
//!
//! # Failure
//!
//! [`DeviceError::Exhausted`] when the driver has no more.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use tidegate_ffi::cuda::HostFlags;
use tidegate_hal::device::DeviceError;

use crate::error::Doing;
use crate::gpu::{Gpu, lock};

/// Pieces are whole pages.
const PAGE: usize = 4096;

/// A piece that is not used.
struct Free {
    base: NonNull<u8>,
    bytes: usize,
}

/// All of it that the process has, of one device.
#[derive(Default)]
pub(crate) struct Pinned(Mutex<State>);

#[derive(Default)]
struct State {
    /// By their first addresses, how long they are: all pieces, for ever.
    pieces: BTreeMap<usize, usize>,
    free: Vec<Free>,
}

// SAFETY: the pointers are to memory that is never freed, and that nobody uses while it is in the list.
unsafe impl Send for State {}

impl Pinned {
    /// The free piece that fits best, if it is not too long by far.
    fn reuse(&self, bytes: usize) -> Option<NonNull<u8>> {
        let free = &mut lock(&self.0).free;
        let fits = |piece: &Free| piece.bytes >= bytes && piece.bytes / 2 <= bytes;
        let best = (0..free.len())
            .filter(|index| fits(&free[*index]))
            .min_by_key(|index| free[*index].bytes)?;
        Some(free.swap_remove(best).base)
    }

    fn add(&self, base: NonNull<u8>, bytes: usize) {
        lock(&self.0).pieces.insert(base.addr().get(), bytes);
    }

    /// Takes a piece back.
    pub(crate) fn give_back(&self, base: NonNull<u8>) {
        let mut state = lock(&self.0);
        let bytes = state.pieces[&base.addr().get()];
        state.free.push(Free { base, bytes });
    }

    /// Whether an address lies in it.
    pub(crate) fn holds(&self, address: usize) -> bool {
        let state = lock(&self.0);
        let below = state.pieces.range(..=address).next_back();
        below.is_some_and(|(base, bytes)| address - base < *bytes)
    }
}

impl Gpu {
    /// Zeroed memory of the host, at one address for both sides.
    pub(crate) fn pin(&self, bytes: usize) -> Result<NonNull<u8>, DeviceError> {
        let whole = bytes
            .checked_next_multiple_of(PAGE)
            .ok_or_else(|| DeviceError::Exhausted {
                what: "pinned memory",
                detail: format!("{bytes} bytes"),
            })?;
        let base = match self.pinned.reuse(whole) {
            Some(base) => base,
            None => {
                self.enter()?;
                let flags = HostFlags::PORTABLE | HostFlags::DEVICE_MAP;
                let base = self
                    .driver
                    .mem_host_alloc(whole, flags)
                    .doing("allocating pinned memory")?
                    .cast();
                self.pinned.add(base, whole);
                base
            }
        };
        // SAFETY: it has so many bytes, and nobody else uses it.
        unsafe { base.as_ptr().write_bytes(0, bytes) };
        Ok(base)
    }

    /// The word at an address, if it lies in pinned memory: there threads of the host work with words themselves.
    ///
    /// # Safety
    ///
    /// There is a live word at the address, for `'a`.
    pub(crate) unsafe fn pinned_word<'a>(&self, word: *mut u8) -> Option<&'a AtomicU64> {
        // SAFETY: the caller's promise; words are only accessed atomically.
        self.pinned
            .holds(word.addr())
            .then(|| unsafe { &*word.cast::<AtomicU64>() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(address: usize) -> NonNull<u8> {
        NonNull::new(std::ptr::without_provenance_mut(address)).unwrap()
    }

    #[test]
    fn what_is_given_back_is_used_again_where_it_fits() {
        let pinned = Pinned::default();
        for (base, bytes) in [(0x10000, 4096), (0x20000, 16384), (0x40000, 65536)] {
            pinned.add(piece(base), bytes);
            pinned.give_back(piece(base));
        }
        // Neither too short nor much too long.
        assert_eq!(pinned.reuse(20000).map(|base| base.addr().get()), None);
        assert_eq!(pinned.reuse(8192), Some(piece(0x20000)));
        assert_eq!(pinned.reuse(8192), None);
        assert_eq!(pinned.reuse(4096), Some(piece(0x10000)));
        assert_eq!(pinned.reuse(65536), Some(piece(0x40000)));
    }

    #[test]
    fn addresses_are_told_apart() {
        let pinned = Pinned::default();
        pinned.add(piece(0x10000), 4096);
        let held = [0xffff, 0x10000, 0x10fff, 0x11000].map(|address| pinned.holds(address));
        assert_eq!(held, [false, true, true, false]);
    }
}
