//! Locks.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A poisoned lock means that a test failed under it; others go on.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
