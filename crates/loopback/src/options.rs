//! Options of an endpoint.

use std::time::Duration;

use crate::gate::Gate;

/// What the kind of NIC is called.
pub(crate) const NAME: &str = "loopback";

/// How a [`Loopback`](crate::Loopback) is to behave.
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
    /// The NIC of this node has so many trigger slots (4096 at first), one a program: the ranks of the node divide
    /// them, and each has 1 at least.
    ///
    /// # Panics
    ///
    /// If it is 0: nothing could ever be fired.
    #[must_use]
    pub fn budget(mut self, slots: usize) -> Self {
        assert_ne!(slots, 0, "a NIC has at least one trigger slot");
        self.budget = slots;
        self
    }

    /// The mutant that keeps no slot for programs that have been rung for, so that a job can hang because its budget is
    /// small. For the tests that show what the slot is for.
    #[doc(hidden)]
    #[must_use]
    pub fn greedy(mut self) -> Self {
        self.kept = 0;
        self
    }

    /// Lets so much time pass between a ring and the first look at the data.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Holds every firing of this endpoint back while the gate is closed.
    #[must_use]
    pub fn gate(mut self, gate: &Gate) -> Self {
        self.gate = Some(gate.clone());
        self
    }
}
