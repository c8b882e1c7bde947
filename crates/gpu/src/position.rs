//! How far a stream is known to have come, and the futures that wait until it has passed a mark.
//!
//! # Model
//!
//! Wakers are the program's code: copying, waking or dropping one may panic, and takes as long as it likes. So all of
//! that is done without the lock, and panics are caught ([`tell`]). Nor is the driver called with the lock: a call may
//! wait until a stream has room.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use tidegate_hal::{lock, tell};

#[derive(Default)]
pub(crate) struct Position {
    passed: AtomicU64,
    /// For each future: its mark, its number and its waker.
    futures: Mutex<Vec<(u64, u64, Waker)>>,
}

impl Position {
    /// How many items the stream is known to have passed.
    pub(crate) fn passed(&self) -> u64 {
        self.passed.load(Ordering::Acquire)
    }

    /// Notes that the stream has passed `mark`. It wakes nobody.
    pub(crate) fn pass(&self, mark: u64) {
        self.passed.fetch_max(mark, Ordering::AcqRel);
    }

    pub(crate) fn is_awaited(&self) -> bool {
        !lock(&self.futures).is_empty()
    }

    /// Wakes the futures whose mark the stream has passed.
    pub(crate) fn wake(&self) {
        let passed = self.passed();
        let awake: Vec<_> = lock(&self.futures)
            .extract_if(.., |(mark, ..)| *mark <= passed)
            .collect();
        awake
            .into_iter()
            .for_each(|(.., waker)| tell(|| waker.wake()));
    }

    /// Sets the waker of a future. Returns whether the future already had one.
    pub(crate) fn replace(&self, mark: u64, future: u64, waker: &Waker) -> bool {
        let waker = waker.clone();
        let replaced = {
            let mut futures = lock(&self.futures);
            let place = futures.iter().position(|each| each.1 == future);
            let before = place.map(|place| futures.swap_remove(place));
            futures.push((mark, future, waker));
            before
        };
        let had_one = replaced.is_some();
        tell(|| drop(replaced));
        had_one
    }

    /// Removes the waker of a future.
    pub(crate) fn forget(&self, future: u64) {
        let taken: Vec<_> = lock(&self.futures)
            .extract_if(.., |each| each.1 == future)
            .collect();
        tell(|| drop(taken));
    }
}
