//! An MPI that fails when it is told to, by MPI's profiling interface (MPI 4.0, 15.2): a program may have an `MPI_Put`
//! of its own, which calls the MPI's by its other name. What it refuses, it has begun all the same, as an MPI may.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use mpi::ffi;

/// How many calls go well before one fails.
pub(crate) struct Good(AtomicI64);

/// Of `MPI_Put`.
pub(crate) static PUTS: Good = Good::all();
/// Of `MPI_Win_flush`.
pub(crate) static FLUSHES: Good = Good::all();

impl Good {
    const fn all() -> Self {
        Good(AtomicI64::new(i64::MAX))
    }

    /// So many calls of this process go well, and no other after them.
    pub(crate) fn only(&self, calls: i64) {
        self.0.store(calls, Relaxed);
    }

    /// All go well again.
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
/// As MPI's.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "it stands for MPI's")]
unsafe extern "C" fn MPI_Win_flush(target: c_int, window: ffi::MPI_Win) -> c_int {
    // SAFETY: the caller's promise.
    FLUSHES.of(unsafe { ffi::PMPI_Win_flush(target, window) })
}

/// # Safety
///
/// As MPI's.
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
