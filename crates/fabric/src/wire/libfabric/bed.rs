//! What an agent sleeps on: the completion queue, where the provider can wait for it, else a clock.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tidegate_ffi::fabric::{Completion, CompletionQueue, CqError};

use super::super::Sleeper;
use crate::lock;

/// How often the agent looks where it cannot sleep on the queue.
const LOOK: Duration = Duration::from_micros(200);

/// The queue, and what was taken from it in sleep.
pub(super) struct Bed {
    pub(super) queue: Arc<CompletionQueue>,
    /// Whether `fi_cq_sread` and `fi_cq_signal` work.
    pub(super) waits: bool,
    pub(super) taken: Mutex<VecDeque<Result<Completion, CqError>>>,
    awake: Mutex<bool>,
    rung: Condvar,
}

impl Bed {
    pub(super) fn new(queue: Arc<CompletionQueue>, waits: bool) -> Arc<Self> {
        Arc::new(Bed {
            queue,
            waits,
            taken: Mutex::default(),
            awake: Mutex::new(false),
            rung: Condvar::new(),
        })
    }
}

impl Sleeper for Arc<Bed> {
    fn sleep(&self, limit: Duration) {
        if self.waits {
            if std::mem::take(&mut *lock(&self.awake)) {
                return;
            }
            let mut one = [Completion::default()];
            let taken = match self.queue.wait(&mut one, limit) {
                Ok(0) => None,
                Ok(_) => Some(Ok(one[0])),
                Err(error) => Some(Err(error)),
            };
            lock(&self.taken).extend(taken);
            *lock(&self.awake) = false;
            return;
        }
        let awake = lock(&self.awake);
        let (mut awake, _) = self
            .rung
            .wait_timeout_while(awake, limit.min(LOOK), |awake| !*awake)
            .unwrap_or_else(PoisonError::into_inner);
        *awake = false;
    }

    fn wake(&self) {
        *lock(&self.awake) = true;
        if self.waits {
            // A signal that nobody waits for is kept by the queue.
            let _ = self.queue.signal();
        } else {
            self.rung.notify_all();
        }
    }
}
