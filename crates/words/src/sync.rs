//! The atomics and the sleeping that the protocol is built on: the machine's, or loom's.

#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Sleeps while `*word == expected`, until woken; may return early. Works between processes that share the memory.
#[cfg(not(loom))]
pub(crate) fn futex_wait(word: &AtomicU32, expected: u32) {
    use rustix::thread::futex;
    // An error says that the value has changed or that a signal came: the caller looks again in any case.
    let _ = futex::wait(word, futex::Flags::empty(), expected, None);
}

/// Wakes everybody who sleeps on `word`.
#[cfg(not(loom))]
pub(crate) fn futex_wake_all(word: &AtomicU32) {
    use rustix::thread::futex;
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}

/// Under loom a sleeper yields until the value changes: loom finds the executions in which it never would.
#[cfg(loom)]
pub(crate) fn futex_wait(word: &AtomicU32, expected: u32) {
    while word.load(Ordering::Relaxed) == expected {
        loom::thread::yield_now();
    }
}

/// Under loom a change of the value is the wake-up.
#[cfg(loom)]
pub(crate) fn futex_wake_all(_word: &AtomicU32) {}

/// A pause in a spin loop.
pub(crate) fn pause() {
    #[cfg(not(loom))]
    std::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
}

/// Lets other threads of the machine run.
pub(crate) fn yield_now() {
    #[cfg(not(loom))]
    std::thread::yield_now();
    #[cfg(loom)]
    loom::thread::yield_now();
}
