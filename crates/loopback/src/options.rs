//! Options of an endpoint.

use std::time::Duration;

use crate::gate::Gate;

/// The name of this kind of NIC.
pub(crate) const NAME: &str = "loopback";

/// The options of a [`Loopback`](crate::Loopback).
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) budget: usize,
    pub(crate) kept: usize,
    pub(crate) delay: Duration,
    pub(crate) gate: Option<Gate>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            budget: 4096,
            kept: 1,
            delay: Duration::ZERO,
            gate: None,
        }
    }
}

impl Options {
    /// Sets the number of trigger slots of this node's NIC (4096 by default). A program takes one. The ranks of the
    /// node divide them, and each has at least 1.
    ///
    /// # Panics
    ///
    /// If the number is 0, because nothing could ever be fired.
    #[must_use]
    pub fn budget(mut self, slots: usize) -> Self {
        assert_ne!(slots, 0, "a NIC has at least one trigger slot");
        self.budget = slots;
        self
    }

    /// Reserves no slot for programs that have been rung for, so that a job can hang if its budget is small. Tests use
    /// this mutant to show what the reserved slot is for.
    #[doc(hidden)]
    #[must_use]
    pub fn greedy(mut self) -> Self {
        self.kept = 0;
        self
    }

    /// Sets the time between a ring and the first look at the data.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Holds back every firing of this endpoint while the gate is closed.
    #[must_use]
    pub fn gate(mut self, gate: &Gate) -> Self {
        self.gate = Some(gate.clone());
        self
    }
}
