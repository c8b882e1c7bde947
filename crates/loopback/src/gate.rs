//! A gate that holds firings back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use tidegate_hal::lock;

/// Holds back the firings of the endpoints that were made with it, while it is closed. These firings have been rung
/// for, and have read nothing yet.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    closed: bool,
    /// How many agents wait at it.
    held: usize,
}

impl Gate {
    /// Makes a closed gate.
    pub fn closed() -> Self {
        let state = State {
            closed: true,
            held: 0,
        };
        Gate(Arc::new(Inner {
            state: Mutex::new(state),
            changed: Condvar::new(),
        }))
    }

    /// Makes an open gate.
    pub fn opened() -> Self {
        let gate = Gate::closed();
        gate.open();
        gate
    }

    /// Lets everything pass.
    pub fn open(&self) {
        lock(&self.0.state).closed = false;
        self.0.changed.notify_all();
    }

    /// Holds everything that has not passed yet.
    pub fn close(&self) {
        lock(&self.0.state).closed = true;
    }

    /// Waits until an agent is held at the gate, with a firing that was rung for.
    pub fn wait_held(&self) {
        let mut state = lock(&self.0.state);
        while state.held == 0 {
            state = self
                .0
                .changed
                .wait(state)
                .unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    /// Waits until the gate is open, or `stop` is set. Returns whether the gate was open.
    pub(crate) fn pass(&self, stop: &AtomicBool) -> bool {
        let mut state = lock(&self.0.state);
        if !state.closed {
            return true;
        }
        state.held += 1;
        self.0.changed.notify_all();
        while state.closed && !stop.load(Ordering::SeqCst) {
            state = self
                .0
                .changed
                .wait_timeout(state, Duration::from_millis(10))
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .0;
        }
        state.held -= 1;
        !state.closed
    }
}
