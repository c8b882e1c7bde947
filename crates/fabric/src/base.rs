//! What all files of this crate stand on. It uses none of them.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What the kind of NIC is called.
pub(crate) const NAME: &str = "fabric";

/// The most rails of a rank.
pub(crate) const MOST_RAILS: usize = 4;

/// The most writes that the engine has handed to a rail, and not heard of again.
pub(crate) const MOST_HANDED: usize = 64;

/// A poisoned lock means that a panic came between plain assignments; the data is whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
