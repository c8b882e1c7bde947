//! The end of MPI.
//!
//! `MPI_Finalize` begins by freeing `MPI_COMM_SELF`, and calls what is attached to it, while MPI still runs. So a bus
//! hears of the end in time, whoever brings it about: it makes no call of MPI from then on. And since all ranks are
//! there, what is freed by all together can be freed.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use mpi::ffi;
use tidegate_hal::far::BusError;

use super::bus::Inner;
use super::call::check;
use super::machine::Machine;
use super::segment::Kind;

/// Closes a bus when MPI ends. Until then it is kept: its windows can be freed by no rank alone.
pub(super) fn watch(inner: &Arc<Inner>) -> Result<(), BusError> {
    let mut key: c_int = 0;
    // SAFETY: MPI runs, which `join` has checked. The attribute is the value of an `Arc`, which `ended` takes back, once.
    unsafe {
        let made = ffi::MPI_Comm_create_keyval(
            Some(not_copied),
            Some(ended),
            &raw mut key,
            std::ptr::null_mut(),
        );
        check("MPI_Comm_create_keyval", made)?;
        let held = Arc::into_raw(inner.clone()).cast_mut();
        let set = ffi::MPI_Comm_set_attr(ffi::RSMPI_COMM_SELF, key, held.cast());
        check("MPI_Comm_set_attr", set)
    }
}

/// A duplicate of `MPI_COMM_SELF` does not get it.
unsafe extern "C" fn not_copied(
    _: ffi::MPI_Comm,
    _: c_int,
    _: *mut c_void,
    _: *mut c_void,
    _: *mut c_void,
    copies: *mut c_int,
) -> c_int {
    // SAFETY: MPI asks here whether the attribute is to be copied.
    unsafe { copies.write(0) };
    0
}

/// MPI ends.
unsafe extern "C" fn ended(_: ffi::MPI_Comm, _: c_int, held: *mut c_void, _: *mut c_void) -> c_int {
    // SAFETY: the attribute's value is what `watch` has made of an `Arc`; MPI calls this once for it.
    let inner = unsafe { Arc::from_raw(held.cast::<Inner>().cast_const()) };
    let mut machine = inner.machine();
    if let Err(error) = free(&mut machine) {
        tracing::debug!("at the end of MPI: {error}");
    }
    inner.close(&mut machine, "MPI_Finalize was called");
    drop(machine);
    0
}

/// Frees what all ranks free together. Memory stays: blocks of it may be in use, and streams come to know of the end in
/// their own time.
fn free(machine: &mut Machine) -> Result<(), BusError> {
    machine.messages.close()?;
    // SAFETY: MPI still runs. All ranks come here, as they all call `MPI_Finalize`, and in the order in which they have
    // made their buses; the windows are alive, and no call of MPI is made with them any more. What this library uses of
    // their memory is its own, or mapped a second time.
    unsafe {
        let segments = machine.segments.iter_mut();
        for segment in segments.filter(|segment| segment.kind != Kind::Alone) {
            check(
                "MPI_Win_unlock_all",
                ffi::MPI_Win_unlock_all(segment.window),
            )?;
            check("MPI_Win_free", ffi::MPI_Win_free(&raw mut segment.window))?;
        }
        check("MPI_Comm_free", ffi::MPI_Comm_free(&raw mut machine.comm))
    }
}
