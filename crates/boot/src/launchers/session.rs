//! A store that is left only when the control plane ends.
//!
//! # Model
//!
//! This is only for programs with an MPI that is linked and not running. MPI may need the store later, and after a
//! process has left some stores, it cannot come back. When the control plane ends, MPI may be running, or have run.
//! Then the common connection belongs to MPI. If MPI never started, this leaves the store.
//!
//! # Failure
//!
//! If a launcher does not answer, the wait ends after 5 s, and is logged.

use tidegate_hal::process::Process;
use tidegate_hal::tell;

use super::store::{Store, StoreError};
use std::time::{Duration, Instant};
use tidegate_ffi::resident::{self, Mpi};

/// How long a launcher may take to answer when a process leaves.
const PATIENCE: Duration = Duration::from_secs(5);

/// A store that this process has still to leave. Dropping it does so, except in a forked child.
#[derive(Debug)]
pub(crate) struct HeldStore(Option<Box<dyn Store>>, Process);

impl HeldStore {
    /// Leaves the store, or returns a value that leaves it later.
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
