//! How ranks of a benchmark are started by an MPI's launcher, and meet.

use crate::rounds::bind_to;
use std::error::Error;
use std::ffi::OsStr;
use std::process::Command;
use tidegate_core::{World, WorldOptions};
use tidegate_hal::device::Device;
use tidegate_mpi::FromMpi as _;
use tidegate_mpi::mpi::environment::Universe;
use tidegate_mpi::mpi::topology::Communicator as _;
use tidegate_mpi::mpi::{Threading, initialize_with_threading};

/// What launchers tell their ranks by.
const TOLD_BY: [&str; 4] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "PMI_RANK"];

/// Whether a launcher of MPI jobs has started this process.
pub(crate) fn is_rank() -> bool {
    TOLD_BY.iter().any(|name| std::env::var_os(name).is_some())
}

/// Starts this program again as so many ranks: the code that the launcher ends with.
pub(crate) fn launch(
    mpirun: &str,
    ranks: usize,
    name: &str,
    value: &OsStr,
) -> Result<u8, Box<dyn Error>> {
    let mut words = mpirun.split_whitespace();
    let program = words.next().ok_or("--mpirun names no program")?;
    let mut command = Command::new(program);
    command
        .args(words)
        .args(["-n", &ranks.to_string()])
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(name, value);
    let status = command
        .status()
        .map_err(|error| format!("cannot start `{mpirun}`: {error}"))?;
    Ok(match status.code() {
        Some(code) => u8::try_from(code).unwrap_or(1),
        None => 1,
    })
}

/// A rank's MPI, and the world of its ranks. The world goes first.
pub(crate) struct Joined<D: Device> {
    pub(crate) world: World<D>,
    _universe: Universe,
}

/// Joins the MPI job; `bound`: to one processor, if there are fewer than ranks.
pub(crate) fn join<D: Device>(
    bound: bool,
    options: WorldOptions,
) -> Result<Joined<D>, Box<dyn Error>> {
    let (universe, provided) = initialize_with_threading(Threading::Funneled)
        .ok_or("MPI has been initialised by somebody else")?;
    if provided < Threading::Funneled {
        return Err(format!("MPI provides {provided:?}, and there are threads here").into());
    }
    let comm = universe.world();
    if bound {
        bind_to(comm.rank() as usize, comm.size() as usize);
    }
    Ok(Joined {
        world: World::from_mpi_with(&comm, options)?,
        _universe: universe,
    })
}
