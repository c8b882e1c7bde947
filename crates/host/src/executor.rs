//! Executes work items, on the stream's thread or, inline, on the submitting thread.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tidegate_hal::batch::Batch;
use tidegate_hal::device::{Call, Fault, Reclaim};
use tidegate_hal::far::Bus;
use tidegate_hal::lock;
use tidegate_hal::site::CallSite;
use tidegate_words::{Blocked, Engine, Mover, Patience};

use crate::far::Far;
use crate::graph::{List, Recorded, Steps};
use crate::job::Job;
use crate::moves::HostMover;
use crate::reclaim::{AtWork, Named, StreamState, let_go};

/// A work item in the queue.
pub(crate) enum Item {
    /// With the place where it was enqueued.
    Batch(Arc<Batch>, CallSite),
    Kernel(Job),
    /// Waits until another stream has passed a mark.
    Await(Arc<StreamState>, u64),
    Replay(Arc<List>, u64),
    /// The owner is gone.
    Stop,
}

impl Item {
    /// The call that enqueues it.
    pub(crate) fn call(&self) -> Call {
        match self {
            Item::Batch(..) => Call::Batch,
            Item::Kernel(_) => Call::Launch,
            Item::Await(..) => Call::HandOff,
            Item::Replay(..) => Call::Replay,
            Item::Stop => Call::Drop,
        }
    }
}

pub(crate) struct Executor {
    core: Core,
    /// What reaches peers that are not mapped.
    far: Option<Box<Far>>,
}

/// All of an executor but what carries its moves.
struct Core {
    shared: Arc<StreamState>,
    engine: Engine,
    failed: bool,
    /// Doorbells were rung of which the helper has not been told yet.
    owed: Cell<bool>,
    /// For waits in batches.
    peers: Patience,
    /// For waits for other streams.
    own: Patience,
}

/// How far a replay has come: the times that are left, with the one that has begun, and where in the list that is.
struct ReplayPosition {
    times: u64,
    at: usize,
}

/// How many milliseconds the news of a bus that has failed may take.
const NEWS: u32 = 50;

/// A mover that can say why it did not go on.
trait Way: Mover {
    fn fault(&self) -> Fault {
        Fault::Aborted
    }

    /// Why there is a poison, where the mover may know better than who asks whose word it was.
    fn behind_poison(&self) -> Option<Fault> {
        None
    }
}

impl Way for HostMover {}

impl Way for Far {
    fn fault(&self) -> Fault {
        let failure = self.failure();
        failure.map_or(Fault::Aborted, |error| Fault::Transport(error.to_string()))
    }

