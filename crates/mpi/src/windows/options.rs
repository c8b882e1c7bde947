//! Options of the user.

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
    /// The form that is found to be faster when the ranks meet. It is the same on all ranks.
    #[default]
    Measured,
    /// `MPI_Accumulate` to a mailbox, which waiters poll.
    Words,
    /// Messages.
    Messages,
}

/// Options for windows of MPI. They must be the same on all ranks.
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
    /// The default options.
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

    /// Makes each rank reach all others as far ranks, by calls of MPI, even if they can share memory.
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

    /// Sets the form of signals.
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
