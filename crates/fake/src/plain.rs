//! Registers of plain memory, for stores that do not fault: those of GPUs.
//!
//! # Model
//!
//! The card looks at the page again and again, and takes out the values that it finds. Memory does not count, so of two
//! stores between two looks, the card sees one. So a test that strikes such a register must wait for an effect of one
//! strike before the next. A stream that strikes twice for one ring is found out only if a look falls between the two,
//! which is a matter of chance.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// A page of registers. Nothing else is in its pages, whatever their size.
pub(crate) struct Plain(NonNull<AtomicU64>);

// SAFETY: it is memory of this value's own, which is accessed atomically.
unsafe impl Send for Plain {}

impl Plain {
    /// The largest page of any system that this may run on.
    pub(crate) const BYTES: usize = 64 << 10;

    const LAYOUT: Layout = match Layout::from_size_align(Self::BYTES, Self::BYTES) {
        Ok(layout) => layout,
        Err(_) => panic!("a page is a power of two"),
    };

    pub(crate) fn new() -> Self {
        // SAFETY: the size is not 0.
        let page = unsafe { alloc_zeroed(Self::LAYOUT) };
        match NonNull::new(page.cast()) {
            Some(page) => Plain(page),
            None => handle_alloc_error(Self::LAYOUT),
        }
    }

    pub(crate) fn page(&self) -> *mut c_void {
        self.0.as_ptr().cast()
    }

    /// The stores since the last call, as far as they can be seen.
    pub(crate) fn take(&self) -> u64 {
        // SAFETY: the page is live, zeroed at first, and only accessed atomically, by devices too.
        let word = unsafe { self.0.as_ref() };
        let mut sum = 0;
        while word.load(Ordering::Acquire) != 0 {
            sum += word.swap(0, Ordering::AcqRel);
        }
        sum
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and given to nobody beyond the life of its counter.
        unsafe { dealloc(self.0.as_ptr().cast(), Self::LAYOUT) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_between_which_somebody_looks_count_each() {
        let register = Plain::new();
        assert_eq!(register.page().addr() % Plain::BYTES, 0);
        // SAFETY: the page is the test's.
        let word = unsafe { &*register.page().cast::<AtomicU64>() };
        for _ in 0..3 {
            word.store(1, Ordering::Release);
            assert_eq!((register.take(), register.take()), (1, 0));
        }
        // Of two stores between two looks, one is seen, because this is memory.
        word.store(1, Ordering::Release);
        word.store(1, Ordering::Release);
        assert_eq!(register.take(), 1);
    }
}
