//! The calls of an MPI.

use super::case::Case;
use super::{By, OsuArgs, Test};
use crate::mpi::calls::{Comm, Group, Window, WindowBy};
use std::time::Instant;

/// The ways, without one that this MPI has not, which rank 0 says. Collective.
pub(super) fn without_refused(args: &OsuArgs) -> Result<OsuArgs, String> {
    let mut args = args.clone();
    if args.ways.contains(&By::MpiCreate) {
        let comm = Comm::world().ok_or("MPI is not initialised")?;
        if let Some(code) = Window::create_is_refused(&comm) {
            args.ways.retain(|by| *by != By::MpiCreate);
            if comm.rank == 0 {
                eprintln!("mpi-create is left out: MPI_Win_create failed with code {code}");
            }
        }
    }
    Ok(args)
}

/// Seconds of all iterations, on this rank; collective.
pub(super) fn measure(by: By, case: &Case) -> Result<f64, String> {
    let comm = Comm::world().ok_or("MPI is not initialised")?;
    let (rank, peer) = (comm.rank, 1 - comm.rank);
    let group = Group::of(&comm, &[peer]);
    let how = match by {
        By::MpiCreate => WindowBy::Create,
        _ => WindowBy::Allocate,
    };
    let window = Window::new(&comm, case.bytes * case.puts(), how);
    let source = case.pattern(rank);
    let give = || {
        window.start(&group);
        for number in 0..case.puts() {
            let at = number * case.bytes;
            // SAFETY: the message is within the source, which is not written while it is there.
            unsafe { window.put(source.as_ptr().add(at), case.bytes, peer, at) };
        }
        window.complete();
    };
    let take = || {
        window.post(&group);
        window.wait(false);
    };
    let epochs = |count: u64| {
        for _ in 0..count {
            match (case.test, rank) {
                (Test::Latency, 0) => {
                    give();
                    take();
                }
                (Test::Latency, _) => {
                    take();
                    give();
                }
                (_, 0) => give(),
                (_, _) => take(),
            }
        }
    };
    comm.barrier();
    epochs(case.ahead());
    let start = Instant::now();
    epochs(case.iterations);
    let seconds = start.elapsed().as_secs_f64();
    if case.test == Test::Latency || rank == 1 {
        let (memory, bytes) = window.memory();
        // SAFETY: the window has so many bytes; its epochs are over, so nothing writes them.
        let received = unsafe { std::slice::from_raw_parts(memory, bytes) };
        case.check(rank, 0, received)?;
    }
    comm.barrier();
    Ok(seconds)
}