    /// A peer that has heard of a bus that failed may be quicker with its poison than the news.
    fn behind_poison(&self) -> Option<Fault> {
        for _ in 0..NEWS {
            if self.failure().is_some() {
                return Some(self.fault());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }
}

impl Executor {
    pub(crate) fn new(
        shared: Arc<StreamState>,
        (peers, own): (Patience, Patience),
        bus: Option<Arc<dyn Bus>>,
    ) -> Self {
        let core = Core {
            shared,
            engine: Engine::default(),
            failed: false,
            owed: Cell::new(false),
            peers,
            own,
        };
        Executor {
            core,
            far: bus.map(|bus| Box::new(Far::new(bus))),
        }
    }

    /// Executes one item and counts it as passed. Returns whether more may come. `next` is what follows at once, if
    /// that is known.
    ///
    /// # Safety
    ///
    /// What the hal asks of the submitter of the item holds.
    pub(crate) unsafe fn execute(&mut self, item: Item, next: Option<&Item>) -> bool {
        let mut more = true;
        match item {
            Item::Batch(batch, site) => {
                let soon = matches!(next, Some(Item::Batch(next, _)) if takes_no_time(next));
                // SAFETY: the submitter's promise.
                unsafe { self.batch(&batch, site, soon) };
            }
            Item::Kernel(job) => {
                self.core.kernel(&job);
                if self.is_forked() {
                    std::mem::forget(job);
                    return false;
                }
                // What a kernel captured may panic when it is dropped, and this thread must go on.
                self.core.guarded(job.name(), || drop(job));
            }
            Item::Await(other, mark) => self.core.follow(&other, mark),
            Item::Replay(list, times) => {
                let mut steps = lock(&list);
                let mut place = ReplayPosition { times, at: 0 };
                // SAFETY: the submitter's promise, for each time.
                let all = AssertUnwindSafe(|| unsafe { self.replay(&mut steps, &mut place) });
                if let Err(panic) = catch_unwind(all) {
                    self.core.broke(panic);
                    // Gives up what is left of it, from what it has panicked in.
                    // SAFETY: as above.
                    unsafe { self.replay(&mut steps, &mut place) };
                }
                drop(steps);
                if self.is_forked() {
                    // What its kernels have captured is the parent's.
                    std::mem::forget(list);
                    return false;
                }
                // The program may have dropped the recording meanwhile. Then the panics of what its kernels have captured
                // are this stream's.
                if let Some(list) = Arc::into_inner(list) {
                    let mut steps = list.into_inner().unwrap_or_else(PoisonError::into_inner);
                    let mut jobs = steps.take_kernels();
                    for job in jobs.by_ref() {
                        self.core.guarded(job.name(), || drop(job));
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
        self.core.shared.pass();
        // This wakes wakers, which may fork, too.
        more && !self.is_forked()
    }

    /// Whether a kernel, or what it or a future has left to drop or to wake, has forked, and this is the child: the rest of
    /// the work is the parent's.
    fn is_forked(&self) -> bool {
        !self.core.shared.process.is_this()
    }

    /// After a panic that was no kernel's, in the midst of an item: the stream has failed, and has passed the item.
    #[cold]
    pub(crate) fn recover(&mut self, panic: Box<dyn Any + Send>) {
        self.core.broke(panic);
        self.core.shared.pass();
    }

    /// `soon`: a batch follows at once, which will do as well for telling the helper.
    ///
    /// # Safety
    ///
    /// The promises of [`Batch::new`] hold.
    unsafe fn batch(&mut self, batch: &Batch, site: CallSite, soon: bool) {
        match &mut self.far {
            // SAFETY: the caller's promise.
            None => unsafe { self.core.batch_by(batch, site, soon, &mut HostMover) },
            // SAFETY: as above.
            Some(far) => unsafe { self.core.batch_with_far(batch, site, soon, far) },
        }
    }

    /// # Safety
    ///
    /// What the hal asks of the submitter of each recorded item holds, each time.
    unsafe fn replay(&mut self, steps: &mut Steps, place: &mut ReplayPosition) {
        while place.times > 0 {
            // A time that gives up everything is as good as any number of them.
            let in_vain = self.core.failed && place.at == 0;
            let list = &mut steps.items;
            for at in place.at..list.len() {
                place.at = at;
                self.core.shared.goes_on();
                let next = match list.get(at + 1) {
                    None if place.times > 1 => list.first(),
                    next => next,
                };
                let soon = matches!(next, Some(Recorded::Batch(next, _)) if takes_no_time(next));
                match &mut list[at] {
                    // It has been given up, and what it names may be gone with the other stream's part.
                    Recorded::Batch(..) if steps.given_up => {}
                    // SAFETY: the caller's promise.
                    Recorded::Batch(batch, site) => unsafe { self.batch(batch, site, soon) },
                    Recorded::Kernel(job) => {
                        self.core.kernel(job);
                        if self.is_forked() {
                            return;
                        }
                    }
                    Recorded::Signal(link) => {
                        let fault = || self.core.shared.fault().unwrap_or(Fault::Aborted);
                        link.signal(self.core.failed.then(fault));
                    }
                    Recorded::Await(link, operand) => {
                        self.core.tell();
                        let (shared, own) = (&self.core.shared, self.core.own);
                        let fault = shared.at(AtWork::Stream, || link.follow(operand, own));
                        if let Some(fault) = fault {
                            self.core.fail(fault);
                        }
                    }
                }
            }
            *place = ReplayPosition {
                times: place.times - 1,
                at: 0,
            };
            if in_vain {
                steps.give_up();
                if !steps.awaits_work() {
                    break;
                }
            }
            // Kernels do not look.
            if place.times > 0 && self.core.shared.is_aborted() {
                self.core.fail(Fault::Aborted);
            }
        }
    }
}

impl Core {
    /// # Safety
    ///
    /// As [`Executor::batch`].
    #[inline(never)]
    unsafe fn batch_with_far(&mut self, batch: &Batch, site: CallSite, soon: bool, far: &mut Far) {
        // SAFETY: the caller's promise.
        unsafe { self.batch_by(batch, site, soon, far) }
    }

    /// # Safety
    ///
    /// As [`Executor::batch`].
    #[inline(always)]
    unsafe fn batch_by(&mut self, batch: &Batch, site: CallSite, soon: bool, mover: &mut impl Way) {
        let helper = self.shared.config.helper.as_ref();
        let helper = helper.filter(|_| batch.is_helped());
        if helper.is_none() {
            // What it waits for, or moves, may take its time.
            self.tell();
        }
        if self.failed || self.shared.is_aborted() {
            self.fail(Fault::Aborted);
            self.engine.begin(batch);
            // SAFETY: the caller's promise.
            unsafe { self.engine.give_up(batch, mover) };
            // A doorbell that is not rung is poisoned, and that must be heard, too.
            if batch.is_helped() {
                self.owed.set(true);
            }
            self.tell();
            return;
        }
        let shared = &self.shared;
        let owed = &self.owed;
        let helper = helper.map(|helper| &**helper);
        if batch.has_moves() {
            self.tell();
        }
        let patience = if helper.is_some() {
            helped(self.peers)
        } else {
            self.peers
        };
        let mut slept = false;
        let (engine, mover): (*mut Engine, *mut _) = (&mut self.engine, mover);
        let unwinding = GiveUp {
            engine,
            batch,
            mover,
        };
        // SAFETY: both were borrowed exclusively just now, and are used by nobody else until the guard is gone.
        let (engine, mover) = unsafe { (&mut *engine, &mut *mover) };
        // SAFETY: the caller's promise; core builds batches with words whose bell is that of the rank, which is this stream's.
        let outcome = unsafe {
            tidegate_words::run(
                engine,
                batch,
                mover,
                shared.bell(),
                patience,
                // Called when all lanes are blocked.
                |engine| {
                    if let Some(helper) = helper {
                        // Some lanes may have rung, and others wait for what comes of it.
                        if engine.take_added() || owed.get() {
                            owed.set(false);
                            helper.rung();
                        }
                        if helper.waiting() && !shared.is_aborted() {
                            return Blocked::Again;
                        }
                    }
                    Blocked::unless(shared.is_aborted())
                },
                |engine| {
                    slept = true;
                    shared.set_blocked(engine.pending(batch), site);
                    if let Some(helper) = helper {
                        helper.leaving();
                    }
                },
            )
        };
        std::mem::forget(unwinding);
        if slept {
            shared.set_running();
        }
        if self.engine.take_added() && helper.is_some() {
            self.owed.set(true);
        }
        // A batch that has failed has poisoned doorbells.
        if outcome.is_err() && helper.is_some() {
            self.owed.set(true);
        }
        if !soon || outcome.is_err() {
            self.tell();
        }
        match outcome {
            Ok(()) => {}
            Err(Some(halt)) => {
                let wait = Fault::Wait {
                    tag: halt.tag,
                    epoch: halt.epoch,
                    site: Some(site),
                };
                self.fail(mover.behind_poison().unwrap_or(wait));
            }
            Err(None) => self.fail(mover.fault()),
        }
    }

    /// Tells the helper of doorbells that were rung.
    fn tell(&self) {
        if self.owed.take()
            && let Some(helper) = &self.shared.config.helper
        {
            helper.rung();
        }
    }

    fn kernel(&mut self, job: &Job) {
        self.tell();
        if self.failed {
            return;
        }
        self.guarded(job.name(), || job.call());
    }

    /// Runs what is the user's, which a kernel of this name is or has captured; a panic of it is the stream's fault.
    fn guarded(&mut self, name: &'static Named, work: impl FnOnce()) {
        let work = || catch_unwind(AssertUnwindSafe(work));
        if let Err(panic) = self.shared.at_kernel(name, work) {
            self.fail(Fault::Kernel(said(panic)));
        }
    }

    fn follow(&mut self, other: &Arc<StreamState>, mark: u64) {
        self.tell();
        let wait = || other.wait_until_passed(mark, self.own);
        self.shared.at(AtWork::Stream, wait);
        if other.failed_by(mark) {
            self.fail(other.fault().unwrap_or(Fault::Aborted));
        }
    }

    #[cold]
    fn broke(&mut self, panic: Box<dyn Any + Send>) {
        let detail = format!("a panic outside of any kernel: {}", said(panic));
        self.shared.set_running();
        self.fail(Fault::Transport(detail));
    }

    fn fail(&mut self, fault: Fault) {
        if !self.failed {
            self.failed = true;
            self.shared.set_fault(fault);
        }
    }
}

/// Gives up a batch in which this thread unwinds: others wait for what it would have added.
struct GiveUp<'a, M: Mover> {
    engine: *mut Engine,
    batch: &'a Batch,
    mover: *mut M,
}

impl<M: Mover> Drop for GiveUp<'_, M> {
    fn drop(&mut self) {
        // SAFETY: it is dropped by unwinding alone, out of the call that the two were lent to; the batch's promises hold.
        unsafe { (*self.engine).give_up(self.batch, &mut *self.mover) };
    }
}

/// The message of a panic.
fn said(panic: Box<dyn Any + Send>) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned());
    let_go(panic);
    text
}

/// Whether a batch that follows will do for telling the helper what the one before it has rung.
fn takes_no_time(batch: &Batch) -> bool {
    batch.is_helped() && !batch.has_moves()
}

/// How long a wait stays awake that turns a NIC's engine meanwhile: as many looks as others have, of which each takes as
/// long as several of theirs. An offer of the processor that nobody takes costs as much as a look, and what comes
/// meanwhile lies: so there are none between looks, where ranks have processors of their own. Where they have not, the
/// processor is offered after each: a peer that shares it may be about to send.
fn helped(patience: Patience) -> Patience {
    let looks = patience.yields * (1 + patience.spins / 4);
    Patience {
        yields: looks / (1 + patience.spins),
        ..patience
    }
}
