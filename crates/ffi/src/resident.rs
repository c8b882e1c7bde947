//! Libraries that this process has already, found without loading anything.

use libloading::os::unix;
use std::ffi::c_int;

/// The state of MPI in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mpi {
    /// This process has no MPI that other libraries could see.
    Absent,
    /// It is linked or loaded, and not initialised (yet).
    Linked,
    /// It is initialised.
    Running,
    /// It was finalised.
    Over,
}

/// The state of MPI in this process. It is looked for by the names that its standard gives, among what the program and
/// its libraries can see.
pub fn mpi() -> Mpi {
    type Ask = unsafe extern "C" fn(*mut c_int) -> c_int;
    let this = unix::Library::this();
    // SAFETY: a global symbol of this name is the function of the MPI standard; `MPI_` is reserved for it.
    let found = unsafe {
        (
            this.get::<Ask>(b"MPI_Initialized"),
            this.get::<Ask>(b"MPI_Finalized"),
        )
    };
    let (Ok(initialized), Ok(finalized)) = found else {
        return Mpi::Absent;
    };
    let ask = |function: Ask| {
        let mut flag = 0;
        // SAFETY: the standard lets these two be called at any time, from any thread, also before and after MPI is
        // there.
        let code = unsafe { function(&mut flag) };
        code == 0 && flag != 0
    };
    if ask(*finalized) {
        Mpi::Over
    } else if ask(*initialized) {
        Mpi::Running
    } else {
        Mpi::Linked
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_process_without_mpi_has_none() {
        assert_eq!(super::mpi(), super::Mpi::Absent);
    }
}
