//! The end of MPI.
//!
//! `MPI_Finalize` begins by freeing `MPI_COMM_SELF`, and calls the functions that are attached to it while MPI still
//! runs. So the buses are told in time, whatever code ends MPI. All of them close before anything is freed. MPICH takes
//! no locks any more then, so no other thread may be inside of it. And since all ranks take part, memory that only all
//! ranks together can free is freed.

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
/// until MPI ends, because one rank alone cannot free their windows.
static BUSES: Mutex<Vec<Arc<Inner>>> = Mutex::new(Vec::new());

/// Whether this process is told about the end.
static PREPARED: Mutex<bool> = Mutex::new(false);

/// Makes MPI tell this process about its end.
pub(super) fn prepare() -> Result<(), BusError> {
    let mut prepared = lock(&PREPARED);
    if !*prepared {
        let mut key: c_int = 0;
        let nothing = std::ptr::null_mut();
        // SAFETY: MPI runs, as `join` has checked. The attribute has no value.
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

/// Closes a bus when MPI ends. All its ranks call this, or none: at the end they free its windows together.
pub(super) fn watch(inner: &Arc<Inner>) {
    lock(&BUSES).push(inner.clone());
}

/// A duplicate of `MPI_COMM_SELF` does not get the attribute.
unsafe extern "C" fn not_copied(
    _: ffi::MPI_Comm,
    _: c_int,
    _: *mut c_void,
    _: *mut c_void,
    _: *mut c_void,
    copies: *mut c_int,
) -> c_int {
    // SAFETY: MPI passes a flag here that says whether to copy the attribute.
    unsafe { copies.write(0) };
    0
}

/// Called when MPI ends.
unsafe extern "C" fn ended(_: ffi::MPI_Comm, _: c_int, _: *mut c_void, _: *mut c_void) -> c_int {
    let buses = std::mem::take(&mut *lock(&BUSES));
    // From here on nobody is making windows, or begins to.
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

/// Frees everything that all ranks free together. Memory stays, since blocks of it may be in use, and streams may learn
/// about the end later.
fn free(machine: &mut Machine) {
    // If this rank skipped a call, the others would wait for it.
    let note = |outcome: Result<(), BusError>| {
        if let Err(error) = outcome {
            tidegate_hal::tell(|| tracing::debug!("at the end of MPI: {error}"));
        }
    };
    note(machine.messages.close());
    // SAFETY: MPI still runs. All ranks come here, since all call `MPI_Finalize`, and in the order in which they made
    // their buses. The windows are live, and are not used for other calls any more: the buses are closed, and their
    // locks are held. The memory that this library uses is its own, or is mapped a second time.
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
