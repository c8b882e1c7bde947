//! The collectives of an MPI.

use super::case::Case;
use super::kind::Kind;
use crate::mpi::calls::{Comm, fatal, int};
use std::time::Instant;
use tidegate_mpi::mpi::ffi;

/// Seconds of all calls, on this rank; collective.
pub(super) fn measure(case: &Case) -> Result<f64, String> {
    let comm = Comm::world().ok_or("MPI is not initialised")?;
    for turn in 1..case.turns() {
        let [x, y] = &*case.brings(turn);
        let mut y = y.clone();
        (0..case.unroll).for_each(|_| call(&comm, case, x, &mut y));
        case.check(turn, 1, &y)?;
    }
    let turn = case.turns();
    let [x, y] = &*case.brings(turn);
    let mut y = y.clone();
    (0..case.unroll).for_each(|_| call(&comm, case, x, &mut y));
    case.check(turn, 1, &y)?;
    comm.barrier();
    (0..case.ahead()).for_each(|_| call(&comm, case, x, &mut y));
    let start = Instant::now();
    (0..case.calls).for_each(|_| call(&comm, case, x, &mut y));
    let seconds = start.elapsed().as_secs_f64();
    case.check(turn, 1, &y)?;
    comm.barrier();
    Ok(seconds)
}

/// One call. Each goes from one memory to another, but for a broadcast.
fn call(comm: &Comm, case: &Case, x: &[f32], y: &mut [f32]) {
    let (input, output) = case.lengths();
    assert_eq!((x.len(), y.len()), (input, output));
    let (of, sum) = ffi_constants();
    let (n, x, y) = (int(case.count), x.as_ptr().cast(), y.as_mut_ptr().cast());
    let comm = comm.raw();
    // SAFETY: the communicator is alive. Input and output have the lengths of the collective, which were just compared
    // with those of the memory; MPI ignores them where they are empty.
    let (name, code) = unsafe {
        match case.kind {
            Kind::Barrier => ("MPI_Barrier", ffi::MPI_Barrier(comm)),
            Kind::Broadcast => ("MPI_Bcast", ffi::MPI_Bcast(y, n, of, 0, comm)),
            Kind::Reduce => ("MPI_Reduce", ffi::MPI_Reduce(x, y, n, of, sum, 0, comm)),
            Kind::AllReduce => ("MPI_Allreduce", ffi::MPI_Allreduce(x, y, n, of, sum, comm)),
            Kind::Gather => ("MPI_Gather", ffi::MPI_Gather(x, n, of, y, n, of, 0, comm)),
            Kind::Scatter => ("MPI_Scatter", ffi::MPI_Scatter(x, n, of, y, n, of, 0, comm)),
            Kind::AllGather => (
                "MPI_Allgather",
                ffi::MPI_Allgather(x, n, of, y, n, of, comm),
            ),
            Kind::ReduceScatter => (
                "MPI_Reduce_scatter_block",
                ffi::MPI_Reduce_scatter_block(x, y, n, of, sum, comm),
            ),
            Kind::AllToAll => ("MPI_Alltoall", ffi::MPI_Alltoall(x, n, of, y, n, of, comm)),
            Kind::Scan => ("MPI_Scan", ffi::MPI_Scan(x, y, n, of, sum, comm)),
            Kind::DispatchCombine => unreachable!("`By::does` says that an MPI does not do it"),
        }
    };
    fatal(name, code);
}

fn ffi_constants() -> (ffi::MPI_Datatype, ffi::MPI_Op) {
    // SAFETY: constants of MPI.
    unsafe { (ffi::RSMPI_FLOAT, ffi::RSMPI_SUM) }
}
