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

/// How often a sleeper is roused that is waited for: not every provider keeps a signal that comes before the wait.
const ROUSE: Duration = Duration::from_millis(1);
/// How many entries are taken from the queue at a time.
const ENTRIES: usize = 32;
/// How often they are read at a time, at most.
const READS: usize = 64;

/// Room for entries. The caller of a look keeps it, so that it need not be cleared for every look.
pub(super) type Entries = [Completion; ENTRIES];

/// An entry.
pub(super) type Taken = Result<Completion, CqError>;

/// A completion queue, as far as a bed needs it.
pub(super) trait Source: Send + Sync {
    /// Takes what there is, without waiting.
    fn read(&self, into: &mut [Completion]) -> Result<usize, CqError>;

    /// Takes what there is, or what comes within `limit`; returns early when it is signalled.
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
        // Not every provider keeps one that nobody waits for: who must be heard signals again (`ROUSE`).
        let _ = CompletionQueue::signal(self);
    }
}

/// The queue, and what was taken from it in sleep.
pub(super) struct Bed<S = Arc<CompletionQueue>> {
    queue: S,
    /// Whether `fi_cq_sread` and `fi_cq_signal` work.
    waits: bool,
    taken: Mutex<VecDeque<Taken>>,
    /// Whether there is anything in it: most looks find nothing.
    has_taken: AtomicBool,
    /// Whether a sleeper may have something that is not in `taken` yet.
    asleep: AtomicBool,
    /// It is up, and has put that there.
    up: Condvar,
    /// Where it sleeps, if it cannot wait for the queue.
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

    /// Whether nothing was taken in sleep that nobody has collected.
    pub(super) fn is_empty(&self) -> bool {
        !self.has_taken.load(Ordering::Acquire)
    }

    /// Appends what has come: notices that are to come last behind all that had come before them. One thread at a time.
    /// `entries` is room for what is read.
    pub(super) fn collect(&self, entries: &mut Entries, into: &mut Vec<Taken>) {
        if !self.is_empty() {
            self.take(&mut lock(&self.taken), into);
        }
        // What is left comes with the next look: others must not keep this thread here.
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

    /// Waits until no sleeper has anything that it had taken before this call, and appends that.
    fn rouse(&self, into: &mut Vec<Taken>) {
        let mut taken = lock(&self.taken);
        // A thread that took an entry before this one read a later one was asleep before; it is not asleep any more when
        // that is in the list.
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
        /// Somebody has taken something in sleep.
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
            // It was preempted here, until somebody cannot do without it.
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
    fn a_poison_does_not_overtake_what_a_sleeper_has_taken() {
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
        // Nobody is roused for anything else.
        let before = *lock(&queue.signals);
        lock(&queue.entries).extend([add, other]);
        bed.collect(&mut entries, &mut taken);
        assert_eq!(*lock(&queue.signals), before);
        assert!(bed.is_empty());
    }
}
