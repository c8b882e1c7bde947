//! An MPI that fails on demand, by MPI's profiling interface (MPI 4.0, 15.2): a program may define `MPI_Put`, and call
//! MPI's own by its other name. A call that is refused has begun all the same, as may happen with an MPI.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use mpi::ffi;

/// How many calls succeed before one fails.
pub(crate) struct Good(AtomicI64);

/// For `MPI_Put`.
pub(crate) static PUTS: Good = Good::all();
/// For `MPI_Win_flush`.
pub(crate) static FLUSHES: Good = Good::all();

impl Good {
    const fn all() -> Self {
        Good(AtomicI64::new(i64::MAX))
    }

    /// Lets `calls` calls of this process succeed, and no later ones.
    pub(crate) fn only(&self, calls: i64) {
        self.0.store(calls, Relaxed);
    }

    /// Lets all calls succeed again.
    pub(crate) fn mend(&self) {
        self.only(i64::MAX);
    }

    fn of(&self, code: c_int) -> c_int {
        match self.0.fetch_sub(1, Relaxed) {
            ..=0 => ffi::MPI_ERR_OTHER as c_int,
            _ => code,
        }
    }
}

/// # Safety
///
/// As for MPI's function.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "it stands for MPI's")]
unsafe extern "C" fn MPI_Win_flush(target: c_int, window: ffi::MPI_Win) -> c_int {
    // SAFETY: the caller's promise.
    FLUSHES.of(unsafe { ffi::PMPI_Win_flush(target, window) })
}

/// # Safety
///
/// As for MPI's function.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "it stands for MPI's")]
unsafe extern "C" fn MPI_Put(
    origin: *const c_void,
    count: c_int,
    datatype: ffi::MPI_Datatype,
    target: c_int,
    at: ffi::MPI_Aint,
    target_count: c_int,
    target_datatype: ffi::MPI_Datatype,
    window: ffi::MPI_Win,
) -> c_int {
    // SAFETY: the caller's promise.
    PUTS.of(unsafe {
        ffi::PMPI_Put(
            origin,
            count,
            datatype,
            target,
            at,
            target_count,
            target_datatype,
            window,
        )
    })
}
