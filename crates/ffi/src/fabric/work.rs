//! Deferred works: operations that a counter fires.

mod queue;

use std::sync::Arc;

pub use queue::{WorkId, WorkQueue};

use super::block::{Block, Kind};
use super::counter::Counter;
use super::endpoint::{Endpoint, Local, Remote};
use super::error::{FabricError, Result};
use super::flags::{MrMode, OpFlags};
use super::object::Keep;

/// An operation that begins when a counter reaches a threshold (`struct fi_deferred_work`). This is a description:
/// nothing is queued yet.
#[derive(Debug)]
#[must_use = "a work does nothing until it is queued"]
pub struct Work {
    block: Block,
    endpoint: Option<Arc<Endpoint>>,
    /// The counter that it adds to, and the number that it adds.
    target: Option<(Arc<Counter>, u64)>,
    trigger: Option<(Arc<Counter>, u64)>,
    completion: Option<Arc<Counter>>,
    keep: Vec<Keep>,
}

/// Why a work was not queued.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// It does not say which counter it waits for.
    #[error("a deferred work has no counter to wait for")]
    NoTrigger,
    /// It does not say which counter counts its completion. Providers would crash.
    #[error("a deferred work has no completion counter")]
    NoCompletionCounter,
    /// It adds 0 to a counter. Nothing would ever show that it is complete.
    #[error("a deferred work adds nothing to a counter")]
    AddsNothing,
    /// Its endpoint, or a counter, is of another domain.
    #[error("the endpoint or a counter of a deferred work is of another domain")]
    OtherDomain,
    /// The provider has no room at the moment. The work is returned.
    #[error("the provider has no room for a deferred work just now")]
    Again(Box<Work>),
    /// The provider refused it: [`is_not_supported`](FabricError::is_not_supported) if it has no such works at all.
    #[error(transparent)]
    Fabric(#[from] FabricError),
}

impl QueueError {
    /// Whether there was no room, but may be some later. (If processes share the provider's pool, providers have
    /// different codes for this.)
    pub fn is_full(&self) -> bool {
        match self {
            QueueError::Again(_) => true,
            QueueError::Fabric(error) => error.is_exhausted(),
            _ => false,
        }
    }
}

impl Work {
    fn new(kind: Kind) -> Work {
        Work {
            block: Block::new(kind),
            endpoint: None,
            target: None,
            trigger: None,
            completion: None,
            keep: Vec::new(),
        }
    }

    fn on(kind: Kind, endpoint: &Arc<Endpoint>) -> Work {
        let mut work = Work::new(kind);
        work.endpoint = Some(Arc::clone(endpoint));
        work
    }

    /// Writes `from` to a peer's memory.
    ///
    /// # Errors
    ///
    /// [`is_refused`](FabricError::is_refused) for a peer of another vector.
    pub fn write(endpoint: &Arc<Endpoint>, from: Local, to: Remote) -> Result<Work> {
        Work::rma(Kind::Write, endpoint, from, to)
    }

    /// Reads a peer's memory into `into`.
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write).
    pub fn read(endpoint: &Arc<Endpoint>, into: Local, from: Remote) -> Result<Work> {
        Work::rma(Kind::Read, endpoint, into, from)
    }

    fn rma(kind: Kind, endpoint: &Arc<Endpoint>, local: Local, remote: Remote) -> Result<Work> {
        let peer = endpoint.number(QUEUE, remote.peer)?;
        let mut work = Work::on(kind, endpoint);
        work.block.set_rma(endpoint, peer, local, remote);
        Ok(work)
    }

    /// Adds to a number of a peer's memory. The work itself holds the operand.
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write); [`is_not_supported`](FabricError::is_not_supported) if the provider cannot do it,
    /// and [`is_refused`](FabricError::is_refused) if operands must be registered.
    pub fn add(endpoint: &Arc<Endpoint>, operand: u64, to: Remote) -> Result<Work> {
        if endpoint.domain().info().mr_mode().contains(MrMode::LOCAL) {
            return Err(FabricError::refused(
                QUEUE,
                "operands must be registered here (FI_MR_LOCAL)",
            ));
        }
        let peer = endpoint.number(QUEUE, to.peer)?;
        endpoint.check_adds(QUEUE)?;
        let mut work = Work::on(Kind::Add, endpoint);
        work.block.set_add(endpoint, peer, operand, to);
        Ok(work)
    }

    /// Adds to a counter. A cycle of these deadlocks some providers.
    pub fn counter_add(counter: &Arc<Counter>, value: u64) -> Work {
        let mut work = Work::new(Kind::CounterAdd);
        work.target = Some((Arc::clone(counter), value));
        work.block.set_counter(counter, value);
        work
    }

    /// Makes the work begin when `counter` reaches `threshold`.
    pub fn after(mut self, counter: &Arc<Counter>, threshold: u64) -> Work {
        self.trigger = Some((Arc::clone(counter), threshold));
        self
    }

    /// Makes `counter` count 1 when the work is complete. (Works that add to a counter need no completion counter, and
    /// providers ignore it.)
    pub fn completes(mut self, counter: &Arc<Counter>) -> Work {
        self.completion = Some(Arc::clone(counter));
        self
    }

    /// Sets the data that a write brings to the target's queue, with [`OpFlags::REMOTE_CQ_DATA`] among its
    /// [`flags`](Self::flags). Other works ignore it.
    pub fn data(mut self, data: u64) -> Work {
        self.block.set_data(data);
        self
    }

    /// The context of its completion, or its failure, in the endpoint's queue. No other work has the same context as
    /// long as this one lives. The context is an address, and so never a small number.
    pub fn context(&self) -> usize {
        self.block.context()
    }

    /// Sets the flags. They mean nothing for works that add to a counter.
    pub fn flags(mut self, flags: OpFlags) -> Work {
        self.block.set_flags(flags.0);
        self
    }

    /// Keeps `keep` as long as the work.
    pub fn keep(mut self, keep: Keep) -> Work {
        self.keep.push(keep);
        self
    }
}

const QUEUE: &str = "fi_control(FI_QUEUE_WORK)";
