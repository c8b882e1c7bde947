//! A bell: a thread sleeps on it until a word may have changed.

use std::time::Duration;

use crate::sync::{AtomicU32, Futex, Ordering, fence, pause, yield_now};

/// The first nap is this part of the longest.
const FIRST_NAP: u32 = 64;

/// How long a sleeper sleeps at most that another process wakes. A process that is stopped or killed in [`Bell::ring`],
/// between its two steps, has taken the flag and wakes nobody; and those who ring later find no flag. So the sleeper looks
/// by itself once a second.
///
/// Threads of the model checker do not nap: it would not find a wake-up that is lost.
const LONGEST_NAP: Option<Duration> = if cfg!(loom) {
    None
} else {
    Some(Duration::from_secs(1))
};

/// How long a waiter stays awake before it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Looks with a pause in between, each time before the processor is offered to others.
    pub spins: u32,
    /// How often the processor is offered to others, with a look after each.
    pub yields: u32,
}

impl Patience {
    /// Sleeps at once.
    pub const NONE: Patience = Patience {
        spins: 0,
        yields: 0,
    };
}

/// An event count in memory that processes share: one for each rank, rung by a peer that adds to a word that the rank
/// waits on.
///
/// Futexes are 32-bit, words 64-bit and many; so sleepers do not sleep on the words. Ringing costs a fence and a load
/// while nobody sleeps.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Bell {
    /// Bumped by every ring that finds a sleeper.
    rings: Futex,
    /// Whether somebody sleeps or is about to. A thread that rings takes the flag, so that of many that ring before
    /// the sleepers run again only the first pays for the system call.
    asleep: AtomicU32,
}

impl Default for Bell {
    fn default() -> Self {
        Bell::new()
    }
}

impl Bell {
    /// A bell; all-zero bytes are one too.
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
        if self.asleep.load(Ordering::Relaxed) != 0 && self.asleep.swap(0, Ordering::Relaxed) != 0 {
            self.wake_all();
        }
    }

    /// Wakes the sleepers whether or not the flag says that there are any.
    #[cold]
    pub fn wake_all(&self) {
        // Release: a thread that has read the new count sees what was to be seen, and finds the flag taken before.
        self.rings.fetch_add(1, Ordering::Release);
        self.rings.wake_all();
    }

    /// Returns when `ready` does not return `None`: looks, then sleeps. `before_sleep` is called each time before it
    /// really sleeps.
    ///
    /// For bells that only threads of this process ring: they are stopped together.
    pub fn wait<T>(
        &self,
        patience: Patience,
        ready: impl FnMut() -> Option<T>,
        before_sleep: impl FnMut(),
    ) -> T {
        self.wait_for(patience, None, ready, before_sleep)
    }

    /// As [`Bell::wait`], for bells that other processes ring. No sleep is longer than `nap`, or than 1 s if there is
    /// none: the first are shorter, each twice as long as the one before.
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
            // The thread that will make it ready may be waiting for this very processor.
            yield_now();
            if let Some(value) = ready() {
                return value;
            }
        }
        let mut next = nap.map(|nap| nap / FIRST_NAP);
        loop {
            // Acquire: the flag must not be set before the count is read. Else somebody could take the flag and count up in
            // between, and the next who rings would find neither a flag nor, counting on the first, a reason to wake us.
            let key = self.rings.load(Ordering::Acquire);
            self.asleep.store(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            // The flag stays set if it is ready after all: the next ring pays for one system call too many, while
            // clearing it could take it from another sleeper.
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
            // Nobody listens to later naps.
            let before_sleep = || _ = sleeps.send(());
            there.wait_with_naps(Patience::NONE, None, look, before_sleep);
            said.send(()).unwrap();
        });
        // It does not look again before it sleeps. What `ring` does follows, up to where it would count up and wake.
        asleep.recv().unwrap();
        ready.store(true, Ordering::Release);
        bell.asleep.swap(0, Ordering::Relaxed);
        hear.recv_timeout(Duration::from_secs(30))
            .expect("the sleeper wakes");
    }
}
