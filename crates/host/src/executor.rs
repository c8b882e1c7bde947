//! Executes work items, on the stream's thread or, inline, on the submitting thread.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tidegate_hal::batch::Batch;
use tidegate_hal::device::{Call, Fault, Issues, Reclaim, Stopped};
use tidegate_hal::far::Bus;
use tidegate_hal::lock;
use tidegate_hal::site::CallSite;
use tidegate_hal::stamps::{lost, now};
use tidegate_words::{Blocked, Engine, Halt, Mover, Patience};

use crate::far::Far;
use crate::graph::{List, Recorded, Steps};
use crate::job::Job;
use crate::moves::HostMover;
use crate::reclaim::{AtWork, Named, STEP, StreamState, let_go};
use crate::stamps::{Ring, Stamped, Stamper};

/// A work item in the queue.
pub(crate) enum Item {
    /// A batch, and the call that enqueued it.
    Batch(Arc<Batch>, CallSite),
    /// The last batch once more. A batch that is shared costs two atomic operations, which wait for stores as a fence does.
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
    core: Core,
    /// The mover for batches that touch far addresses.
    far: Option<Box<Far>>,
    /// The last batch that was not the same as the one before. It is kept until another one comes.
    last: Option<Arc<Batch>>,
}

/// The executor without its mover for far addresses.
struct Core {
    shared: Arc<StreamState>,
    engine: Engine,
    /// If the stream is stamped.
    stamper: Option<Box<Stamper>>,
    failed: bool,
    /// How many items have been executed since the last one that counts as passed.
    done: Cell<u64>,
    /// The batches of these items. To let go of one takes an atomic operation, which waits for stores as a fence does.
    ran: Vec<Arc<Batch>>,
    /// Whether doorbells were rung of which the helper has not been told yet.
    owed: Cell<bool>,
    /// The patience of waits in batches.
    peers: Patience,
    /// The patience of waits for other streams.
    own: Patience,
}

/// The position of a replay: how many repetitions are left, with the current one, and the index of the current item.
struct ReplayPosition {
    times: u64,
    at: usize,
}

/// After how many items others hear of them at the latest, if quick batches follow each other without a pause. To tell
/// them takes fences. Each waits until the stores before it have reached the caches, which is most of the time of a short
/// batch.
const RUN: u64 = 16;

/// How many milliseconds it may take until the failure of a bus is known here.
const NEWS: u32 = 50;

/// A mover that can say why it did not go on.
trait Faulting: Mover {
    fn fault(&self) -> Fault {
        Fault::Aborted
    }

    /// The cause of a poison, if the mover knows it better than the tag of the wait tells.
    fn behind_poison(&self) -> Option<Fault> {
        None
    }
}

impl Faulting for HostMover {}

impl<M: Faulting> Faulting for Stamped<'_, M> {
    fn fault(&self) -> Fault {
        self.mover.fault()
    }

    fn behind_poison(&self) -> Option<Fault> {
        self.mover.behind_poison()
    }
}

impl Faulting for Far {
    fn fault(&self) -> Fault {
        let failure = self.failure();
        failure.map_or(Fault::Aborted, |error| Fault::Transport(error.to_string()))
    }

