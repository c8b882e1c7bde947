//! Executes work items, on the stream's thread or (inline) on the submitting one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tidegate_hal::batch::Batch;
use tidegate_hal::device::{Fault, Reclaim};
use tidegate_words::{Engine, Patience};

use crate::graph::{List, Recorded};
use crate::job::Job;
use crate::moves::HostMover;
use crate::reclaim::Shared;

/// A work item in the queue.
pub(crate) enum Item {
    Batch(Arc<Batch>),
    Kernel(Job),
    /// Waits until another stream has passed a mark.
    Await(Arc<Shared>, u64),
    Replay(Arc<List>, u64),
    /// The owner is gone.
    Stop,
}

pub(crate) struct Executor {
    shared: Arc<Shared>,
    engine: Engine,
    failed: bool,
    /// For waits in batches.
    peers: Patience,
    /// For waits for other streams.
    own: Patience,
}

impl Executor {
    pub(crate) fn new(shared: Arc<Shared>, peers: Patience, own: Patience) -> Self {
        Executor {
            shared,
            engine: Engine::default(),
            failed: false,
            peers,
            own,
        }
    }

    /// Executes one item and counts it as passed. Returns whether more may come.
    ///
    /// # Safety
    ///
    /// What the hal asks of the submitter of the item holds.
    pub(crate) unsafe fn execute(&mut self, item: Item) -> bool {
        let mut more = true;
        match item {
            // SAFETY: the submitter's promise.
            Item::Batch(batch) => unsafe { self.batch(&batch) },
            Item::Kernel(job) => {
                self.kernel(&job);
                // What a kernel captured may panic when it is dropped, and this thread must go on.
                self.guarded(|| drop(job));
            }
            Item::Await(other, mark) => self.follow(&other, mark),
            // SAFETY: the submitter's promise, for each time.
            Item::Replay(list, times) => unsafe { self.replay(&list, times) },
            Item::Stop => more = false,
        }
        self.shared.pass();
        more
    }

    /// # Safety
    ///
    /// The promises of [`Batch::new`] hold.
    unsafe fn batch(&mut self, batch: &Batch) {
        if self.failed || self.shared.is_aborted() {
            self.fail(Fault::Aborted);
            self.engine.begin(batch);
            // SAFETY: the caller's promise.
            unsafe { self.engine.give_up(batch) };
            // A doorbell that is not rung is poisoned, and that must be heard, too.
            self.help();
            return;
        }
        let shared = &self.shared;
        let mut slept = false;
        // SAFETY: the caller's promise; core builds batches with words whose bell is that of the rank, which is this stream's.
        let outcome = unsafe {
            tidegate_words::run(
                &mut self.engine,
                batch,
                &mut HostMover,
                shared.bell(),
                self.peers,
                // Called when all lanes are blocked.
                || {
                    if let Some(helper) = &shared.config.helper {
                        helper.waiting();
                    }
                    shared.is_aborted()
                },
                |engine| {
                    slept = true;
                    shared.set_blocked(engine.pending(batch));
                },
            )
        };
        if slept {
            shared.set_running();
        }
        self.help();
        match outcome {
            Ok(()) => {}
            Err(Some(halt)) => self.fail(Fault::Wait {
                tag: halt.tag,
                epoch: halt.epoch,
            }),
            Err(None) => self.fail(Fault::Aborted),
        }
    }

    /// The batch that is over may have rung a NIC's doorbell.
    fn help(&self) {
        if let Some(helper) = &self.shared.config.helper {
            helper.rung();
        }
    }

    fn kernel(&mut self, job: &Job) {
        if self.failed {
            return;
        }
        self.guarded(|| job.call());
    }

    /// Runs what is the user's; a panic of it is the stream's fault.
    fn guarded(&mut self, work: impl FnOnce()) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
            let text = panic
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "a panic without a message".to_owned());
            // The payload is the user's too.
            std::mem::forget(panic);
            self.fail(Fault::Kernel(text));
        }
    }

    fn follow(&mut self, other: &Arc<Shared>, mark: u64) {
        other.wait_until_passed(mark, self.own);
        if other.failed_by(mark) {
            self.fail(other.fault().unwrap_or(Fault::Aborted));
        }
    }

    /// # Safety
    ///
    /// What the hal asks of the submitter of each recorded item holds, each time.
    unsafe fn replay(&mut self, list: &List, times: u64) {
        let mut list = list
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        for _ in 0..times {
            for item in list.iter_mut() {
                match item {
                    // SAFETY: the caller's promise.
                    Recorded::Batch(batch) => unsafe { self.batch(batch) },
                    Recorded::Kernel(job) => self.kernel(job),
                    Recorded::Signal(link) => {
                        let fault = || self.shared.fault().unwrap_or(Fault::Aborted);
                        link.signal(self.failed.then(fault));
                    }
                    Recorded::Await(link, operand) => {
                        if let Some(fault) = link.follow(operand, self.own) {
                            self.fail(fault);
                        }
                    }
                }
            }
        }
    }

    fn fail(&mut self, fault: Fault) {
        if !self.failed {
            self.failed = true;
            self.shared.set_fault(fault);
        }
    }
}
