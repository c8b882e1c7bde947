//! How ranks reach each other: mapped memory, a NIC over libfabric, or windows of MPI; on one node, or on several that this
//! host acts as.
//!
//! # Model
//!
//! With `--nodes` ranks of different nodes do not map each other, and `--transport auto` reaches them by libfabric;
//! within a node memory is mapped. `fabric` takes the NIC everywhere, `shm` never. With `--netns` each node is a
//! network namespace, and the wire between them can be slow and can lose packets.
//!
//! With `--transport mpi` the ranks are a job of an MPI, and its one-sided operations carry everything
//! (`tidegate_mpi::windows`), as in a program that has nothing else between its ranks.
//!
//! # Failures
//!
//! [`Unfit`] are arguments that do not go together, before there is a rank. Where there is no libfabric, or no provider
//! that will do, each rank says so and ends.

use clap::{Args, ValueEnum};
use std::error::Error;
use std::sync::Arc;
use tidegate_cli::{BedArgs, Job, Nodes};
use tidegate_core::{Route, Throttle, WorldOptions};
use tidegate_fabric::wire::libfabric::{Choice, EngineChoice, FabricWire};
use tidegate_fabric::{Fabric, Options};
use tidegate_hal::slots::TriggerSlots;
#[cfg(feature = "mpi")]
use tidegate_mpi::windows::{Form, Options as Windows};

/// Which way messages go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Transport {
    /// Mapped within a node, by libfabric between nodes
    #[default]
    Auto,
    /// Mapped, everywhere
    Shm,
    /// By libfabric, everywhere
    Fabric,
    /// By windows of an MPI, everywhere, in a job that --mpirun starts (feature `mpi`)
    Mpi,
}

/// How signals are sent over windows of MPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Signals {
    /// The faster of the two, measured when the ranks meet
    #[default]
    Measured,
    /// An MPI_Accumulate to a word that waiters look at
    Words,
    /// A message
    Messages,
}

/// Arguments that do not go together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// The nodes have another number of ranks.
    #[error("--nodes {nodes} has {has} ranks, and there are {ranks}")]
    Nodes {
        /// As it was said.
        nodes: String,
        /// How many ranks the nodes have in all.
        has: usize,
        /// How many there are to be.
        ranks: usize,
    },
    /// Something that windows of MPI do not have.
    #[error("{option} does not go with --transport mpi: {why}")]
    NotOverMpi {
        /// The option.
        option: &'static str,
        /// Why the two do not go together.
        why: &'static str,
    },
    /// Something that only windows of MPI have.
    #[error("{option} is about windows of MPI: it goes with --transport mpi")]
    OnlyOverMpi {
        /// The option.
        option: &'static str,
    },
}

/// The policy of a rank that is short of trigger slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ThrottleOf {
    /// It counts the operations that it has enqueued, and synchronises before they are too many
    Application,
    /// The library waits until all operations before are complete
    Static,
    /// The NIC takes each slot again as soon as its operation is complete
    #[default]
    Adaptive,
}

impl ThrottleOf {
    /// In the order of tables.
    pub const ALL: [ThrottleOf; 3] = [Self::Application, Self::Static, Self::Adaptive];

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Application => "application",
            Self::Static => "static",
            Self::Adaptive => "adaptive",
        }
    }
}

/// The engine that fires the operations that streams ring for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    /// The NIC where hardware does it, else an agent
    Auto,
    /// An agent
    Software,
    /// The NIC, by deferred work
    Triggered,
}

impl From<Engine> for EngineChoice {
    fn from(engine: Engine) -> Self {
        match engine {
            Engine::Auto => EngineChoice::Auto,
            Engine::Software => EngineChoice::Software,
            Engine::Triggered => EngineChoice::Triggered,
        }
    }
}

impl From<ThrottleOf> for Throttle {
    fn from(throttle: ThrottleOf) -> Throttle {
        match throttle {
            ThrottleOf::Application => Throttle::Application,
            ThrottleOf::Static => Throttle::Static,
            ThrottleOf::Adaptive => Throttle::Adaptive,
        }
    }
}

/// The options of a rank's world.
pub(crate) struct Way {
    pub(crate) options: WorldOptions,
    /// Its name in reports.
    pub(crate) label: String,
    /// The trigger slots of the NIC, if there is one.
    pub(crate) slots: Option<Arc<TriggerSlots>>,
}

/// The arguments about it.
#[derive(Debug, Clone, Args)]
pub struct TransportArgs {
    /// Which way messages go
    #[arg(long, value_enum, default_value_t)]
    pub transport: Transport,

    /// The provider of libfabric: tcp;ofi_rxm, sockets, … (default: the first that will do)
    #[arg(long, value_name = "NAME")]
    pub provider: Option<String>,

    /// The engine that fires the operations that streams ring for (default: the value of TIDEGATE_ENGINE, or auto)
    #[arg(long, value_enum, value_name = "ENGINE")]
    pub engine: Option<Engine>,

    /// So many trigger slots the NIC of a node has, which its ranks divide
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub budget: Option<u32>,

    /// Stage the NIC's data in memory of its own, as is always done for GPUs
    #[arg(long)]
    pub staged: bool,
    /// The policy of a rank that is short of trigger slots
    #[arg(long, value_enum, default_value_t)]
    pub throttle: ThrottleOf,

    /// Act as several nodes: `2x4` are two of four ranks each
    #[arg(long, value_name = "NODES")]
    pub nodes: Option<Nodes>,

