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

use std::any::Any;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::Mutex;

use tidegate_hal::lock;
use tidegate_hal::memory::Ptr;
use tidegate_hal::process::Unforked;

/// The size of a piece is a multiple of this.
pub(crate) const PAGE: usize = 4096;

/// A piece that is not used.
struct Free {
    base: NonNull<u8>,
    bytes: usize,
}

/// All pinned memory that the process has for one device.
#[derive(Default)]
pub(crate) struct Pinned(Mutex<State>);

/// A word of the device in which it counts what it adds to a word of the host.
pub(crate) struct Count {
    /// Its address.
    pub(crate) at: u64,
    /// The memory that it lies in.
    pub(crate) _memory: Box<dyn Any + Send>,
}

#[derive(Default)]
struct State {
    /// The sizes of all pieces, by their first addresses. Pieces are never removed.
    pieces: BTreeMap<usize, usize>,
    free: Vec<Free>,
    /// The blocks in which the GPU counts, by the addresses of the words that it adds to. They are freed with the
    /// pieces of the words.
    counts: BTreeMap<usize, Count>,
}

// SAFETY: the pointers are to memory that is never freed, and that nobody uses while it is in the list.
unsafe impl Send for State {}

impl Pinned {
    /// The free piece that fits best, unless it is far too large.
    pub(crate) fn reuse(&self, bytes: usize) -> Option<NonNull<u8>> {
        let free = &mut lock(&self.0).free;
        let fits = |piece: &Free| piece.bytes >= bytes && piece.bytes / 2 <= bytes;
        let best = (0..free.len())
            .filter(|index| fits(&free[*index]))
            .min_by_key(|index| free[*index].bytes)?;
        Some(free.swap_remove(best).base)
    }

    pub(crate) fn add(&self, base: NonNull<u8>, bytes: usize) {
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

    /// The address of the count of a word.
    pub(crate) fn count_of(&self, word: usize) -> Option<u64> {
        lock(&self.0).counts.get(&word).map(|count| count.at)
    }

    /// Adds the count of a word, unless another thread has added one meanwhile. Returns the address of the one that
    /// counts, and the other one.
    pub(crate) fn add_count(&self, word: usize, count: Count) -> (u64, Option<Count>) {
        let mut state = lock(&self.0);
        match state.counts.get(&word) {
            Some(known) => (known.at, Some(count)),
            None => {
                let at = count.at;
                state.counts.insert(word, count);
                (at, None)
            }
        }
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
