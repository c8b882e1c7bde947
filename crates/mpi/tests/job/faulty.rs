//! An MPI that fails when it is told to, by MPI's profiling interface (MPI 4.0, 15.2): a program may have an `MPI_Put`
//! of its own, which calls the MPI's by its other name.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use mpi::ffi;

/// How many puts go well before one fails.
static GOOD: AtomicI64 = AtomicI64::new(i64::MAX);

/// So many puts of this process go well, and no other after them.
pub(crate) fn fail_after(puts: i64) {
    GOOD.store(puts, Relaxed);
}

/// All puts go well again.
pub(crate) fn mend() {
    fail_after(i64::MAX);
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
    if GOOD.fetch_sub(1, Relaxed) <= 0 {
        return ffi::MPI_ERR_OTHER as c_int;
    }
    // SAFETY: the caller's promise.
    unsafe {
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
    }
}
