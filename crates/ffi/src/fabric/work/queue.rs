//! Works that were queued, and the counters that prove that they are complete.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tidegate_hal::lock;

use super::super::counter::Counter;
use super::super::domain::Domain;
use super::super::error::{FabricError, Result};
use super::super::sys;
use super::{QUEUE, QueueError, Work};

/// Names a work that was queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WorkId(u64);

/// A work that was queued.
struct Queued {
    id: WorkId,
    /// By how much its counter moves when it is complete.
    weight: u64,
    work: Work,
}

/// The queued works whose completion one counter shows: it counts them, or they add to it.
struct Track {
    counter: Arc<Counter>,
    /// How far the counter had come when the first of `works` was next to be counted.
    base: u64,
    /// Whether a work was freed because its failure was reported. The counter may have counted the failure, or may do
    /// so later. So from then on, only successes prove anything.
    failed: bool,
    works: VecDeque<Queued>,
}

impl Track {
    fn count(counter: &Counter) -> u64 {
        counter.read().wrapping_add(counter.read_err())
    }

    /// Takes out all works if the counter has counted all of them. As long as it has counted fewer, nobody knows which
    /// of them are complete. A count of more than 31 bits can prove too little, but never too much.
    fn complete(&mut self, into: &mut Vec<Queued>) {
        let count = if self.failed {
            self.counter.read()
        } else {
            Track::count(&self.counter)
        };
        let counted = Counter::distance(self.base, count);
        let counted = u64::try_from(counted).unwrap_or(0);
        let sum = self
            .works
            .iter()
            .fold(0u64, |sum, queued| sum.saturating_add(queued.weight));
        if sum <= counted {
            into.extend(self.works.drain(..));
            self.base = self.base.wrapping_add(sum);
        }
    }
}

#[derive(Default)]
struct State {
    next: u64,
    tracks: Vec<Track>,
}

/// The deferred works of a domain (`FI_QUEUE_WORK`).
///
/// The queue owns all that a work needs until a counter proves that the work is complete. A work without such a proof
/// is never freed. If works are left when the queue is dropped, it leaks them and the domain. If a work fails, a
/// provider may count that on the endpoint only. Then the work stays in the queue.
pub struct WorkQueue {
    domain: Arc<Domain>,
    state: Mutex<State>,
}

