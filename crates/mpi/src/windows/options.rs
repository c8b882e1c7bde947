//! What users choose.

use serde::{Deserialize, Serialize};

/// The form of signals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Form {
    /// The one that is found to be faster when the ranks meet; the same on all ranks.
    #[default]
    Measured,
    /// `MPI_Accumulate` to a mailbox, which waiters poll.
    Words,
    /// Messages.
    Messages,
}

/// How windows of MPI are to be used. The same on all ranks.
#[derive(Clone, Debug)]
pub struct Options {
    pub(super) form: Form,
    pub(super) shared: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            form: Form::default(),
            shared: true,
        }
    }
}

impl Options {
    /// As is best here.
    pub fn new() -> Self {
        Options::default()
    }

    /// Lets each rank reach all others as far ones, by calls of MPI, even where they have memory in common.
    #[must_use]
    pub fn not_shared(mut self) -> Self {
        self.shared = false;
        self
    }

    /// The form of signals.
    #[must_use]
    pub fn form(mut self, form: Form) -> Self {
        self.form = form;
        self
    }
}
