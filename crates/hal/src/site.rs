//! The line of the program that made a call.

use std::panic::Location;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// A call that the program made, by file, line and column.
pub type CallSite = &'static Location<'static>;

/// Where the last call of some kind was made, for reports. If several threads make calls, a thread may read an older
/// place than the last.
#[derive(Debug, Default)]
pub struct LastSite {
    last: AtomicPtr<Location<'static>>,
    several: AtomicBool,
}

impl LastSite {
    /// Notes a call.
    #[inline]
    pub fn note(&self, site: CallSite) {
        let site = ptr::from_ref(site).cast_mut();
        if self.last.load(Ordering::Relaxed) != site {
            self.changes(site);
        }
    }

    #[cold]
    fn changes(&self, site: *mut Location<'static>) {
        let before = self.get();
        self.last.store(site, Ordering::Relaxed);
        // One call may be compiled more than once: so compare the lines, not the addresses.
        if before.is_some() && before != self.get() {
            self.several.store(true, Ordering::Relaxed);
        }
    }

    /// Where the last call was made, if there was one.
    pub fn get(&self) -> Option<CallSite> {
        // SAFETY: it is null, or was a reference that lives for ever.
        unsafe { self.last.load(Ordering::Relaxed).as_ref() }
    }

    /// Whether calls were made in several places.
    pub fn is_one_of_several(&self) -> bool {
        self.several.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_in_one_place_are_told_from_calls_in_several() {
        let (here, there) = (Location::caller(), Location::caller());
        let last = LastSite::default();
        assert_eq!(last.get(), None);
        for _ in 0..3 {
            last.note(here);
        }
        assert_eq!((last.get(), last.is_one_of_several()), (Some(here), false));
        last.note(there);
        assert_eq!((last.get(), last.is_one_of_several()), (Some(there), true));
    }
}
