//! The futures that wait until a stream has passed a mark.
//!
//! # Model
//!
//! Wakers are the program's code: copying, waking or dropping one may panic, and takes as long as it likes. So all of
//! that is done without the lock, and panics are caught ([`tell`]), because the driver's own thread must not unwind.
//!
//! The lock is never held while the driver is called: the driver's thread takes it, and the call may wait for that
//! thread to make room.

use std::sync::Mutex;
use std::task::Waker;

use tidegate_hal::{lock, tell};

/// The waiting futures of a stream, each with its mark, its number and its waker.
#[derive(Default)]
pub(crate) struct Wakers(Mutex<Vec<(u64, u64, Waker)>>);

impl Wakers {
    /// Wakes the futures whose mark is at most `passed`.
    pub(crate) fn wake_until(&self, passed: u64) {
        let awake: Vec<_> = lock(&self.0)
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
            let mut wakers = lock(&self.0);
            let place = wakers.iter().position(|each| each.1 == future);
            let before = place.map(|place| wakers.swap_remove(place));
            wakers.push((mark, future, waker));
            before
        };
        let had_one = replaced.is_some();
        tell(|| drop(replaced));
        had_one
    }

    /// Removes the waker of a future.
    pub(crate) fn forget(&self, future: u64) {
        let taken: Vec<_> = lock(&self.0)
            .extract_if(.., |each| each.1 == future)
            .collect();
        tell(|| drop(taken));
    }
}
