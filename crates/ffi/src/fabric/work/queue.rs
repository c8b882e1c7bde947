//! Works that were queued, and the counters that prove them complete.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tidegate_hal::lock;

use super::super::counter::Counter;
use super::super::domain::Domain;
use super::super::error::{FabricError, Result};
use super::super::sys;
use super::{QUEUE, QueueError, Work};

/// Which work it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WorkId(u64);

/// A work that was queued.
struct Queued {
    id: WorkId,
    /// By how much its counter moves when it is complete.
    weight: u64,
    work: Work,
}

/// The works that one counter counts: those that are complete, and those that add to it.
struct Track {
    counter: Arc<Counter>,
    /// How far the counter had come when the first of `works` was next to be counted.
    base: u64,
    /// Whether a work was freed because it was heard to have failed. The counter may have counted that, or may yet:
    /// from then on only successes prove anything.
    failed: bool,
    works: VecDeque<Queued>,
}

impl Track {
    fn count(counter: &Counter) -> u64 {
        counter.read().wrapping_add(counter.read_err())
    }

    /// Takes out all works if the counter has counted as many: before that, it is not known which of them are complete. A
    /// count beyond 31 bits can prove less than there is, and never more.
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
/// It owns all that a work needs until a counter proves that it is complete. What is never proved is never freed:
/// dropped with works that are not known to be complete, the queue leaks them, and the domain with them. A provider
/// that fails a work may count it nowhere but at the endpoint: such a work stays.
pub struct WorkQueue {
    domain: Arc<Domain>,
    state: Mutex<State>,
}

impl WorkQueue {
    /// An empty queue. Whether the provider has such works at all, only queueing one tells: see [`Domain::probe_deferred`].
    pub fn new(domain: &Arc<Domain>) -> WorkQueue {
        WorkQueue {
            domain: Arc::clone(domain),
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Queues a work. If its counter has come far enough already, it begins at once, perhaps on this thread.
    ///
    /// Some providers lose sight of works when there are thousands for one threshold, until the counter is poked again
    /// (`counter.add(0)`).
    ///
    /// # Errors
    ///
    /// [`QueueError`]. Nothing is queued then.
    ///
    /// # Safety
    ///
    /// Until the work is [reclaimed](Self::reclaim), or for good if it never is: the memory of this end that it names
    /// is live, registered where it must be, not written (and what it writes, not touched) by others from when its
    /// trigger may fire until it is complete. Its completion counter counts the completions of works in *this* queue,
    /// and nothing else: it is not added to, set, nor bound to an endpoint or memory; likewise the counter that a
    /// [`counter_add`](Work::counter_add) adds to (the two can be one).
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
        // Before it is queued, since it may be counted at once.
        let track = state.track(counted);
        // SAFETY: the command takes a work, which is complete: its counters, endpoint and lists live as long as the
        // block, and the block until this queue knows that the work is complete; its context is the block's own. The
        // caller vouches for the memory.
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

    /// Frees what is proved to be complete; returns how many works are not.
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
        // Outside of the lock: what works keep alive may be anything.
        drop(freed);
        left
    }

    /// How many works are not known to be complete.
    pub fn pending(&self) -> usize {
        self.state().pending()
    }

    /// Frees the work with this [context](Work::context), which the endpoint's queue has reported as failed: so it is
    /// over. Returns whether it is one of these.
    ///
    /// From then on a failure that its counter has counted proves nothing of other works of that counter.
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
        // Outside of the lock: what it keeps alive may be anything.
        freed.is_some()
    }

    /// Waits until all works are complete, no longer than `limit`; returns whether they are. `progress` is called
    /// between looks: where progress is manual, it makes some.
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

    /// Takes a work back that has not begun (`FI_CANCEL_WORK`).
    ///
    /// # Errors
    ///
    /// [`is_not_supported`](FabricError::is_not_supported) where the provider cannot (sockets),
    /// [`is_refused`](FabricError::is_refused) for one that is not in the queue any more, and whatever else the
    /// provider says. The work stays then.
    pub fn cancel(&self, id: WorkId) -> Result<()> {
        const CALL: &str = "fi_control(FI_CANCEL_WORK)";
        let mut state = self.state();
        let Some(queued) = state.find(id) else {
            return Err(FabricError::refused(CALL, "it is complete, or unknown"));
        };
        let raw = queued.work.block.as_raw();
        // SAFETY: the command takes a work that was queued, which lives.
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

    /// The track of a completion counter: a new one, if it has none.
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
            // What is not known to be complete may still be read, or written.
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
