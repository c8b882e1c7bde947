//! What users choose.

use serde::{Deserialize, Serialize};

/// The form of signals.
///
/// # Examples
///
/// ```
/// use tidegate::mpi::windows::{Form, Options};
///
/// let options = Options::new().form(Form::Words);
/// ```
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
///
/// # Examples
///
/// ```
/// use tidegate::mpi::windows::{Form, Options};
///
/// let options = Options::new().not_shared().form(Form::Messages); // for tests of what goes between nodes
/// ```
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
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::mpi::windows::Options;
    ///
    /// let options = Options::new();
    /// ```
    pub fn new() -> Self {
        Options::default()
    }

    /// Lets each rank reach all others as far ones, by calls of MPI, even where they have memory in common.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::mpi::windows::Options;
    ///
    /// let options = Options::new().not_shared();
    /// ```
    #[must_use]
    pub fn not_shared(mut self) -> Self {
        self.shared = false;
        self
    }

    /// The form of signals.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::mpi::windows::{Form, Options};
    ///
    /// let options = Options::new().form(Form::Messages);
    /// ```
    #[must_use]
    pub fn form(mut self, form: Form) -> Self {
        self.form = form;
        self
    }
}
