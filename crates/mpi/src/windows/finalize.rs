//! The end of MPI.
//!
//! `MPI_Finalize` begins by freeing `MPI_COMM_SELF`, and calls what is attached to it, while MPI still runs. So the buses
//! hear of the end in time, whoever brings it about. All of them close before the first thing is freed: MPICH takes no
//! locks any more then, and must find no other thread at it. And since all ranks are there, what is freed by all
//! together can be freed.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex};

use mpi::ffi;
use tidegate_hal::far::BusError;
use tidegate_hal::lock;

use super::call::check;
use super::inner::Inner;
use super::machine::Machine;
use crate::calls::call;

/// The buses of this process, in the order in which they were made, which is the same on all their ranks. They are kept
/// until MPI ends: their windows can be freed by no rank alone.
static BUSES: Mutex<Vec<Arc<Inner>>> = Mutex::new(Vec::new());

/// Whether this process hears of the end.
static PREPARED: Mutex<bool> = Mutex::new(false);

/// Sees to it that this process hears of the end of MPI.
pub(super) fn prepare() -> Result<(), BusError> {
    let mut prepared = lock(&PREPARED);
    if !*prepared {
        let mut key: c_int = 0;
        let nothing = std::ptr::null_mut();
        // SAFETY: MPI runs, which `join` has checked. The attribute has no value.
        unsafe {
            call!(MPI_Comm_create_keyval(
                Some(not_copied),
                Some(ended),
                &raw mut key,
                nothing
            ))?;
            call!(MPI_Comm_set_attr(ffi::RSMPI_COMM_SELF, key, nothing))?;
        }
        *prepared = true;
    }
    Ok(())
}

/// Closes a bus when MPI ends. All its ranks do, or none: what is freed then, they free together.
pub(super) fn watch(inner: &Arc<Inner>) {
    lock(&BUSES).push(inner.clone());
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
unsafe extern "C" fn ended(_: ffi::MPI_Comm, _: c_int, _: *mut c_void, _: *mut c_void) -> c_int {
    let buses = std::mem::take(&mut *lock(&BUSES));
    // Nobody is making windows, or begins to, from here on.
    let _rounds: Vec<_> = buses.iter().map(|bus| bus.rounds()).collect();
    let mut machines: Vec<_> = buses.iter().map(|bus| (bus, bus.machine())).collect();
    for (bus, machine) in &mut machines {
        bus.close(machine, "MPI_Finalize was called");
    }
    for (_, machine) in &mut machines {
        free(machine);
    }
    0
}

/// Frees what all ranks free together. Memory stays: blocks of it may be in use, and streams come to know of the end in
/// their own time.
fn free(machine: &mut Machine) {
    // What this rank does not come to, others would wait for.
    let note = |outcome: Result<(), BusError>| {
        if let Err(error) = outcome {
            tidegate_hal::tell(|| tracing::debug!("at the end of MPI: {error}"));
        }
    };
    note(machine.messages.close());
    // SAFETY: MPI still runs. All ranks come here, as they all call `MPI_Finalize`, and in the order in which they have
    // made their buses; the windows are alive, and no call of MPI is made with them any more: the buses are closed, and
    // their locks held. What this library uses of their memory is its own, or mapped a second time.
    unsafe {
        for segment in &mut machine.segments {
            if segment.window != ffi::RSMPI_WIN_NULL {
                note(call!(MPI_Win_unlock_all(segment.window)));
            }
            for window in [&mut segment.window, &mut segment.shares] {
                if *window != ffi::RSMPI_WIN_NULL {
                    note(call!(MPI_Win_free(window)));
                }
            }
        }
        for mut comm in [machine.ranks.shared, machine.ranks.all] {
            note(call!(MPI_Comm_free(&raw mut comm)));
        }
    }
}
