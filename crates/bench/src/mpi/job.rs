//! How ranks of a benchmark are started by an MPI's launcher, and meet.

use crate::rounds::bind_to;
use std::error::Error;
use std::ffi::OsStr;
use std::process::Command;
use tidegate_core::{World, WorldOptions};
use tidegate_hal::device::Device;
use tidegate_host::Host;
use tidegate_mpi::FromMpi as _;
use tidegate_mpi::mpi::environment::Universe;
use tidegate_mpi::mpi::topology::Communicator as _;
use tidegate_mpi::mpi::{Threading, initialize_with_threading};
use tidegate_mpi::windows;

/// Variables that launchers set for their ranks.
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

/// A rank's MPI. Worlds of its ranks go before it does.
pub(crate) struct Job(Universe);

impl Job {
    /// Joins the MPI job; `bound`: to one processor, if there are fewer than ranks; `windows`: worlds are to go over
    /// windows of MPI, whose streams call it from threads of their own.
    ///
    /// The level is asked for only where it is needed: an MPI may take locks for it in each call.
    pub(crate) fn begin(bound: bool, windows: bool) -> Result<Self, Box<dyn Error>> {
        let level = match windows {
            true => Threading::Multiple,
            false => Threading::Funneled,
        };
        let (universe, provided) =
            initialize_with_threading(level).ok_or("MPI has been initialised by somebody else")?;
        if provided < Threading::Funneled {
            return Err(format!("MPI provides {provided:?}, and there are threads here").into());
        }
        let comm = universe.world();
        if bound {
            bind_to(comm.rank() as usize, comm.size() as usize);
        }
        Ok(Job(universe))
    }

    /// A world that MPI is used to meet for; collective.
    pub(crate) fn world<D: Device>(
        &self,
        options: WorldOptions,
    ) -> Result<World<D>, Box<dyn Error>> {
        Ok(World::from_mpi_with(&self.0.world(), options)?)
    }

    /// A world whose ranks reach each other by windows of MPI; collective.
    pub(crate) fn world_over_windows(
        &self,
        options: &windows::Options,
    ) -> Result<World<Host>, Box<dyn Error>> {
        Ok(windows::world(&self.0.world(), options)?)
    }
}
