//! What an agent sleeps on while nothing comes: whoever carries something out for an endpoint rings for it.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::base::lock;
use crate::wire::Sleeper;

#[derive(Default)]
pub(super) struct Bed {
    awake: Mutex<bool>,
    rung: Condvar,
}

impl Sleeper for Arc<Bed> {
    fn sleep(&self, limit: Duration) {
        let awake = lock(&self.awake);
        let (mut awake, _) = self
            .rung
            .wait_timeout_while(awake, limit, |awake| !*awake)
            .unwrap_or_else(PoisonError::into_inner);
        *awake = false;
    }

    fn wake(&self) {
        *lock(&self.awake) = true;
        self.rung.notify_all();
    }
}
