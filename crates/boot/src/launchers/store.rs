//! What a launcher's key-value store does for the ranks.
//!
//! # Model
//!
//! Puts become visible by a fence, which all ranks enter. All keys here are put by rank 0.
//!
//! # Failure
//!
//! A [`StoreError`] says what the other side did. None of them has a value in it: values hold the secret.

use crate::error::BootError;
use std::io;
use std::time::Instant;

/// Why a store could not be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// Nothing came until the deadline.
    #[error("it did not answer in time")]
    Silent,
    /// It has closed the connection.
    #[error("it closed the connection")]
    Closed,
    /// It said no.
    #[error("it refuses: {0}")]
    Refused(String),
    /// What it said makes no sense.
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

    /// The longest value that it takes, in bytes.
    fn room(&self) -> usize;

    /// Puts a value; the others see it after the next fence.
    fn put(&mut self, key: &str, value: &str) -> Result<(), StoreError>;

    /// Waits until all ranks are here.
    fn fence(&mut self) -> Result<(), StoreError>;

    /// What rank 0 has put.
    fn get(&mut self, key: &str) -> Result<String, StoreError>;

    /// Says that this process needs the store no more, by a deadline.
    fn leave(&mut self, deadline: Instant) -> Result<(), StoreError>;

    /// Whether MPI, if this process has one, speaks to the launcher over this very connection, and is the one to leave it.
    fn is_mpis_too(&self) -> bool;
}
