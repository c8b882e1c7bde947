//! Small things that the whole crate uses, and that use nothing of the crate.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

pub(crate) use tidegate_hal::lock;

/// What the kind of NIC is called.
pub(crate) const NAME: &str = "fabric";

/// The most rails of a rank.
pub(crate) const MOST_RAILS: usize = 4;

/// The most writes that the engine has handed to a rail, and not heard of again.
pub(crate) const MOST_HANDED: usize = 64;

/// A lock that one thread takes again and again without a pause, and which others get nevertheless.
pub(crate) struct Yielding<T> {
    inner: Mutex<T>,
    /// How many others want it.
    wanted: AtomicUsize,
}

impl<T> Yielding<T> {
    pub(crate) fn new(value: T) -> Self {
        Yielding {
            inner: Mutex::new(value),
            wanted: AtomicUsize::new(0),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.wanted.fetch_add(1, Ordering::Relaxed);
        let guard = lock(&self.inner);
        self.wanted.fetch_sub(1, Ordering::Relaxed);
        guard
    }

    /// For the one thread: after all that want it now.
    pub(crate) fn lock_last(&self) -> MutexGuard<'_, T> {
        while self.wanted.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
        lock(&self.inner)
    }

    /// `None` if somebody has it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.inner.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// Where a thread rests until another calls it.
#[derive(Default)]
pub(crate) struct Chair {
    called: Mutex<bool>,
    bell: Condvar,
}

impl Chair {
    /// Rests until somebody calls, or has called since the last time; `false` if nobody does.
    pub(crate) fn sit(&self, limit: Duration) -> bool {
        let (mut called, _) = self
            .bell
            .wait_timeout_while(lock(&self.called), limit, |called| !*called)
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *called)
    }

    pub(crate) fn call(&self) {
        if !std::mem::replace(&mut *lock(&self.called), true) {
            self.bell.notify_all();
        }
    }
}
