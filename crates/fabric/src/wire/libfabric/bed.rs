//! What an agent sleeps on: the completion queue if the provider can wait for it, otherwise a clock.
//!
//! # Model
//!
//! A wait for a completion queue takes the entry that ends the wait. So for a moment a sleeper holds an entry that no
//! look at the queue shows. It puts the entry on a list, which a turn of the engine takes before it reads the queue.
//! Entries that came to the queue in between are then seen earlier although they are later. That matters only for
//! notices that must come [last](super::super::LAST). A look that finds one of those wakes the sleeper, and waits for
//! the entry that the sleeper has taken.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tidegate_ffi::fabric::{Completion, CompletionQueue, CqError};

use super::super::{LAST, Sleeper};
use crate::base::{Chair, lock};

/// The time between two signals to a sleeper that must wake, because not every provider keeps a signal that comes
/// before the wait.
const ROUSE: Duration = Duration::from_millis(1);
/// How many entries are taken from the queue at a time.
const ENTRIES: usize = 32;
/// The most reads of one look.
const READS: usize = 64;

/// Room for entries. The caller of a look keeps it, so that it need not be cleared for every look.
pub(super) type Entries = [Completion; ENTRIES];

/// An entry of the queue, or its error.
pub(super) type Taken = Result<Completion, CqError>;

/// The functions of a completion queue that a bed needs.
pub(super) trait Source: Send + Sync {
    /// Takes the entries that are there, without waiting.
    fn read(&self, into: &mut [Completion]) -> Result<usize, CqError>;

    /// Takes the entries that are there, or that come within `limit`. Returns early when it is signalled.
    fn wait(&self, into: &mut [Completion], limit: Duration) -> Result<usize, CqError>;

    /// Ends a wait.
    fn signal(&self);
}

impl Source for Arc<CompletionQueue> {
    fn read(&self, into: &mut [Completion]) -> Result<usize, CqError> {
        CompletionQueue::read(self, into)
    }

    fn wait(&self, into: &mut [Completion], limit: Duration) -> Result<usize, CqError> {
        CompletionQueue::wait(self, into, limit)
    }

    fn signal(&self) {
        // Not every provider keeps a signal for which nobody waits. A caller that must be heard signals again
        // (`ROUSE`).
        let _ = CompletionQueue::signal(self);
    }
}

/// The queue, and the entries that a sleeper has taken from it.
pub(super) struct Bed<S = Arc<CompletionQueue>> {
    queue: S,
    /// Whether `fi_cq_sread` and `fi_cq_signal` work.
    waits: bool,
    taken: Mutex<VecDeque<Taken>>,
    /// Whether `taken` has entries. Most looks find none.
    has_taken: AtomicBool,
    /// Whether a sleeper may have an entry that is not in `taken` yet.
    asleep: AtomicBool,
    /// Signalled when the sleeper is awake, and has put its entry into `taken`.
    up: Condvar,
    /// The place to sleep if the provider cannot wait for the queue.
    chair: Chair,
}

impl<S: Source> Bed<S> {
    pub(super) fn new(queue: S, waits: bool) -> Arc<Self> {
        Arc::new(Bed {
            queue,
            waits,
            taken: Mutex::default(),
            has_taken: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            up: Condvar::new(),
            chair: Chair::default(),
        })
    }

    /// Whether all entries that a sleeper has taken are collected.
    pub(super) fn is_empty(&self) -> bool {
        !self.has_taken.load(Ordering::Acquire)
    }

    /// Appends the entries that have come. Notices that must come last are after all that had come before them. Only
    /// one thread calls this at a time. `entries` is room for the reads.
    pub(super) fn collect(&self, entries: &mut Entries, into: &mut Vec<Taken>) {
        if !self.is_empty() {
            self.take(&mut lock(&self.taken), into);
        }
        // The rest comes with the next look, because peers must not keep this thread here.
        for _ in 0..READS {
            match self.queue.read(entries) {
                Ok(count) => {
                    into.extend(entries[..count].iter().copied().map(Ok));
                    if count < ENTRIES {
                        break;
                    }
                }
                Err(error) => {
                    let ends = matches!(error, CqError::Queue(_));
                    into.push(Err(error));
                    if ends {
                        break;
                    }
                }
            }
        }
        let comes_last = |taken: &Taken| {
            let data = taken.as_ref().ok().and_then(Completion::remote_data);
            data.is_some_and(|bits| bits & LAST != 0)
        };
        if self.waits && into.iter().any(comes_last) {
            self.rouse(into);
            into.sort_by_key(comes_last);
        }
    }

