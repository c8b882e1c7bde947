//! Starts the ranks of a benchmark: by this library's launcher, or by that of an MPI.
//!
//! # Model
//!
//! A benchmark is one program, which starts itself again as ranks. A variable says that a process is a rank. Each rank
//! gets the worlds that this library's ways run over. In a job of an MPI there may be two: one over mapped memory or
//! libfabric, and one over windows of that MPI.
//!
//! # Failure
//!
//! A missing device or launcher is said once, and not by every rank.

use crate::device::BenchDevice;
use crate::rounds::bind_launched;
use crate::transport::TransportArgs;
use std::error::Error;
use tidegate_cli::{Job, Output};
use tidegate_core::{World, WorldOptions};

/// A code to end with, or why there is none.
pub(crate) type Done = Result<u8, Box<dyn Error>>;

/// A world that this library's ways run over.
pub(crate) struct Transport<'a, D: BenchDevice> {
    /// Its name: `mapped`, `windows of Open MPI v4.1.4`, …
    pub(crate) name: String,
    /// This rank's view of the job.
    pub(crate) world: &'a World<D>,
}

/// Arguments about how ranks are started, and reach each other.
#[derive(Debug, Clone, clap::Args)]
pub struct Start {
    /// The command that starts the ranks where an MPI takes part; `-n RANKS PROGRAM …` is added to it
    #[arg(long, value_name = "COMMAND", default_value = "mpirun")]
    pub mpirun: String,

    /// How the ranks reach each other.
    #[command(flatten)]
    pub over: TransportArgs,

    /// Let the scheduler move the ranks about, where there are fewer processors than ranks
    #[arg(long)]
    pub no_bind: bool,

    /// Passed by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

/// The ranks of a benchmark, before they are started.
pub(crate) struct Ranks<'a> {
    /// The variable that is set for processes that are ranks.
    pub(crate) is_rank: &'static str,
    pub(crate) ranks: usize,
    pub(crate) start: &'a Start,
}

impl Ranks<'_> {
    /// Whether this process is a rank, and not the one that starts them.
    pub(crate) fn is_one(&self) -> bool {
        std::env::var_os(self.is_rank).is_some()
    }

    /// Starts the ranks without any MPI. `options` are those of a rank's world, to be completed.
    pub(crate) fn run<D: BenchDevice>(
        &self,
        options: impl FnOnce(WorldOptions) -> WorldOptions,
        rank: impl FnOnce(&[Transport<'_, D>]) -> Done,
    ) -> Done {
        if self.is_one() {
            if !self.start.no_bind {
                bind_launched(self.ranks);
            }
            let way = self.start.over.world()?;
            let world = World::<D>::join(options(way.options))?;
            self.check(world.size())?;
            let name = way.label;
            return rank(&[Transport {
                name,
                world: &world,
            }]);
        }
        D::available()?;
        let job = Job::this_program(self.ranks)?
            .args(std::env::args_os().skip(1))
            .env(self.is_rank, "1")
            .output(Output::Inherited)
            .forward_signals(true);
        Ok(self.start.over.job(job)?.run()?.exit_code())
    }

    /// Starts the ranks as a job of an MPI, or is one of them; `windows`: some ways use windows of that MPI.
    #[cfg(feature = "mpi")]
    pub(crate) fn run_over_mpi(
        &self,
        windows: bool,
        rank: impl FnOnce(&[Transport<'_, tidegate_host::Host>]) -> Done,
    ) -> Done {
        use crate::mpi::job;
        use crate::transport::{Transport as To, Way};
        if std::env::var_os(self.is_rank).is_none() && !job::is_rank() {
            return job::launch(&self.start.mpirun, self.ranks, self.is_rank, "1".as_ref());
        }
        let job = job::Job::begin(!self.start.no_bind, windows)?;
        let mut worlds = Vec::new();
        if self.start.over.transport != To::Mpi {
            let Way { options, label, .. } = self.start.over.world()?;
            worlds.push((label, job.world(options)?));
        }
        if windows {
            let (options, label) = self.start.over.windows();
            worlds.push((label, job.world_over_windows(&options)?));
        }
        for (_, world) in &worlds {
            self.check(world.size())?;
        }
        let named = worlds.iter();
        let all: Vec<_> = named
            .map(|(name, world)| Transport {
                name: name.clone(),
                world,
            })
            .collect();
        rank(&all)
    }

    fn check(&self, size: usize) -> Result<(), String> {
        match size == self.ranks {
            true => Ok(()),
            false => Err(format!(
                "this is for {} ranks (--ranks), and there are {size}",
                self.ranks
            )),
        }
    }
}
