//! Executes work items, on the stream's thread or, inline, on the submitting thread.
//!
//! # Model
//!
//! An item is a batch, a kernel, a wait for another stream, or the replay of a recording, which is a list of such
//! items. The executor knows which item comes next, and which mover a batch needs: the host's own, or one that reaches
//! far addresses. The [`Runner`] does the work of one item.
//!
//! # Failure
//!
//! A stream that has failed still passes its items, without their work. A forked child leaves at once, and leaks what
//! kernels have captured, because that belongs to the parent.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};

use tidegate_hal::batch::Batch;
use tidegate_hal::device::{Call, Fault, Reclaim};
use tidegate_hal::far::Bus;
use tidegate_hal::lock;
use tidegate_hal::site::CallSite;
use tidegate_words::Patience;

use crate::far::Far;
use crate::graph::{List, Recorded, Steps};
use crate::job::Job;
use crate::moves::HostMover;
use crate::reclaim::{AtWork, STEP, StreamState};
use crate::runner::{RUN, Runner};
use crate::stamps::{Ring, Stamper};

/// A work item in the queue.
pub(crate) enum Item {
    /// A batch, and the call that enqueued it.
    Batch(Arc<Batch>, CallSite),
    /// The last batch once more. A batch that is shared costs two atomic operations, which wait for stores as a fence
    /// does.
    Again(CallSite),
    /// A kernel, which comes beside the item.
    Kernel,
    /// Waits until another stream has passed a mark.
    Await(Arc<StreamState>, u64),
    Replay(Arc<List>, u64),
    /// The last item: the owner has been dropped.
    Stop,
}

impl Item {
    /// The call that enqueues it.
    pub(crate) fn call(&self) -> Call {
        match self {
            Item::Batch(..) | Item::Again(_) => Call::Batch,
            Item::Kernel => Call::Launch,
            Item::Await(..) => Call::HandOff,
            Item::Replay(..) => Call::Replay,
            Item::Stop => Call::Drop,
        }
    }
}

pub(crate) struct Executor {
    runner: Runner,
    /// The mover for batches that touch far addresses.
    far: Option<Box<Far>>,
    /// The last batch that was not the same as the one before. It is kept until another one comes.
    last: Option<Arc<Batch>>,
}

/// The position of a replay: how many repetitions are left, with the current one, and the index of the current item.
struct ReplayPosition {
    times: u64,
    at: usize,
}

impl Executor {
    pub(crate) fn new(
        shared: Arc<StreamState>,
        patience: (Patience, Patience),
        bus: Option<Arc<dyn Bus>>,
        ring: Option<Arc<Ring>>,
    ) -> Self {
        Executor {
            runner: Runner::new(shared, patience, ring),
            far: bus.map(|bus| Box::new(Far::new(bus))),
            last: None,
        }
    }

    /// Executes one item. Returns whether more items may come. `kernel` returns the kernel of such an item. `next` is the
    /// item that follows at once, if it is known: if it is a quick batch, this item may count as passed only after that
    /// one. If there is none, all items count as passed.
    ///
    /// # Safety
    ///
    /// The item meets the conditions of the method of the hal that submitted it.
    pub(crate) unsafe fn execute(
        &mut self,
        item: Item,
        kernel: impl FnOnce() -> Option<Job>,
        next: Option<&Item>,
    ) -> bool {
        let mut more = true;
        match item {
            Item::Batch(batch, site) => {
                self.runner.ran.extend(self.last.replace(batch));
                // SAFETY: the submitter's promise.
                unsafe { self.last_batch(site, next) };
            }
            // SAFETY: as above.
            Item::Again(site) => unsafe { self.last_batch(site, next) },
            Item::Kernel => {
                let job = kernel().expect("it was enqueued before its item");
                self.runner.kernel(&job);
                if self.is_forked() {
                    std::mem::forget(job);
                    return false;
                }
                // Values that a kernel captured may panic when they are dropped, and this thread must go on.
                self.runner.guarded(job.name(), || drop(job));
            }
            Item::Await(other, mark) => self.runner.follow(&other, mark),
            Item::Replay(list, times) => {
                let mut steps = lock(&list);
                let mut place = ReplayPosition { times, at: 0 };
                // SAFETY: the submitter's promise, for each repetition.
                let all = AssertUnwindSafe(|| unsafe { self.replay(&mut steps, &mut place) });
                if let Err(panic) = catch_unwind(all) {
                    self.runner.broke(panic);
                    // Gives up the rest, from the item that panicked. SAFETY: as above.
                    unsafe { self.replay(&mut steps, &mut place) };
                }
                drop(steps);
                if self.is_forked() {
                    // Everything that the kernels have captured belongs to the parent.
                    std::mem::forget(list);
                    return false;
                }
                // The program may have dropped the recording meanwhile. Then the captured values are dropped here, and
                // their panics are faults of this stream.
                if let Some(list) = Arc::into_inner(list) {
                    let mut steps = list.into_inner().unwrap_or_else(PoisonError::into_inner);
                    let mut jobs = steps.take_kernels();
                    for job in jobs.by_ref() {
                        self.runner.guarded(job.name(), || drop(job));
                        if self.is_forked() {
                            break;
                        }
                    }
                    if self.is_forked() {
                        std::mem::forget(jobs);
                    }
                }
            }
            Item::Stop => more = false,
        }
        if self.is_forked() {
            return false;
        }
        let soon = self.batch_of(next).is_some_and(Batch::is_quick);
        self.runner.passes(soon);
        // That calls wakers, which may fork, too.
        more && !self.is_forked()
    }

