//! The atomics and the sleeping of the machine.

use std::time::Duration;

use rustix::thread::futex;

pub(crate) use std::hint::spin_loop as pause;
pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
pub use std::sync::{Mutex, MutexGuard};
pub(crate) use std::thread::yield_now;

/// A count to sleep on. Works between processes that share the memory.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Futex(AtomicU32);

impl Futex {
    pub(crate) fn new(value: u32) -> Self {
        Futex(AtomicU32::new(value))
    }

    pub(crate) fn load(&self, order: Ordering) -> u32 {
        self.0.load(order)
    }

    pub(crate) fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
        self.0.fetch_add(value, order)
    }

    /// Sleeps while the count is `expected`, until it is woken, but no longer than `limit`. It may return early.
    pub(crate) fn sleep_while(&self, expected: u32, limit: Option<Duration>) {
        let limit = limit.and_then(|limit| rustix::time::Timespec::try_from(limit).ok());
        // An error says that the value has changed, that the time is over, or that a signal came. In each case the
        // caller looks again.
        let _ = futex::wait(&self.0, futex::Flags::empty(), expected, limit.as_ref());
    }

    /// Wakes everybody who sleeps.
    pub(crate) fn wake_all(&self) {
        let _ = futex::wake(&self.0, futex::Flags::empty(), i32::MAX as u32);
    }
}
