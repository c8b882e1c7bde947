//! Runs the batches and the kernels of a stream, one after another.
//!
//! # Model
//!
//! The engine of `tidegate-words` takes a batch through its steps, and a mover ([`Faulting`]) makes the moves. The
//! caller brings the mover. If the stream is stamped, the mover is wrapped in one that notes what it does.
//!
//! Others hear late of what has been done, because telling them takes fences: of passed items after [`RUN`] of them at
//! the latest, and the NIC's helper of doorbells before anything that may take long.
//!
//! # Failure
//!
//! The first failure is the stream's. From then on batches are given up, which poisons what other ranks wait for, and
//! kernels are skipped. That also happens to a batch in which this thread unwinds.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tidegate_hal::batch::Batch;
use tidegate_hal::device::{Fault, Issues, Reclaim, Stopped};
use tidegate_hal::site::CallSite;
use tidegate_hal::stamps::{lost, now};
use tidegate_words::{Blocked, Engine, Halt, Mover, Patience};

use crate::far::Far;
use crate::faulting::Faulting;
use crate::job::Job;
use crate::moves::HostMover;
use crate::reclaim::{AtWork, Named, StreamState, let_go};
use crate::stamps::{Ring, Stamped, Stamper};

/// After how many items others hear of them at the latest, if quick batches follow each other without a pause. To tell
/// them takes fences. Each waits until the stores before it have reached the caches, which is most of the time of a
/// short batch.
pub(crate) const RUN: u64 = 16;

/// Runs batches by the mover that it is given.
pub(crate) struct Runner {
    pub(crate) shared: Arc<StreamState>,
    engine: Engine,
    /// If the stream is stamped.
    pub(crate) stamper: Option<Box<Stamper>>,
    pub(crate) failed: bool,
    /// How many items have been executed since the last one that counts as passed.
    done: Cell<u64>,
    /// The batches of these items. To let go of one takes an atomic operation, which waits for stores as a fence does.
    pub(crate) ran: Vec<Arc<Batch>>,
    /// Whether doorbells were rung of which the helper has not been told yet.
    owed: Cell<bool>,
    /// The patience of waits in batches.
    peers: Patience,
    /// The patience of waits for other streams.
    pub(crate) own: Patience,
}

impl Runner {
    pub(crate) fn new(
        shared: Arc<StreamState>,
        (peers, own): (Patience, Patience),
        ring: Option<Arc<Ring>>,
    ) -> Self {
        Runner {
            shared,
            engine: Engine::default(),
            stamper: ring.map(|ring| Box::new(Stamper::new(ring))),
            failed: false,
            done: Cell::new(0),
            ran: Vec::with_capacity(RUN as usize),
            owed: Cell::new(false),
            peers,
            own,
        }
    }

    /// # Safety
    ///
    /// The promises of [`Batch::new`] hold.
    #[inline(never)]
    pub(crate) unsafe fn batch_with_far(
        &mut self,
        batch: &Batch,
        site: CallSite,
        soon: bool,
        far: &mut Far,
    ) {
        // SAFETY: the caller's promise.
        unsafe { self.batch_by(batch, site, soon, far) }
    }

    /// Like [`Runner::batch_by`], and stamps what the batch does.
    ///
    /// # Safety
    ///
    /// The promises of [`Batch::new`] hold.
    pub(crate) unsafe fn stamped_by(
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
    /// The promises of [`Batch::new`] hold. The batch touches no far addresses.
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
    /// The promises of [`Batch::new`] hold.
    #[inline(always)]
    pub(crate) unsafe fn batch_by(
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
    pub(crate) fn ring(&mut self) {
        // SAFETY: no item since the last call has been passed. So the bells that its adds name are live.
        unsafe { self.engine.ring() };
    }

    /// An item has been executed. `soon` says that a quick batch follows at once. If none does, all items count as
    /// passed.
    #[inline]
    pub(crate) fn passes(&mut self, soon: bool) {
        let done = self.done.get() + 1;
        self.done.set(done);
        // Items that had to wait may have been passed already, and their batches are not let go of yet.
        if !soon || done >= RUN || self.ran.len() >= RUN as usize {
            self.settle();
        }
    }

    /// Tells others of all that has been done.
    fn settle(&mut self) {
        self.ring();
        self.ran.clear();
        self.shared.pass(self.done.take());
    }

    /// Tells the helper of doorbells that were rung.
    pub(crate) fn tell(&self) {
        if self.owed.take()
            && let Some(helper) = &self.shared.config.helper
        {
            helper.rung();
        }
    }

    pub(crate) fn kernel(&mut self, job: &Job) {
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
    pub(crate) fn guarded(&mut self, name: &'static Named, work: impl FnOnce()) {
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

    pub(crate) fn follow(&mut self, other: &Arc<StreamState>, mark: u64) {
        self.tell();
        let wait = || other.wait_until_passed(mark, self.own);
        self.shared.at(AtWork::Stream, wait);
        if other.failed_by(mark) {
            self.fail(other.fault().unwrap_or(Fault::Aborted));
        }
    }

    #[cold]
    pub(crate) fn broke(&mut self, panic: Box<dyn Any + Send>) {
        let detail = format!("a panic outside any kernel: {}", said(panic));
        self.shared.set_running();
        self.fail(Fault::Transport(detail));
    }

    pub(crate) fn fail(&mut self, fault: Fault) {
        if !self.failed {
            self.failed = true;
            self.shared.set_fault(fault, self.done.get());
        }
    }
}

/// Carries out batches for the kernel that runs.
struct Issuer<'a>(RefCell<&'a mut Runner>);

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

/// The patience of a wait until targets have read what this batch puts. A yield takes no less time than a target takes
/// for so many bytes. To sleep and to be woken again would take longer than to read a megabyte.
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