    fn take(&self, taken: &mut VecDeque<Taken>, into: &mut Vec<Taken>) {
        into.extend(taken.drain(..));
        self.has_taken.store(false, Ordering::Relaxed);
    }

    /// Waits until no sleeper has an entry that it took before this call, and appends such entries.
    fn rouse(&self, into: &mut Vec<Taken>) {
        let mut taken = lock(&self.taken);
        // A sleeper that took an entry before this thread read a later one was asleep before. It counts as awake only
        // when its entry is in the list.
        while self.asleep.load(Ordering::SeqCst) && taken.is_empty() {
            self.queue.signal();
            let waited = self.up.wait_timeout(taken, ROUSE);
            taken = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        self.take(&mut taken, into);
    }
}

impl<S: Source> Sleeper for Arc<Bed<S>> {
    fn sleep(&self, limit: Duration) {
        if self.waits {
            if self.chair.sit(Duration::ZERO) {
                return;
            }
            let mut one = [Completion::default()];
            self.asleep.store(true, Ordering::SeqCst);
            let entry = match self.queue.wait(&mut one, limit) {
                Ok(0) => None,
                Ok(_) => Some(Ok(one[0])),
                Err(error) => Some(Err(error)),
            };
            let mut taken = lock(&self.taken);
            taken.extend(entry);
            self.has_taken.store(!taken.is_empty(), Ordering::Release);
            self.asleep.store(false, Ordering::SeqCst);
            drop(taken);
            self.up.notify_all();
            self.chair.sit(Duration::ZERO);
        } else {
            self.chair.sit(limit);
        }
    }

    fn hears(&self) -> bool {
        self.waits
    }

    fn wake(&self) {
        self.chair.call();
        if self.waits {
            self.queue.signal();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;
    use tidegate_ffi::fabric::sys;

    /// A queue whose sleeper is slow to come back with what it has taken.
    #[derive(Default)]
    struct Slow {
        entries: Mutex<VecDeque<u64>>,
        /// Whether the sleeper has taken an entry.
        took: AtomicBool,
        signals: Mutex<u32>,
        signalled: Condvar,
    }

    impl Slow {
        fn take(&self, into: &mut [Completion]) -> usize {
            let mut entries = lock(&self.entries);
            let count = into.len().min(entries.len());
            for (place, data) in into.iter_mut().zip(entries.drain(..count)) {
                *place = Completion {
                    flags: sys::FI_REMOTE_WRITE | sys::FI_REMOTE_CQ_DATA,
                    data,
                    ..Completion::default()
                };
            }
            count
        }
    }

    impl Source for Arc<Slow> {
        fn read(&self, into: &mut [Completion]) -> Result<usize, CqError> {
            Ok(self.take(into))
        }

        fn wait(&self, into: &mut [Completion], limit: Duration) -> Result<usize, CqError> {
            let count = self.take(into);
            self.took.store(count > 0, Ordering::SeqCst);
            let signals = lock(&self.signals);
            // The sleeper stops here, as if preempted, until another thread needs its entry.
            let _up = self
                .signalled
                .wait_timeout_while(signals, limit, |signals| *signals == 0)
                .unwrap();
            Ok(count)
        }

        fn signal(&self) {
            *lock(&self.signals) += 1;
            self.signalled.notify_all();
        }
    }

    #[test]
    fn a_poison_does_not_overtake_the_entry_of_a_sleeper() {
        const LONG: Duration = Duration::from_secs(20);
        let queue = Arc::new(Slow::default());
        let bed = Bed::new(queue.clone(), true);
        let (add, poison, other) = (5, 5 | LAST, 6);
        lock(&queue.entries).extend([add]);
        let sleeper = std::thread::spawn({
            let bed = bed.clone();
            move || bed.sleep(LONG)
        });
        let begun = Instant::now();
        while !queue.took.load(Ordering::SeqCst) {
            assert!(begun.elapsed() < LONG);
            std::thread::yield_now();
        }
        lock(&queue.entries).extend([poison, other]);
        let mut taken = Vec::new();
        let mut entries = Entries::default();
        bed.collect(&mut entries, &mut taken);
        let seen: Vec<_> = taken
            .iter()
            .map(|entry| entry.as_ref().ok().and_then(Completion::remote_data))
            .collect();
        assert_eq!(seen, [Some(other), Some(add), Some(poison)]);
        assert!(begun.elapsed() < LONG);
        sleeper.join().unwrap();
        // Other entries rouse nobody.
        let before = *lock(&queue.signals);
        lock(&queue.entries).extend([add, other]);
        bed.collect(&mut entries, &mut taken);
        assert_eq!(*lock(&queue.signals), before);
        assert!(bed.is_empty());
    }
}
