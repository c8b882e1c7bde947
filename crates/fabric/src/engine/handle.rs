//! The owner's end of a queue.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use tidegate_hal::nic::{NicError, NicQueue, Prepared, Program, Register};
use tidegate_hal::process::Process;

use super::agent::Agent;
use super::chained::Chained;
use super::program::Script;
use super::queue::Queue;
use crate::base::lock;
use crate::wire::Wire;

/// The owner's end of a queue.
pub(crate) struct Handle<W: Wire> {
    pub(crate) process: Process,
    pub(crate) queue: Arc<Queue>,
    /// The chain, if hardware fires.
    pub(crate) chained: Option<Arc<Mutex<Chained<W>>>>,
    pub(crate) agent: Arc<Agent<W>>,
}

// SAFETY: programs touch the sides that core gave them, between the look at the doorbell and the adds (see the engine).
unsafe impl<W: Wire> NicQueue for Handle<W> {
    unsafe fn prepare(&self, program: Program) -> Result<Prepared, NicError> {
        let line = || match self.queue.back() {
            0 => None,
            back => self.agent.regions.mail_of(back),
        };
        // SAFETY: the caller's promise.
        let script: Script<W> =
            unsafe { Script::new(program, self.agent.limits, self.chained.is_none(), line) }?;
        if let Some(chained) = &self.chained {
            lock(chained).chain().fits(script.pieces.len())?;
        }
        Ok(Prepared(Arc::new(script)))
    }

    fn arm(&self, programs: &Arc<[Prepared]>, times: u64) -> Result<(), NicError> {
        if !self.queue.arm(programs, times)? {
            return Ok(());
        }
        if let Some(chained) = &self.chained
            && lock(chained).feed(&self.queue)
        {
            // The next turn of the engine tries again, or ends the queue.
            self.agent.wake();
        }
        self.agent.armed();
        Ok(())
    }

    fn takes_parts(&self) -> bool {
        // Hardware fires only by whole rings.
        self.chained.is_none()
    }

    fn counts(&self) -> (u64, u64) {
        self.queue.counts()
    }

    fn register(&self) -> Option<Register> {
        lock(self.chained.as_ref()?).chain().register()
    }

    fn struck_by_streams(&self) {
        if let Some(chained) = &self.chained {
            lock(chained).struck_by_streams();
        }
    }
}

impl<W: Wire> Drop for Handle<W> {
    fn drop(&mut self) {
        if !self.process.is_this() {
            // The engine belongs to the parent, and must not be entered in a child.
            return std::mem::forget((self.queue.clone(), self.chained.clone()));
        }
        self.queue.closed.store(true, Ordering::Release);
        self.agent.closed();
    }
}