    /// The stream has nothing to do for a while.
    pub(crate) fn rests(&mut self) {
        if let Some(stamper) = &mut self.runner.stamper {
            stamper.hand_over_all();
        }
    }

    /// Whether this is a child. Kernels, wakers, and drops of values that they have captured may fork. Then the rest of
    /// the work belongs to the parent.
    fn is_forked(&self) -> bool {
        !self.runner.shared.process.is_this()
    }

    /// Recovers from a panic outside kernels, in the middle of an item: the stream fails, and passes the item.
    #[cold]
    pub(crate) fn recover(&mut self, panic: Box<dyn Any + Send>) {
        self.runner.broke(panic);
        self.runner.passes(false);
    }

    /// The batch of the next item, if it is one.
    fn batch_of<'a>(&'a self, next: Option<&'a Item>) -> Option<&'a Batch> {
        match next? {
            Item::Batch(batch, _) => Some(batch),
            Item::Again(_) => self.last.as_deref(),
            _ => None,
        }
    }

    /// Runs the last batch.
    ///
    /// # Safety
    ///
    /// The promises of [`Batch::new`] hold.
    unsafe fn last_batch(&mut self, site: CallSite, next: Option<&Item>) {
        let soon = self.batch_of(next).is_some_and(takes_no_time);
        let batch = Arc::as_ptr(self.last.as_ref().expect("the owner counts on it"));
        // SAFETY: `last` holds the batch, and only `execute` replaces it. The rest is the caller's promise.
        unsafe { self.batch(&*batch, site, soon) };
    }

    /// Runs a batch. `soon` says that a batch follows at once, which can tell the helper about both.
    ///
    /// # Safety
    ///
    /// The promises of [`Batch::new`] hold.
    unsafe fn batch(&mut self, batch: &Batch, site: CallSite, soon: bool) {
        if let Some(stamper) = self.runner.stamper.take() {
            // SAFETY: the caller's promise.
            return unsafe { self.stamped_batch(batch, site, soon, stamper) };
        }
        match &mut self.far {
            // SAFETY: the caller's promise.
            None => unsafe { self.runner.batch_by(batch, site, soon, &mut HostMover) },
            // SAFETY: as above.
            Some(far) => unsafe { self.runner.batch_with_far(batch, site, soon, far) },
        }
    }

    /// # Safety
    ///
    /// As for [`Executor::batch`].
    #[cold]
    unsafe fn stamped_batch(
        &mut self,
        batch: &Batch,
        site: CallSite,
        soon: bool,
        stamper: Box<Stamper>,
    ) {
        let runner = &mut self.runner;
        match &mut self.far {
            // SAFETY: the caller's promise.
            None => unsafe { runner.stamped_by(batch, site, soon, &mut HostMover, stamper) },
            // SAFETY: as above.
            Some(far) => unsafe { runner.stamped_by(batch, site, soon, &mut **far, stamper) },
        }
    }

    /// # Safety
    ///
    /// Each recorded item meets the conditions of the method of the hal that submitted it, at each repetition.
    unsafe fn replay(&mut self, steps: &mut Steps, place: &mut ReplayPosition) {
        // A list of nothing is done at once, however often it is replayed.
        if steps.items.is_empty() {
            place.times = 0;
        }
        while place.times > 0 {
            // One repetition that gives up everything is as good as any number of them.
            let gives_up = self.runner.failed && place.at == 0;
            let list = &mut steps.items;
            for at in place.at..list.len() {
                place.at = at;
                if self.runner.shared.goes_on().is_multiple_of(RUN * STEP) || !list[at].is_quick() {
                    self.runner.ring();
                }
                let next = match list.get(at + 1) {
                    None if place.times > 1 => list.first(),
                    next => next,
                };
                let soon = matches!(next, Some(Recorded::Batch(next, _)) if takes_no_time(next));
                match &mut list[at] {
                    // The batch has been given up, and the memory that it names may have been freed with the other
                    // stream's part.
                    Recorded::Batch(..) if steps.given_up => {}
                    Recorded::Batch(batch, site) => {
                        // SAFETY: the caller's promise.
                        unsafe { self.batch(batch, site, soon) };
                        if self.is_forked() {
                            return;
                        }
                    }
                    Recorded::Kernel(job) => {
                        self.runner.kernel(job);
                        if self.is_forked() {
                            return;
                        }
                    }
                    Recorded::Signal(link) => {
                        let fault = || self.runner.shared.fault().unwrap_or(Fault::Aborted);
                        link.signal(self.runner.failed.then(fault));
                    }
                    Recorded::Await(link, operand) => {
                        self.runner.tell();
                        let (shared, own) = (&self.runner.shared, self.runner.own);
                        let fault = shared.at(AtWork::Stream, || link.follow(operand, own));
                        if let Some(fault) = fault {
                            self.runner.fail(fault);
                        }
                    }
                }
            }
            *place = ReplayPosition {
                times: place.times - 1,
                at: 0,
            };
            if gives_up {
                steps.give_up();
                if !steps.awaits_work() {
                    break;
                }
            }
            // A replay that contains only kernels would not notice an abort otherwise.
            if place.times > 0 && self.runner.shared.is_aborted() {
                self.runner.fail(Fault::Aborted);
            }
        }
    }
}

/// Whether the helper can be told of earlier rings when this batch has run.
fn takes_no_time(batch: &Batch) -> bool {
    batch.is_helped() && !batch.has_moves()
}
