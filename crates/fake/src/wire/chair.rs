//! Sleep of one thread.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use tidegate_hal::lock;

/// A place in which a thread rests until another thread calls it.
#[derive(Default)]
pub(super) struct Chair {
    called: Mutex<bool>,
    bell: Condvar,
}

impl Chair {
    /// Rests until a thread calls, or has called since the last time. Returns `false` if the limit passes without a
    /// call.
    pub(super) fn sit(&self, limit: Duration) -> bool {
        let (mut called, _) = self
            .bell
            .wait_timeout_while(lock(&self.called), limit, |called| !*called)
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *called)
    }

    pub(super) fn call(&self) {
        if !std::mem::replace(&mut *lock(&self.called), true) {
            self.bell.notify_all();
        }
    }
}
