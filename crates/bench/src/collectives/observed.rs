//! What one call sends, as `observe` counts it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use tidegate_core::observe::{Event, Known, Observer};

/// Counts the bytes and messages that this rank's streams send to other ranks.
#[derive(Default)]
pub(super) struct Sent {
    known: Mutex<Known>,
    bytes: AtomicU64,
    messages: AtomicU64,
}

impl Sent {
    /// Bytes and messages since the last call.
    pub(super) fn take(&self) -> [u64; 2] {
        [&self.bytes, &self.messages].map(|count| count.swap(0, Relaxed))
    }
}

impl Observer for Sent {
    fn event(&self, event: &Event) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.learn(event);
        if let Event::Leg { leg, .. } = event
            && let Some(part) = known.part(leg)
            && part.completes().is_some()
        {
            self.bytes.fetch_add(part.bytes, Relaxed);
            self.messages.fetch_add(u64::from(part.bytes != 0), Relaxed);
        }
    }
}
