//! A bell: a thread sleeps on it until a word may have changed.

use std::time::Duration;

use crate::sync::{AtomicU32, Futex, Ordering, fence, pause, yield_now};

/// The longest nap is this many times as long as the first.
const FIRST_NAP: u32 = 64;

/// The longest sleep on a bell that other processes ring. A process that is stopped or killed between the two steps of
/// [`Bell::ring`] has taken the flag and wakes nobody, and later rings find no flag. So the sleeper looks by itself
/// once a second.
///
/// Threads of the model checker do not nap, because a nap would hide a lost wake-up.
const LONGEST_NAP: Option<Duration> = if cfg!(loom) {
    None
} else {
    Some(Duration::from_secs(1))
};

/// How long a waiter stays awake before it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// How many times it looks after a pause, before it offers the processor to other threads.
    pub spins: u32,
    /// How many times it looks after an offer of the processor to other threads.
    pub yields: u32,
}

impl Patience {
    /// Sleeps at once.
    pub const NONE: Patience = Patience {
        spins: 0,
        yields: 0,
    };
}

/// An event count in memory that processes share. Each rank has one. A peer rings it after it has added to a word that
/// the rank waits on.
///
/// Threads do not sleep on the words themselves, because futexes have 32 bits and words 64, and because a thread may
/// wait for many words. While nobody sleeps, a ring costs a fence and a load.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Bell {
    /// Counts the rings that found a sleeper.
    rings: Futex,
    /// Whether a thread sleeps or is about to. A thread that rings takes the flag. So if many threads ring before the
    /// sleepers run again, only the first pays for the system call.
    asleep: AtomicU32,
}

impl Default for Bell {
    fn default() -> Self {
        Bell::new()
    }
}

impl Bell {
    /// Makes a bell. All-zero bytes are a bell, too.
    pub fn new() -> Self {
        Bell {
            rings: Futex::new(0),
            asleep: AtomicU32::new(0),
        }
    }

    /// Wakes the sleepers, if there are any. Call it after the add.
    #[inline]
    pub fn ring(&self) {
        fence(Ordering::SeqCst);
        self.ring_behind_fence();
    }

    /// Wakes the sleepers of all these bells, with one fence. Call it after the adds.
    #[inline]
    pub fn ring_all<'a>(bells: impl Iterator<Item = &'a Bell>) {
        fence(Ordering::SeqCst);
        bells.for_each(Bell::ring_behind_fence);
    }

    #[inline]
    fn ring_behind_fence(&self) {
        if self.asleep.load(Ordering::Relaxed) != 0 && self.asleep.swap(0, Ordering::Relaxed) != 0 {
            self.wake_all();
        }
    }

    /// Wakes the sleepers, whatever the flag says.
    #[cold]
    pub fn wake_all(&self) {
        // Release: a thread that has read the new count sees everything before the ring, and finds the flag taken.
        self.rings.fetch_add(1, Ordering::Release);
        self.rings.wake_all();
    }

    /// Looks and sleeps until `ready` returns a value. Calls `before_sleep` each time before it really sleeps.
    ///
    /// It is for bells that only threads of this process ring: then either all of these threads are stopped, or none.
    pub fn wait<T>(
        &self,
        patience: Patience,
        ready: impl FnMut() -> Option<T>,
        before_sleep: impl FnMut(),
    ) -> T {
        self.wait_for(patience, None, ready, before_sleep)
    }

    /// Like [`Bell::wait`], for bells that other processes ring. No sleep is longer than `nap`, or than 1 s if there is
    /// none. The first sleeps are shorter, and each is twice as long as the one before.
    #[inline]
    pub fn wait_with_naps<T>(
        &self,
        patience: Patience,
        nap: Option<Duration>,
        ready: impl FnMut() -> Option<T>,
        before_sleep: impl FnMut(),
    ) -> T {
        self.wait_for(patience, nap.or(LONGEST_NAP), ready, before_sleep)
    }

    #[inline]
    fn wait_for<T>(
        &self,
        patience: Patience,
        nap: Option<Duration>,
        mut ready: impl FnMut() -> Option<T>,
        mut before_sleep: impl FnMut(),
    ) -> T {
        if let Some(value) = ready() {
            return value;
        }
        for _ in 0..patience.yields {
            for _ in 0..patience.spins {
                pause();
                if let Some(value) = ready() {
                    return value;
                }
            }
            // The thread that everything depends on may be waiting for this very processor.
            yield_now();
            if let Some(value) = ready() {
                return value;
            }
        }
        let mut next = nap.map(|nap| nap / FIRST_NAP);
        loop {
            // Acquire: the flag must not be set before the count is read. Otherwise another thread could take the flag
            // and count up in between. The next ring would then find no flag, and this thread would sleep with the new
            // count.
            let key = self.rings.load(Ordering::Acquire);
            self.asleep.store(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            // If it is ready now, the flag stays set, and the next ring makes one needless system call. Clearing the
            // flag could take it from another sleeper.
            if let Some(value) = ready() {
                return value;
            }
            before_sleep();
            self.rings.sleep_while(key, next);
            next = next.zip(nap).map(|(next, nap)| (next * 2).min(nap));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_sleeper_wakes_though_who_rang_was_stopped_before_it_woke_anybody() {
        let (bell, ready) = (Arc::new(Bell::new()), Arc::new(AtomicBool::new(false)));
        let ((said, hear), (sleeps, asleep)) = (channel(), channel());
        let (there, is_ready) = (bell.clone(), ready.clone());
        std::thread::spawn(move || {
            let look = || is_ready.load(Ordering::Acquire).then_some(());
            // The other thread has stopped listening when later naps begin.
            let before_sleep = || _ = sleeps.send(());
            there.wait_with_naps(Patience::NONE, None, look, before_sleep);
            said.send(()).unwrap();
        });
        // The waiting thread does not look again before it sleeps. The next lines do what `ring` does, up to the point
        // where it would count up and wake.
        asleep.recv().unwrap();
        ready.store(true, Ordering::Release);
        bell.asleep.swap(0, Ordering::Relaxed);
        hear.recv_timeout(Duration::from_secs(30))
            .expect("the sleeper wakes");
    }
}
