//! A store that is left only when the control plane ends.
//!
//! # Model
//!
//! Only for programs with an MPI that is linked and not running: it may want the store later, and once a process has
//! left some stores, it cannot come back. When the control plane ends, MPI either runs, or did, and the connection that
//! both use is its affair; or it has never started, and this leaves the store.
//!
//! # Failure
//!
//! A launcher that does not answer is waited for 5 s; that is logged.

use tidegate_hal::process::Process;
use tidegate_hal::tell;

use super::store::{Store, StoreError};
use std::time::{Duration, Instant};
use tidegate_ffi::resident::{self, Mpi};

/// How long a launcher may take to let a process go.
const PATIENCE: Duration = Duration::from_secs(5);

/// A store that has still to be left. Dropping it does so, but not in a child of the process.
#[derive(Debug)]
pub(crate) struct HeldStore(Option<Box<dyn Store>>, Process);

impl HeldStore {
    /// Leaves the store, or sees to it that it is left.
    pub(crate) fn conclude(mut store: Box<dyn Store>) -> Result<Option<Self>, StoreError> {
        match resident::mpi() {
            Mpi::Running if store.is_mpis_too() => Ok(None),
            Mpi::Linked => Ok(Some(Self(Some(store), Process::this()))),
            Mpi::Absent | Mpi::Running | Mpi::Over => {
                store.leave(Instant::now() + PATIENCE)?;
                Ok(None)
            }
        }
    }
}

impl Drop for HeldStore {
    fn drop(&mut self) {
        let Some(mut store) = self.0.take() else {
            return;
        };
        if !self.1.is_this() {
            return std::mem::forget(store);
        }
        if store.is_mpis_too() && matches!(resident::mpi(), Mpi::Running | Mpi::Over) {
            return;
        }
        if let Err(error) = store.leave(Instant::now() + PATIENCE) {
            tell(|| tracing::warn!(%error, "the launcher's store could not be left"));
        }
    }
}
