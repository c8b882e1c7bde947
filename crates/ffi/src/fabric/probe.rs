//! A trial that finds out what a provider's description does not say.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::counter::{Counter, WaitObject};
use super::domain::Domain;
use super::error::FabricError;
use super::work::{QueueError, Work, WorkQueue};

/// Whether a provider carries out deferred works.
#[derive(Debug)]
pub enum Deferred {
    /// A work was queued and fired, and did what it should.
    Works,
    /// The work was refused. Mostly the provider has no deferred works
    /// ([`is_not_supported`](FabricError::is_not_supported)), or no counters.
    Refused(FabricError),
    /// The work was queued, and nothing happened.
    Silent,
}

impl Deferred {
    /// Whether it does.
    pub fn works(&self) -> bool {
        matches!(self, Deferred::Works)
    }
}

impl Domain {
    /// Finds out whether the provider carries out deferred works, by queueing one and firing it. No description says
    /// it. The trial needs no peer, takes two counters for a moment, and ends after `limit` at the latest.
    pub fn probe_deferred(self: &Arc<Self>, limit: Duration) -> Deferred {
        match self.try_deferred(limit) {
            Ok(true) => Deferred::Works,
            Ok(false) => Deferred::Silent,
            Err(QueueError::Fabric(error)) => Deferred::Refused(error),
            Err(other) => Deferred::Refused(FabricError::refused(
                "fi_control(FI_QUEUE_WORK)",
                other.to_string(),
            )),
        }
    }

    fn try_deferred(self: &Arc<Self>, limit: Duration) -> Result<bool, QueueError> {
        let trigger = Counter::open(self, WaitObject::NONE)?;
        let target = Counter::open(self, WaitObject::NONE)?;
        let queue = WorkQueue::new(self);
        let start = Instant::now();
        loop {
            let work = Work::counter_add(&target, 1).after(&trigger, 1);
            // SAFETY: the work names no memory, and nothing else adds to the target.
            match unsafe { queue.queue(work) } {
                // Works of other processes may take all room, for a moment.
                Err(error) if error.is_full() && start.elapsed() < limit => {
                    std::thread::yield_now();
                }
                other => {
                    other?;
                    break;
                }
            }
        }
        if target.read() != 0 {
            return Ok(false);
        }
        trigger.add(1)?;
        let start = Instant::now();
        while target.read() != 1 {
            if start.elapsed() > limit {
                return Ok(false);
            }
            std::thread::yield_now();
        }
        queue.drain(limit, || {});
        Ok(true)
    }
}
