//! Errors of windows of MPI.

use tidegate_core::Error;
use tidegate_hal::control::ControlError;
use tidegate_hal::device::DeviceError;
use tidegate_hal::far::BusError;

use crate::error::MpiError;

/// Why windows of MPI cannot be used.
///
/// # Examples
///
/// ```no_run
/// use tidegate::mpi::mpi;
/// use tidegate::mpi::windows::{self, JoinError, Options};
///
/// # let universe = mpi::initialize().expect("nobody has initialised MPI before");
/// match windows::world(&universe.world(), &Options::new()) {
///     Ok(world) => println!("{} ranks", world.size()),
///     Err(error) => println!("{error}"),
/// }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// MPI is not running.
    #[error("MPI is not running: MPI_Init_thread has not been called, or MPI_Finalize has")]
    NotRunning,
    /// MPI was initialised for fewer threads than are needed.
    #[error(
        "streams call MPI from threads of their own: ask MPI_Init_thread for MPI_THREAD_MULTIPLE (level {provided} was provided)"
    )]
    Threads {
        /// The level that MPI has provided.
        provided: i32,
    },
    /// The control plane has other ranks than the communicator.
    #[error("the communicator has rank {} of {}, the control plane rank {} of {}", comm.0, comm.1, control.0, control.1)]
    Mismatch {
        /// Rank and size by the communicator.
        comm: (usize, usize),
        /// Rank and size by the control plane.
        control: (usize, usize),
    },
    /// A rank cannot take part.
    #[error("rank {rank} cannot take part: {reason}")]
    Peer {
        /// The rank that cannot take part.
        rank: usize,
        /// Why it cannot.
        reason: String,
    },
    /// MPI refused something.
    #[error(transparent)]
    Mpi(#[from] BusError),
    /// The control plane has failed.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The device has failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The ranks of the communicator have not met, or the world could not be made.
    #[error(transparent)]
    Meet(#[from] MpiError),
}

impl From<JoinError> for Error {
    fn from(error: JoinError) -> Self {
        match error {
            JoinError::Meet(error) => error.into(),
            other => Error::Bootstrap(Box::new(other)),
        }
    }
}
