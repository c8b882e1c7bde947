//! Small things that the whole crate uses, and that use nothing of the crate.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

pub(crate) use tidegate_hal::lock;

/// The name of this kind of NIC.
pub(crate) const NAME: &str = "fabric";

/// The most rails of a rank.
pub(crate) const MOST_RAILS: usize = 4;

/// The most writes that the engine has handed to a rail and not collected.
pub(crate) const MOST_HANDED: usize = 64;

/// The variables that say how many ranks this node has. They are set by this library's launcher and others with the
/// same name, by Open MPI, and by MPICH.
pub(crate) const RANKS_ON_NODE: [&str; 3] = [
    "LOCAL_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
];

/// A lock that one thread takes again and again without a pause, and that other threads can get all the same.
pub(crate) struct Yielding<T> {
    inner: Mutex<T>,
    /// How many other threads want it.
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

    /// Locks for the one thread, after all others that want it now.
    pub(crate) fn lock_last(&self) -> MutexGuard<'_, T> {
        while self.wanted.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
        lock(&self.inner)
    }

    /// `None` if another thread has the lock.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.inner.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// A place in which a thread rests until another thread calls it.
#[derive(Default)]
pub(crate) struct Chair {
    called: Mutex<bool>,
    bell: Condvar,
}

impl Chair {
    /// Rests until a thread calls, or has called since the last time. Returns `false` if the limit passes without a
    /// call.
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