impl WorkQueue {
    /// An empty queue. Whether the provider has deferred works is known only after one was queued: see
    /// [`Domain::probe_deferred`].
    pub fn new(domain: &Arc<Domain>) -> WorkQueue {
        WorkQueue {
            domain: Arc::clone(domain),
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Queues a work. If its trigger has already reached the threshold, the work begins at once, perhaps on this
    /// thread.
    ///
    /// If thousands of works wait for one threshold, some providers forget works until something is added to the
    /// counter. Adding 0 is enough (`counter.add(0)`).
    ///
    /// # Errors
    ///
    /// [`QueueError`]. Nothing is queued then.
    ///
    /// # Safety
    ///
    /// The following holds until the work is [reclaimed](Self::reclaim), or for ever if it never is. The memory of this
    /// end that the work names is live, and registered if the provider demands that. From the moment when the trigger
    /// may fire until the work is complete, nothing else writes the memory that the work reads, or touches the memory
    /// that it writes. The completion counter counts completions of works in *this* queue only: nothing adds to it or
    /// sets it, and it is not bound to an endpoint or to memory. The same holds for the counter that a
    /// [`counter_add`](Work::counter_add) adds to. The two may be one counter.
    pub unsafe fn queue(&self, work: Work) -> Result<WorkId, QueueError> {
        let Some((trigger, threshold)) = &work.trigger else {
            return Err(QueueError::NoTrigger);
        };
        let (counted, weight) = match (&work.target, &work.completion) {
            (Some((_, 0)), _) => return Err(QueueError::AddsNothing),
            (Some((counter, value)), _) => (counter, *value),
            (None, Some(counter)) => (counter, 1),
            (None, None) => return Err(QueueError::NoCompletionCounter),
        };
        let domains = [
            Some(trigger.domain()),
            work.completion.as_ref().map(|c| c.domain()),
            work.target.as_ref().map(|(c, _)| c.domain()),
            work.endpoint.as_ref().map(|e| e.domain()),
        ];
        if domains
            .iter()
            .flatten()
            .any(|other| !Arc::ptr_eq(other, &self.domain))
        {
            return Err(QueueError::OtherDomain);
        }
        let raw = work
            .block
            .arm(trigger, *threshold, work.completion.as_deref());

        let mut state = self.state();
        // This comes before the work is queued, because it may be counted at once.
        let track = state.track(counted);
        // SAFETY: the command takes a work whose description is whole. Its counters, endpoint and lists live as long as
        // the block, and the block lives until this queue knows that the work is complete. The context is the block's
        // own. The caller vouches for the memory.
        let queued = unsafe {
            self.domain
                .object()
                .control(QUEUE, sys::FI_QUEUE_WORK, raw.cast())
        };
        match queued {
            Ok(()) => {}
            Err(error) if error.is_again() => return Err(QueueError::Again(Box::new(work))),
            Err(error) => return Err(error.into()),
        }
        let id = WorkId(state.next);
        state.next += 1;
        let queued = Queued { id, weight, work };
        state.tracks[track].works.push_back(queued);
        Ok(id)
    }

    /// Frees the works that are known to be complete; returns how many works are left.
    pub fn reclaim(&self) -> usize {
        let mut state = self.state();
        let mut freed = Vec::new();
        for track in &mut state.tracks {
            track.complete(&mut freed);
        }
        state
            .tracks
            .retain(|track| !track.works.is_empty() || track.failed);
        let left = state.pending();
        drop(state);
        // This is done without the lock: works keep values alive whose drops may do anything.
        drop(freed);
        left
    }

    /// How many works are not known to be complete.
    pub fn pending(&self) -> usize {
        self.state().pending()
    }

    /// Frees the work with this [context](Work::context). Call it when the endpoint's queue has reported that the work
    /// has failed, and so is over. Returns whether there was such a work.
    ///
    /// From then on, failures that the work's counter has counted prove nothing about the counter's other works.
    pub fn failed(&self, context: usize) -> bool {
        let mut state = self.state();
        let mut freed = None;
        for track in &mut state.tracks {
            let same = |queued: &Queued| queued.work.context() == context;
            if let Some(at) = track.works.iter().position(same) {
                track.failed = true;
                freed = track.works.remove(at);
                break;
            }
        }
        drop(state);
        // The lock is no longer held: the work keeps values alive whose drops may do anything.
        freed.is_some()
    }

    /// Waits until all works are complete, for at most `limit`; returns whether they are. Between looks it calls
    /// `progress`, which must make progress if the provider does not do so by itself.
    pub fn drain(&self, limit: Duration, mut progress: impl FnMut()) -> bool {
        let start = Instant::now();
        while self.reclaim() > 0 {
            if start.elapsed() > limit {
                return false;
            }
            progress();
            std::thread::sleep(Duration::from_micros(50));
        }
        true
    }

    /// Takes back a work that has not begun (`FI_CANCEL_WORK`).
    ///
    /// # Errors
    ///
    /// [`is_not_supported`](FabricError::is_not_supported) if the provider cannot do this (as sockets),
    /// [`is_refused`](FabricError::is_refused) if the work is not in the queue any more, and other errors of the
    /// provider. After an error, the work stays in the queue.
    pub fn cancel(&self, id: WorkId) -> Result<()> {
        const CALL: &str = "fi_control(FI_CANCEL_WORK)";
        let mut state = self.state();
        let Some(queued) = state.find(id) else {
            return Err(FabricError::refused(CALL, "it is complete, or unknown"));
        };
        let raw = queued.work.block.as_raw();
        // SAFETY: the command takes a work that was queued and is still alive.
        unsafe {
            self.domain
                .object()
                .control(CALL, sys::FI_CANCEL_WORK, raw.cast())
        }?;
        let freed = state.take(id);
        drop(state);
        drop(freed);
        Ok(())
    }
}

impl State {
    fn pending(&self) -> usize {
        self.tracks.iter().map(|track| track.works.len()).sum()
    }

    /// The index of a completion counter's track, which is made if the counter has none.
    fn track(&mut self, counter: &Arc<Counter>) -> usize {
        let known = |track: &Track| Arc::ptr_eq(&track.counter, counter);
        if let Some(at) = self.tracks.iter().position(known) {
            let track = &mut self.tracks[at];
            if track.works.is_empty() && !track.failed {
                track.base = Track::count(counter);
            }
            return at;
        }
        self.tracks.push(Track {
            counter: Arc::clone(counter),
            base: Track::count(counter),
            failed: false,
            works: VecDeque::new(),
        });
        self.tracks.len() - 1
    }

    fn all(&self) -> impl Iterator<Item = &Queued> {
        self.tracks.iter().flat_map(|track| &track.works)
    }

    fn find(&self, id: WorkId) -> Option<&Queued> {
        self.all().find(|queued| queued.id == id)
    }

    fn take(&mut self, id: WorkId) -> Option<Queued> {
        for track in &mut self.tracks {
            if let Some(at) = track.works.iter().position(|queued| queued.id == id) {
                return track.works.remove(at);
            }
        }
        None
    }
}

impl Drop for WorkQueue {
    fn drop(&mut self) {
        if self.reclaim() > 0 {
            // The provider may still read or write memory of works that are not known to be complete.
            std::mem::forget(std::mem::take(&mut *self.state()));
        }
    }
}

impl std::fmt::Debug for WorkQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkQueue")
            .field("pending", &self.pending())
            .finish_non_exhaustive()
    }
}
