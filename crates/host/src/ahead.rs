//! Fetches what kernels will read next.
//!
//! # Model
//!
//! What a peer has put lies in the caches of the processor that has copied it, and each line comes over when it is first
//! read: a kernel that walks over it otherwise than in a straight line waits for one after the other. So when a batch is over,
//! the stream asks for all of it at once ([`Batch::ahead`](tidegate_hal::batch::Batch::ahead)), and the kernel finds it on
//! its way.
//!
//! Processors run ahead of the loads that they wait for: without a fence they ask for the lines as soon as they guess that
//! the wait will succeed, while the peer still writes them, and take them away from it.
//!
//! # Failure
//!
//! None. A prefetch is no access, whatever the address.

use tidegate_hal::batch::Ahead;

use crate::moves::is_odd;

/// Longer slots are left alone, all of them: from about this size on a kernel's own loads, which processors foresee, are as
/// fast, and twice as long ones take longer if they are fetched (BENCHMARKS.md).
const MOST: usize = 8 << 10;

/// Bytes of a line of the caches.
const LINE: usize = 64;

/// Asks for the memory.
///
/// # Safety
///
/// Every parity that is not null points to a live word.
// Within the executor it would be in the way of every batch: a share of Faces takes 5% longer so.
#[inline(never)]
pub(crate) unsafe fn fetch(ahead: &[Ahead]) {
    let mut short = ahead.iter().filter(|slot| slot.bytes <= MOST).peekable();
    if short.peek().is_none() {
        return;
    }
    wait_for_loads();
    for slot in short {
        // SAFETY: the caller's promise.
        unsafe { lines(slot) }.for_each(prefetch);
    }
}

/// The lines of what is said to be read.
///
/// # Safety
///
/// A parity that is not null points to a live word.
unsafe fn lines(slot: &Ahead) -> impl Iterator<Item = *const u8> + use<> {
    // SAFETY: the caller's promise.
    let flip = match unsafe { is_odd(slot.parity) } {
        true => slot.flip,
        false => 0,
    };
    lines_of(slot.base.0.wrapping_add(flip), slot.bytes)
}

fn lines_of(base: *const u8, bytes: usize) -> impl Iterator<Item = *const u8> {
    let before = base.addr() % LINE;
    let first = base.wrapping_sub(before);
    (0..before.saturating_add(bytes))
        .step_by(LINE)
        .map(move |at| first.wrapping_add(at))
}

/// Asks for a value.
pub(crate) fn fetch_value<T>(value: &T) {
    lines_of(std::ptr::from_ref(value).cast(), size_of::<T>()).for_each(prefetch);
}

/// Lets nothing that follows begin before all earlier loads have their values.
#[inline]
fn wait_for_loads() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 has SSE2.
    unsafe {
        std::arch::x86_64::_mm_lfence();
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: barriers, which touch nothing of the program's.
    unsafe {
        std::arch::asm!("dsb ishld", "isb", options(nostack, preserves_flags));
    }
}

/// Asks the processor for a line, in its second cache: the first is full of what kernels work on.
#[inline]
fn prefetch(line: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 has SSE; a prefetch of any address is no access, and never faults.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(line.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a prefetch of any address is no access, and never faults.
    unsafe {
        std::arch::asm!("prfm pldl2keep, [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = line;
}

#[cfg(test)]
mod tests {
    use tidegate_hal::batch::QUANTUM;
    use tidegate_hal::memory::Ptr;
    use tidegate_words::Word;

    use super::*;

    fn at(address: usize, bytes: usize) -> Ahead {
        Ahead {
            base: Ptr(std::ptr::without_provenance_mut(address)),
            flip: 0,
            bytes,
            parity: Ptr::NULL,
        }
    }

    #[test]
    fn memory_that_does_not_exist_is_not_accessed() {
        let ahead = [0, 64, usize::MAX].map(|address| at(address, MOST));
        // SAFETY: there are no parities.
        unsafe { fetch(&ahead) };
    }

    #[test]
    fn every_line_that_is_touched_is_asked_for_once() {
        for (address, bytes, expected) in [
            (128, 0, vec![]),
            (128, 1, vec![128]),
            (128, 64, vec![128]),
            (128, 65, vec![128, 192]),
            (190, 2, vec![128]),
            (190, 3, vec![128, 192]),
            (160, 104, vec![128, 192, 256]),
        ] {
            // SAFETY: there is no parity.
            let lines = unsafe { lines(&at(address, bytes)) };
            let lines: Vec<_> = lines.map(|line| line.addr()).collect();
            assert_eq!(lines, expected, "{address} {bytes}");
        }
    }

    #[test]
    fn the_buffer_is_that_of_the_epoch_that_is_over() {
        // Epoch 0 is over when its wait has advanced the operand to one quantum.
        for (epochs, expected) in [(1, 4096), (2, 8192), (3, 4096)] {
            let word = Word::new(epochs * QUANTUM);
            let slot = Ahead {
                flip: 4096,
                parity: Ptr(std::ptr::from_ref(&word).cast_mut().cast()),
                ..at(4096, 8)
            };
            // SAFETY: the word is live.
            let lines: Vec<_> = unsafe { lines(&slot) }.map(|line| line.addr()).collect();
            assert_eq!(lines, [expected]);
        }
    }
}
