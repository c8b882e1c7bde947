//! The owner's end of a queue.

use std::sync::Arc;

use tidegate_hal::batch::{Action, Move, Side};
use tidegate_hal::memory::{Block as _, Ptr};
use tidegate_hal::nic::{Direction, NicError, NicQueue, Prepared, Program, RemotePtr, Transfer};
use tidegate_hal::process::Process;
use tidegate_host::HostBlock;

use crate::agent::Agent;
use crate::options::NAME;
use crate::queue::{Queue, Script};

/// The owner's end of a queue.
pub(crate) struct Handle {
    process: Process,
    queue: Arc<Queue>,
    agent: Arc<Agent>,
}

impl Handle {
    pub(crate) fn new(queue: Arc<Queue>, agent: Arc<Agent>) -> Self {
        Handle {
            process: Process::this(),
            queue,
            agent,
        }
    }

    fn resolve(place: &RemotePtr) -> Result<Ptr, NicError> {
        let block = place
            .memory
            .0
            .downcast_ref::<HostBlock>()
            .ok_or_else(|| NicError::BadKey("memory of another NIC".into()))?;
        Ok(block.base().byte_add(place.offset))
    }

    fn lower(&self, transfer: &Transfer) -> Result<Move, NicError> {
        let remote = Side {
            base: Self::resolve(&transfer.remote.base)?,
            flip: transfer.remote.flip,
            shape: transfer.remote.shape,
        };
        let (src, dst) = match (transfer.action, transfer.direction) {
            (Action::Copy, Direction::Get) => (remote, transfer.local),
            (_, Direction::Put) => (transfer.local, remote),
            (_, Direction::Get) => {
                let what = "a get that computes".into();
                return Err(NicError::Unsupported { nic: NAME, what });
            }
        };
        Ok(Move {
            action: transfer.action,
            size: transfer.size,
            count: transfer.count,
            src,
            dst,
            parity: self.queue.parity(),
            early: false,
            landing: None,
            buffers: 2,
        })
    }
}

// SAFETY: programs touch the sides that core gave them, between the look at the doorbell and the adds (see `Queue`).
unsafe impl NicQueue for Handle {
    unsafe fn prepare(&self, program: Program) -> Result<Prepared, NicError> {
        let moves = program.transfers.iter().map(|each| self.lower(each));
        let moves = moves.collect::<Result<_, _>>()?;
        let signal = program.signal;
        let (word, bell) = (Self::resolve(&signal.word)?, Self::resolve(&signal.bell)?);
        let remote = program
            .transfers
            .into_iter()
            .map(|each| each.remote.base.memory)
            .chain([signal.word.memory, signal.bell.memory]);
        let mut keep = program.keep;
        keep.extend(remote.map(|memory| memory.0));
        Ok(Prepared(Arc::new(Script {
            moves,
            word,
            bell,
            _keep: keep,
        })))
    }

    fn arm(&self, programs: &Arc<[Prepared]>, times: u64) -> Result<(), NicError> {
        self.queue.arm(programs, times)
    }

    fn counts(&self) -> (u64, u64) {
        self.queue.counts()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.process.is_this() {
            return;
        }
        self.queue.close();
        self.agent.wake();
    }
}
