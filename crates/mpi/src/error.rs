//! Errors of making a world from a communicator.

use std::time::Duration;

use tidegate_core::Error;

/// Why a world could not be made from a communicator. `?` turns it into the library's [`Error`]: a library's error
/// stays what it is, and any other becomes [`Error::Bootstrap`].
///
/// # Examples
///
/// ```no_run
/// use tidegate::host::prelude::*;
/// use tidegate::mpi::{MpiError, mpi};
///
/// # let universe = mpi::initialize().expect("nobody has initialised MPI before");
/// match World::from_mpi(&universe.world()) {
///     Ok(world) => println!("{} ranks", world.size()),
///     Err(MpiError::Absent { waited }) => println!("after {waited:?} not all ranks had come"),
///     Err(error) => println!("{error}"),
/// }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MpiError {
    /// Nobody has initialised MPI.
    #[error("MPI is not initialised: `mpi::initialize()` comes first, and its result must be kept")]
    NotInitialized,
    /// MPI was finalised.
    #[error("MPI is finalised: worlds are made of communicators before that")]
    Finalized,
    /// MPI was initialised for calls by one thread only, and this is another thread.
    #[error(
        "MPI was initialised for calls by its main thread alone ({provided:?}), and this is another thread"
    )]
    WrongThread {
        /// What MPI provides.
        provided: mpi::Threading,
    },
    /// The communicator is an inter-communicator, which has two groups.
    #[error(
        "an inter-communicator has no ranks of its own: merge it first (`InterCommunicator::merge`)"
    )]
    InterCommunicator,
    /// The communicator is MPI_COMM_NULL.
    #[error("there is no communicator: this rank is not part of it")]
    NoCommunicator,
    /// Not all ranks of the communicator came in time.
    #[error(
        "after {waited:.1?} not all ranks of the communicator had come to make a world of it \
         (TIDEGATE_RENDEZVOUS_TIMEOUT sets how long to wait)"
    )]
    Absent {
        /// How long this rank waited for them.
        waited: Duration,
    },
    /// A call of MPI failed.
    #[error("{call}: {text} (code {code})")]
    Call {
        /// The name of the function.
        call: &'static str,
        /// MPI's error code.
        code: i32,
        /// MPI's text for it.
        text: String,
    },
    /// Another rank could not take part, so no rank does.
    #[error("rank {rank} of the communicator cannot take part: {reason}")]
    Peer {
        /// The rank that cannot take part.
        rank: usize,
        /// Why it cannot.
        reason: String,
    },
    /// The communicator was good, but making the world failed.
    #[error(transparent)]
    World(#[from] Error),
}

impl From<MpiError> for Error {
    fn from(error: MpiError) -> Self {
        match error {
            MpiError::World(error) => error,
            other => Error::Bootstrap(Box::new(other)),
        }
    }
}