    /// A peer that knows of the bus's failure may poison a word before this rank learns of the failure. So this waits
    /// for a while.
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
        ring: Option<Arc<Ring>>,
    ) -> Self {
        let core = Core {
            shared,
            engine: Engine::default(),
            stamper: ring.map(|ring| Box::new(Stamper::new(ring))),
            failed: false,
            done: Cell::new(0),
            ran: Vec::with_capacity(RUN as usize),
            owed: Cell::new(false),
            peers,
            own,
        };
        Executor {
            core,
            far: bus.map(|bus| Box::new(Far::new(bus))),
            last: None,
        }
    }

    /// Executes one item. Returns whether more items may come. `kernel` returns the kernel of such an item. `next` is the item that follows at once, if it is known:
    /// if it is a quick batch, this item may count as passed only after that one. If there is none, all items count as
    /// passed.
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
                self.core.ran.extend(self.last.replace(batch));
                // SAFETY: the submitter's promise.
                unsafe { self.last_batch(site, next) };
            }
            // SAFETY: as above.
            Item::Again(site) => unsafe { self.last_batch(site, next) },
            Item::Kernel => {
                let job = kernel().expect("it was enqueued before its item");
                self.core.kernel(&job);
                if self.is_forked() {
                    std::mem::forget(job);
                    return false;
                }
                // Values that a kernel captured may panic when they are dropped, and this thread must go on.
                self.core.guarded(job.name(), || drop(job));
            }
            Item::Await(other, mark) => self.core.follow(&other, mark),
            Item::Replay(list, times) => {
                let mut steps = lock(&list);
                let mut place = ReplayPosition { times, at: 0 };
                // SAFETY: the submitter's promise, for each repetition.
                let all = AssertUnwindSafe(|| unsafe { self.replay(&mut steps, &mut place) });
                if let Err(panic) = catch_unwind(all) {
                    self.core.broke(panic);
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
        let done = self.core.done.get() + 1;
        self.core.done.set(done);
        let soon = self.batch_of(next).is_some_and(Batch::is_quick);
        // Items that had to wait may have been passed already, and their batches are not let go of yet.
        if !soon || done >= RUN || self.core.ran.len() >= RUN as usize {
            self.core.settle();
        }
        // `settle` calls wakers, which may fork, too.
        more && !self.is_forked()
    }

    /// The stream has nothing to do for a while.
    pub(crate) fn rests(&mut self) {
        if let Some(stamper) = &mut self.core.stamper {
            stamper.hand_over_all();
        }
    }

    /// Whether this is a child. Kernels, wakers, and drops of values that they have captured may fork. Then the rest of
    /// the work belongs to the parent.
    fn is_forked(&self) -> bool {
        !self.core.shared.process.is_this()
    }

    /// Recovers from a panic outside kernels, in the middle of an item: the stream fails, and passes the item.
    #[cold]
    pub(crate) fn recover(&mut self, panic: Box<dyn Any + Send>) {
        self.core.broke(panic);
        self.core.done.update(|done| done + 1);
        self.core.settle();
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
        if let Some(stamper) = self.core.stamper.take() {
            // SAFETY: the caller's promise.
            return unsafe { self.stamped_batch(batch, site, soon, stamper) };
        }
        match &mut self.far {
            // SAFETY: the caller's promise.
            None => unsafe { self.core.batch_by(batch, site, soon, &mut HostMover) },
            // SAFETY: as above.
            Some(far) => unsafe { self.core.batch_with_far(batch, site, soon, far) },
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
        let core = &mut self.core;
        match &mut self.far {
            // SAFETY: the caller's promise.
            None => unsafe { core.stamped_by(batch, site, soon, &mut HostMover, stamper) },
            // SAFETY: as above.
            Some(far) => unsafe { core.stamped_by(batch, site, soon, &mut **far, stamper) },
        }
    }

    /// # Safety
    ///
    /// Each recorded item meets the conditions of the method of the hal that submitted it, at each repetition.
    unsafe fn replay(&mut self, steps: &mut Steps, place: &mut ReplayPosition) {
        while place.times > 0 {
            // One repetition that gives up everything is as good as any number of them.
            let gives_up = self.core.failed && place.at == 0;
            let list = &mut steps.items;
            for at in place.at..list.len() {
                place.at = at;
                if self.core.shared.goes_on().is_multiple_of(RUN * STEP) || !list[at].is_quick() {
                    self.core.ring();
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
            if gives_up {
                steps.give_up();
                if !steps.awaits_work() {
                    break;
                }
            }
            // A replay that contains only kernels would not notice an abort otherwise.
            if place.times > 0 && self.core.shared.is_aborted() {
                self.core.fail(Fault::Aborted);
            }
        }
    }
}

impl Core {
    /// # Safety
    ///
    /// As for [`Executor::batch`].
    #[inline(never)]
    unsafe fn batch_with_far(&mut self, batch: &Batch, site: CallSite, soon: bool, far: &mut Far) {
        // SAFETY: the caller's promise.
        unsafe { self.batch_by(batch, site, soon, far) }
    }

    /// Like [`Core::batch_by`], and stamps what the batch does.
    ///
    /// # Safety
    ///
    /// As for [`Executor::batch`].
    unsafe fn stamped_by(
        &mut self,
        batch: &Batch,
        site: CallSite,
        soon: bool,
        mover: &mut impl Faulting,
        mut stamper: Box<Stamper>,
    ) {
        stamper.begin(batch);
        let mut stamped = Stamped {
            mover,
            stamper: &mut stamper,
        };
        // SAFETY: the caller's promise.
        unsafe { self.batch_by(batch, site, soon, &mut stamped) };
        stamper.hand_over();
        self.stamper = Some(stamper);
    }

    /// Runs a batch for the kernel that runs.
    ///
    /// # Safety
    ///
    /// As for [`Executor::batch`]. The batch touches no far addresses.
    #[inline(never)]
    unsafe fn issue(&mut self, batch: &Batch, site: CallSite) -> Result<(), Stopped> {
        match self.stamper.take() {
            // SAFETY: the caller's promise.
            None => unsafe { self.batch_by(batch, site, false, &mut HostMover) },
            // SAFETY: as above.
            Some(stamper) => unsafe {
                self.stamped_by(batch, site, false, &mut HostMover, stamper);
            },
        }
        if !self.shared.process.is_this() {
            return Err(Stopped);
        }
        // The kernel may compute for long before its next call.
        self.ring();
        self.shared.begins(AtWork::Kernel);
        match self.failed {
            true => Err(Stopped),
            false => Ok(()),
        }
    }

    /// # Safety
    ///
    /// As for [`Executor::batch`].
    #[inline(always)]
    unsafe fn batch_by(
        &mut self,
        batch: &Batch,
        site: CallSite,
        soon: bool,
        mover: &mut impl Faulting,
    ) {
        let helper = self.shared.config.helper.as_ref();
        let helper = helper.filter(|_| batch.is_helped());
        if helper.is_none() {
            // Its waits and moves may take long.
            self.tell();
        }
        if self.failed || self.shared.is_aborted() {
            self.fail(Fault::Aborted);
            self.engine.begin(batch);
            // SAFETY: the caller's promise.
            unsafe { self.engine.give_up(batch, mover) };
            // A doorbell that is not rung is poisoned, and the helper must learn of that, too.
            if batch.is_helped() {
                self.owed.set(true);
            }
            self.tell();
            return;
        }
        let (shared, owed, done) = (&self.shared, &self.owed, &self.done);
        let helper = helper.map(|helper| &**helper);
        if batch.has_moves() {
            self.tell();
        }
        let patience = if helper.is_some() {
            helped(self.peers)
        } else {
            until_read(self.peers, batch)
        };
        let mut slept = false;
        let (engine, mover): (*mut Engine, *mut _) = (&mut self.engine, mover);
        let unwinding = GiveUp {
            engine,
            batch,
            mover,
        };
        // SAFETY: both were borrowed exclusively just now, and nothing else uses them until the guard is gone.
        let (engine, mover) = unsafe { (&mut *engine, &mut *mover) };
        // SAFETY: the caller's promise; core builds batches with words whose bell is the rank's, and that is this
        // stream's bell.
        let outcome = unsafe {
            tidegate_words::run(
                engine,
                batch,
                mover,
                shared.bell(),
                patience,
                // Called when all lanes are blocked.
                |engine| {
                    // What this batch waits for may depend on somebody who waits for earlier items.
                    let earlier = done.take();
                    if earlier != 0 {
                        shared.pass(earlier);
                        // That calls wakers, which may fork.
                        if !shared.process.is_this() {
                            return Blocked::Leaves;
                        }
                    }
                    if let Some(helper) = helper {
                        // Some lanes may have rung, and others may wait for the result.
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
        if outcome.is_err() && !shared.process.is_this() {
            return;
        }
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
                let fault = match halt {
                    Halt::Wait { tag, epoch } => {
                        let site = Some(site);
                        let wait = Fault::Wait { tag, epoch, site };
                        mover.behind_poison().unwrap_or(wait)
                    }
                    Halt::Check { tag, count } => Fault::Count { tag, count },
                };
                self.fail(fault);
            }
            Err(None) => self.fail(mover.fault()),
        }
    }

    /// Rings the bells of all adds that have been made.
    fn ring(&mut self) {
        // SAFETY: no item since the last call has been passed. So the bells that its adds name are live.
        unsafe { self.engine.ring() };
    }

    /// Tells others of all that has been done.
    fn settle(&mut self) {
        self.ring();
        self.ran.clear();
        self.shared.pass(self.done.take());
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
        let begun = self.stamper.is_some().then(|| {
            let lost = lost();
            (now(), lost)
        });
        self.shared.begins_kernel(job.name());
        let issuer = Issuer(RefCell::new(self));
        let ended = catch_unwind(AssertUnwindSafe(|| job.call(&issuer)));
        self.ended(ended);
        if let (Some(begun), Some(stamper)) = (begun, &mut self.stamper) {
            stamper.kernel(job.name().0(), begun);
        }
    }

    /// Drops values that a kernel of this name has captured. A panic is the stream's fault.
    fn guarded(&mut self, name: &'static Named, work: impl FnOnce()) {
        self.shared.begins_kernel(name);
        let ended = catch_unwind(AssertUnwindSafe(work));
        self.ended(ended);
    }

    /// Code of the user has returned, or panicked.
    fn ended(&mut self, ended: Result<(), Box<dyn Any + Send>>) {
        self.shared.ends();
        match ended {
            Ok(()) => {}
            // A call of the kernel has found that the stream has failed, or that this is a child of the process.
            Err(panic)
                if panic.is::<Stopped>() && (self.failed || !self.shared.process.is_this()) => {}
            Err(panic) => self.fail(Fault::Kernel(said(panic))),
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
        let detail = format!("a panic outside any kernel: {}", said(panic));
        self.shared.set_running();
        self.fail(Fault::Transport(detail));
    }

    fn fail(&mut self, fault: Fault) {
        if !self.failed {
            self.failed = true;
            self.shared.set_fault(fault, self.done.get());
        }
    }
}

/// Carries out batches for the kernel that runs.
struct Issuer<'a>(RefCell<&'a mut Core>);

impl Issues for Issuer<'_> {
    unsafe fn issue(&self, batch: &Batch, site: CallSite) -> Result<(), Stopped> {
        // SAFETY: the caller's promise. Kernels issue no batch with far addresses: core refuses windows that have them.
        unsafe { self.0.borrow_mut().issue(batch, site) }
    }
}

/// Gives up a batch when this thread unwinds in it, because other ranks wait for its adds.
struct GiveUp<'a, M: Mover> {
    engine: *mut Engine,
    batch: &'a Batch,
    mover: *mut M,
}

impl<M: Mover> Drop for GiveUp<'_, M> {
    fn drop(&mut self) {
        // SAFETY: it is dropped only by unwinding out of the call that borrowed the two; the batch's promises hold.
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

/// Whether the helper can be told of earlier rings when this batch has run.
fn takes_no_time(batch: &Batch) -> bool {
    batch.is_helped() && !batch.has_moves()
}

/// The patience of a wait until targets have read what this batch puts. A yield takes no less time than a target takes for
/// so many bytes. To sleep and to be woken again would take longer than to read a megabyte.
fn until_read(patience: Patience, batch: &Batch) -> Patience {
    const EACH: u64 = 4 << 10;
    const MOST: u64 = 1 << 10;
    let more = (batch.bytes_of_others() / EACH).min(MOST) as u32;
    Patience {
        yields: patience.yields + more,
        ..patience
    }
}

/// The patience of waits that turn a NIC's engine. They make as many looks as others, but each look takes as long as
/// several of theirs.
///
/// If ranks have processors of their own, such a wait does not yield between looks: a yield costs as much as a look,
/// and delays what arrives meanwhile. Otherwise it yields after each look, because a peer on the same processor may be
/// about to send.
fn helped(patience: Patience) -> Patience {
    let looks = patience.yields * (1 + patience.spins / 4);
    Patience {
        yields: looks / (1 + patience.spins),
        ..patience
    }
}