    /// The wire between the nodes.
    #[command(flatten)]
    pub bed: BedArgs,

    /// How signals are sent over windows of MPI
    #[arg(long, value_enum, default_value_t, value_name = "FORM")]
    pub mpi_signals: Signals,

    /// Make windows of MPI as between nodes, even where all ranks have memory in common
    #[arg(long)]
    pub mpi_not_shared: bool,
}

impl TransportArgs {
    /// Whether ranks have a NIC.
    pub(crate) fn has_nic(&self) -> bool {
        match self.transport {
            Transport::Auto => self.nodes.as_ref().is_some_and(|nodes| nodes.count() > 1),
            Transport::Shm | Transport::Mpi => false,
            Transport::Fabric => true,
        }
    }

    /// Whether this fits so many ranks; `windows`: whether some may go over windows of MPI.
    ///
    /// # Errors
    ///
    /// The first option that does not fit.
    pub(crate) fn fits(&self, ranks: usize, windows: bool) -> Result<(), Unfit> {
        if self.transport == Transport::Mpi {
            let not = |option, why| Err(Unfit::NotOverMpi { option, why });
            let launcher = "its ranks are those that an MPI's launcher starts";
            let nic = "there is no NIC of this library's";
            let asked = [
                ("--netns", self.bed.netns, launcher),
                ("--nodes", self.nodes.is_some(), launcher),
                ("--provider", self.provider.is_some(), nic),
                ("--engine", self.engine.is_some(), nic),
                ("--budget", self.budget.is_some(), nic),
                ("--staged", self.staged, nic),
                ("--throttle", self.throttle != ThrottleOf::default(), nic),
            ];
            if let Some((option, _, why)) = asked.into_iter().find(|(_, asked, _)| *asked) {
                return not(option, why);
            }
        }
        if !windows {
            let only = |option| Err(Unfit::OnlyOverMpi { option });
            if self.mpi_signals != Signals::default() {
                return only("--mpi-signals");
            }
            if self.mpi_not_shared {
                return only("--mpi-not-shared");
            }
        }
        match &self.nodes {
            Some(nodes) if nodes.ranks() != ranks => Err(Unfit::Nodes {
                nodes: nodes.to_string(),
                has: nodes.ranks(),
                ranks,
            }),
            _ => Ok(()),
        }
    }

    /// How windows of MPI are used, and the name of that in reports.
    #[cfg(feature = "mpi")]
    pub(crate) fn windows(&self) -> (Windows, String) {
        let mut options = Windows::new();
        let mut label = format!("windows of {}", crate::mpi::calls::library());
        if self.mpi_not_shared {
            options = options.not_shared();
            label += ", not shared";
        }
        options = options.form(match self.mpi_signals {
            Signals::Measured => Form::Measured,
            Signals::Words => Form::Words,
            Signals::Messages => Form::Messages,
        });
        if self.mpi_signals != Signals::default() {
            let name = self.mpi_signals.to_possible_value();
            let name = name.expect("none is skipped");
            label += &format!(", {}", name.get_name());
        }
        (options, label)
    }

    /// The options of a rank's world.
    ///
    /// # Errors
    ///
    /// Why there is no NIC; [`Transport::Mpi`], whose worlds are made in jobs of that MPI.
    pub(crate) fn world(&self) -> Result<Way, Box<dyn Error>> {
        let options = WorldOptions::new();
        if self.transport == Transport::Mpi {
            return Err("--transport mpi is for jobs of an MPI".into());
        }
        if !self.has_nic() {
            return Ok(Way {
                options: options.route(Route::Mapped),
                label: "mapped".into(),
                slots: None,
            });
        }
        let mut choice = Choice::from_env()?;
        if let Some(provider) = &self.provider {
            choice = choice.provider_by(provider, "--provider");
        }
        if let Some(engine) = self.engine {
            choice = choice.engine(engine.into());
        }
        let wire = FabricWire::open(&choice)?;
        let mut label = wire.label();
        let route = match self.transport {
            Transport::Fabric => Route::Nic,
            _ => {
                label = format!("mapped, {label} between nodes");
                Route::Auto
            }
        };
        let behaviour = Options::default().rails_from_env()?;
        let mut behaviour = behaviour.silence_from_env();
        if let Some(budget) = self.budget {
            behaviour = behaviour.budget(budget as usize);
            label = format!("{label}, budget {budget}, {}", self.throttle.name());
        }
        if self.bed.netns {
            label = format!("{label}, in namespaces{}", self.bed.shape_text());
        }
        let nic = Fabric::over(wire, behaviour);
        let slots = Some(nic.slots());
        let mut options = options.nic(nic).route(route);
        if self.staged {
            options = options.staged();
            label += ", staged";
        }
        Ok(Way {
            slots,
            options,
            label,
        })
    }

    /// The job with its nodes, on its bed if it is to have one.
    ///
    /// # Errors
    ///
    /// Why there is no bed.
    pub(crate) fn job(&self, mut job: Job) -> Result<Job, Box<dyn Error>> {
        if self.has_nic() {
            for (name, value) in tidegate_fabric::ENVIRONMENT {
                job = job.default_env(name, value);
            }
        }
        if let Some(nodes) = &self.nodes {
            if let Some(bed) = self.bed.bed(nodes)? {
                eprintln!("faces: {bed}");
                job = job.bed(&bed);
            }
            job = job.nodes(nodes.clone());
        }
        Ok(job)
    }
}
