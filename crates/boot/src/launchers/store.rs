//! The operations of a launcher's key-value store.
//!
//! # Model
//!
//! A fence, which all ranks enter, makes puts visible. Only rank 0 puts keys here.
//!
//! # Failure
//!
//! A [`StoreError`] says what the store did. It never contains a value, since values contain the secret.

use crate::error::BootError;
use std::io;
use std::time::Instant;

/// Why a store could not be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// No answer came before the deadline.
    #[error("it did not answer in time")]
    Silent,
    /// The store closed the connection.
    #[error("it closed the connection")]
    Closed,
    /// The store refused.
    #[error("it refuses: {0}")]
    Refused(String),
    /// The answer makes no sense.
    #[error("{0}")]
    Garbled(String),
    /// The system refused something.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl From<rustix::io::Errno> for StoreError {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Io(error.into())
    }
}

impl StoreError {
    pub(crate) fn of(
        self,
        launcher: &'static str,
        doing: &'static str,
        began: Instant,
    ) -> BootError {
        match self {
            Self::Silent => BootError::StoreSilent {
                launcher,
                doing,
                waited: began.elapsed(),
            },
            other => BootError::Store {
                launcher,
                doing,
                reason: other.to_string(),
            },
        }
    }
}

/// A store that this process is connected to.
pub(crate) trait Store: Send + Sync + std::fmt::Debug {
    /// Rank and number of ranks.
    fn place(&self) -> (usize, usize);

    /// The longest value that the store takes, in bytes.
    fn room(&self) -> usize;

    /// Puts a value. The others see it after the next fence.
    fn put(&mut self, key: &str, value: &str) -> Result<(), StoreError>;

    /// Waits until all ranks are here.
    fn fence(&mut self) -> Result<(), StoreError>;

    /// Gets a value that rank 0 has put.
    fn get(&mut self, key: &str) -> Result<String, StoreError>;

    /// Tells the store, before a deadline, that this process does not need it any more.
    fn leave(&mut self, deadline: Instant) -> Result<(), StoreError>;

    /// Whether MPI in this process would use this same connection to the launcher, and must be the one to leave it.
    fn is_mpis_too(&self) -> bool {
        true
    }
}
