//! Fetches memory that will be read or written next.
//!
//! # Model
//!
//! Data that a peer has put lies in the caches of the processor that copied it. Each line comes over when it is first
//! read. A kernel that does not walk over it in a straight line waits for one line after the other. So a kernel that is
//! about to read the slots of a window first asks for all lines of the short slots at once. (The wait before it does
//! not: a rank that only waits, and does not read, should leave the lines to the peer, which may write them again.)
//!
//! Processors run ahead of the loads that they wait for. Without a fence they would ask for the lines as soon as they
//! guess that a wait will succeed. At that time the peer may still be writing the lines, and would lose them.
//!
//! Before a stream of the host copies data to a ring in a peer's memory, it asks for the lines for writing. The peer's
//! processor has them since it last read them. Stores would ask for them, too, but for fewer at a time.
//!
//! # Failure
//!
//! There is none. A prefetch is no access, whatever the address.

/// If the stretches are longer in total, none is fetched. From about this size on, processors foresee a kernel's loads,
/// so they are as fast without it. Twice this size takes longer with it (BENCHMARKS.md).
const MOST: usize = 8 << 10;

/// Bytes of a line of the caches.
const LINE: usize = 64;

/// Asks for stretches of memory, after all earlier loads.
// It is not inlined, because it would slow down kernels that have no short slots.
#[inline(never)]
pub fn fetch(stretches: impl Iterator<Item = (*const u8, usize)>) {
    let mut short = stretches.filter(|(_, bytes)| *bytes <= MOST).peekable();
    if short.peek().is_none() {
        return;
    }
    wait_for_loads();
    for (base, bytes) in short {
        lines_of(base, bytes).for_each(prefetch);
    }
}

fn lines_of(base: *const u8, bytes: usize) -> impl Iterator<Item = *const u8> {
    let before = base.addr() % LINE;
    let first = base.wrapping_sub(before);
    (0..before.saturating_add(bytes))
        .step_by(LINE)
        .map(move |at| first.wrapping_add(at))
}

/// Asks for a value that another thread has written.
pub fn fetch_value<T>(value: &T) {
    lines_of(std::ptr::from_ref(value).cast(), size_of::<T>()).for_each(prefetch);
}

/// Asks for memory that another thread has read, and that will be written at once.
#[inline]
pub fn claim(base: *const u8, bytes: usize) {
    lines_of(base, bytes).for_each(prefetch_to_write);
}

/// Makes everything that follows begin after all earlier loads have their values.
#[inline]
fn wait_for_loads() {
    #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
    // SAFETY: every x86-64 has SSE2.
    unsafe {
        std::arch::x86_64::_mm_lfence();
    }
    #[cfg(all(target_arch = "aarch64", not(miri), not(loom)))]
    // SAFETY: barriers, which touch nothing of the program's.
    unsafe {
        std::arch::asm!("dsb ishld", "isb", options(nostack, preserves_flags));
    }
}

/// Asks the processor to load a line into its second cache, because the first is full of data of kernels.
#[inline]
fn prefetch(line: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
    // SAFETY: every x86-64 has SSE; a prefetch of any address is no access, and never faults.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(line.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri), not(loom)))]
    // SAFETY: a prefetch of any address is no access, and never faults.
    unsafe {
        std::arch::asm!("prfm pldl2keep, [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, loom, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = line;
}

/// Asks the processor for a line that no other one has then.
#[inline]
fn prefetch_to_write(line: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
    // SAFETY: a prefetch of any address is no access, and never faults. Processors that do not know it do nothing.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
    }
    #[cfg(all(target_arch = "aarch64", not(miri), not(loom)))]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, loom, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = line;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_does_not_exist_is_not_accessed() {
        let places = [0, 64, usize::MAX].map(std::ptr::without_provenance);
        places.iter().for_each(|place| claim(*place, MOST));
        fetch(places.into_iter().map(|place| (place, MOST)));
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
            let lines = lines_of(std::ptr::without_provenance(address), bytes);
            let lines: Vec<_> = lines.map(|line| line.addr()).collect();
            assert_eq!(lines, expected, "{address} {bytes}");
        }
    }
}
