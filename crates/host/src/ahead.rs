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
pub(crate) unsafe fn fetch(ahead: &[Ahead]) {
    let mut short = ahead.iter().filter(|slot| slot.bytes <= MOST).peekable();
    if short.peek().is_none() {
        return;
    }
    wait_for_loads();
    for slot in short {
        // SAFETY: the caller's promise.
        let flip = if unsafe { is_odd(slot.parity) } {
            slot.flip
        } else {
            0
        };
        let base = slot.base.0.wrapping_add(flip);
        for at in (0..slot.bytes).step_by(LINE) {
            prefetch(base.wrapping_add(at));
        }
    }
}

/// Asks for a value.
pub(crate) fn fetch_value<T>(value: &T) {
    let base = std::ptr::from_ref(value).cast::<u8>();
    for at in (0..size_of::<T>()).step_by(LINE) {
        prefetch(base.wrapping_add(at));
    }
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
    use tidegate_hal::memory::Ptr;

    use super::*;

    #[test]
    fn memory_that_does_not_exist_is_not_accessed() {
        let ahead = [0, 64, usize::MAX].map(|address| Ahead {
            base: Ptr(std::ptr::without_provenance_mut(address)),
            flip: 0,
            bytes: MOST,
            parity: Ptr::NULL,
        });
        // SAFETY: there are no parities.
        unsafe { fetch(&ahead) };
    }
}
