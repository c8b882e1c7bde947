//! Memory of the host that GPUs reach. NICs read and write it for a device whose memory they cannot access.
//!
//! # Model
//!
//! The memory has one address, for the process's threads and for the GPU ([`Driver::pin`](crate::driver::Driver::pin)).
//! The driver frees such memory only when nothing waits on the device, so it is never freed here: a piece that is not
//! used any more is kept for the next use.
//!
//! Each word in it is written by one side only. The GPU alone writes doorbells. Threads of the host alone write the
//! words that a NIC's agent adds to, and poison them. So nothing depends on atomic operations over the bus. A word that
//! the GPU adds to has a *count* in the GPU's own memory: the GPU adds to the count, and stores the result to the word.
//!
//! # Failure
//!
//! [`DeviceError::Exhausted`] when the driver has no more.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tidegate_hal::device::DeviceError;
use tidegate_hal::memory::{Block as _, Ptr, Sharing};
use tidegate_hal::process::Unforked;

use crate::block::GpuBlock;
use crate::driver::Doing;
use crate::gpu::{Gpu, lock};

/// The size of a piece is a multiple of this.
const PAGE: usize = 4096;

/// A piece that is not used.
struct Free {
    base: NonNull<u8>,
    bytes: usize,
}

/// All pinned memory that the process has for one device.
#[derive(Default)]
pub(crate) struct Pinned(Mutex<State>);

#[derive(Default)]
struct State {
    /// The sizes of all pieces, by their first addresses. Pieces are never removed.
    pieces: BTreeMap<usize, usize>,
    free: Vec<Free>,
    /// The blocks in which the GPU counts, by the addresses of the words that it adds to. They are freed with the
    /// pieces of the words.
    counts: BTreeMap<usize, GpuBlock>,
}

// SAFETY: the pointers are to memory that is never freed, and that nobody uses while it is in the list.
unsafe impl Send for State {}

impl Pinned {
    /// The free piece that fits best, unless it is far too large.
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
        let first = base.addr().get();
        let mut state = lock(&self.0);
        let bytes = state.pieces[&first];
        let mut counts = state.counts.split_off(&first);
        state.counts.append(&mut counts.split_off(&(first + bytes)));
        state.free.push(Free { base, bytes });
        // The counts are dropped without the lock, because this calls the driver.
        drop(state);
        drop(counts);
    }

    /// Whether an address lies in pinned memory.
    pub(crate) fn holds(&self, address: usize) -> bool {
        let state = lock(&self.0);
        let below = state.pieces.range(..=address).next_back();
        below.is_some_and(|(base, bytes)| address - base < *bytes)
    }
}

/// Hides pinned memory from forked children for as long as it exists. The driver may have done so already, and then the
/// kernel may refuse it for some pages. That does no harm, since nothing else here leads a child to them.
pub(crate) fn keep_from_children(base: NonNull<u8>, bytes: usize) {
    // SAFETY: the memory is never given back to the driver, and everything else in its pages is the driver's, too.
    let unforked = unsafe { Unforked::new((), Ptr(base.as_ptr()), bytes) };
    std::mem::forget(unforked);
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
                let base = self.driver.pin(whole).doing("allocating pinned memory")?;
                keep_from_children(base, whole);
                self.pinned.add(base, whole);
                base
            }
        };
        // SAFETY: the piece has at least this many bytes, and nobody else uses it.
        unsafe { base.as_ptr().write_bytes(0, bytes) };
        Ok(base)
    }

    /// The address of the count of a word that lies in pinned memory, and to which only this GPU adds; 0 for any other
    /// word.
    ///
    /// # Safety
    ///
    /// The word is live.
    pub(crate) unsafe fn count_of(self: &Arc<Self>, word: Ptr) -> Result<u64, DeviceError> {
        // SAFETY: the caller's promise.
        let Some(value) = (unsafe { self.pinned_word(word.0) }) else {
            return Ok(0);
        };
        let found = |state: &State| {
            let count = state.counts.get(&word.0.addr());
            count.map(|count| count.base().0.addr() as u64)
        };
        if let Some(count) = found(&lock(&self.pinned.0)) {
            return Ok(count);
        }
        let count = GpuBlock::alloc(self, size_of::<u64>(), Sharing::Private)?;
        let value = value.load(Ordering::Relaxed);
        if value != 0 {
            let bytes = value.to_ne_bytes();
            // SAFETY: the block is as large as the count, and only this call uses it; the source lives until the
            // service stream is done.
            self.serve("setting a count", |driver, stream| unsafe {
                let to = count.base().0.addr() as u64;
                driver.copy_in(to, bytes.as_ptr(), bytes.len(), stream)
            })?;
        }
        // Another thread may have inserted a count meanwhile. Nothing has been counted in ours yet, because no program
        // names it.
        let mut state = lock(&self.pinned.0);
        let spare = match found(&state) {
            Some(_) => Some(count),
            None => state.counts.insert(word.0.addr(), count),
        };
        let count = found(&state).expect("it was there, or has been put there");
        drop(state);
        drop(spare);
        Ok(count)
    }

    /// The word at an address, if it lies in pinned memory. Threads of the host access such words directly.
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
        // The piece must be neither too short nor much too long.
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
