//! Notices that arrive and that nothing here waits for, and failures of operations that nobody here has begun.
//!
//! A late notice may name memory that is no longer registered, and anybody who reaches an endpoint can send it
//! anything. Neither may do harm: such notices and failures are dropped and counted. The first one is reported at
//! once, and the total at the end. So nobody outside can fill a log.

use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_hal::tell;

/// Counts the strays of an endpoint, with its ears and rails, or those that only a wire sees.
#[derive(Default)]
pub(crate) struct Strays(AtomicU64);

impl Strays {
    /// Counts a notice or a failure that is dropped.
    #[cold]
    pub(crate) fn drops(&self, what: impl Display) {
        if self.0.fetch_add(1, Ordering::Relaxed) == 0 {
            tell(|| tracing::warn!("{what} (further ones are only counted)"));
        }
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Strays {
    fn drop(&mut self) {
        let count = *self.0.get_mut();
        if count > 1 {
            tell(|| {
                tracing::warn!("{count} notices, events and failures belonged to no operation")
            });
        }
    }
}
