//! The command line, and combinations that it refuses.

use super::kind::Kind;
use crate::cli::Device;
use crate::ranks::Start;
use crate::transport::Transport;
use clap::{Parser, ValueEnum};
use std::path::PathBuf;
use tidegate_core::{Choice, Stream};
use tidegate_hal::device::Device as Hal;

/// Bytes of a number.
pub(super) const NUMBER: usize = size_of::<f32>();

/// How a collective is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// This library, enqueued on a stream
    St,
    /// This library, recorded and replayed
    StGraph,
    /// This library, by the calling thread
    Inline,
    /// An MPI
    Mpi,
    /// NCCL, enqueued on a stream: buffers that are not registered
    Nccl,
    /// NCCL, recorded and replayed
    NcclGraph,
    /// NCCL, enqueued: buffers are symmetric windows
    NcclWindows,
    /// NCCL, recorded: buffers are symmetric windows
    NcclWindowsGraph,
    /// NCCL, with numbers of rows that the host waits for; else, blocks go whole
    NcclCounts,
}

impl By {
    pub(super) fn is_ours(self) -> bool {
        matches!(self, By::St | By::StGraph | By::Inline)
    }

    pub(super) fn is_nccl(self) -> bool {
        !self.is_ours() && self != By::Mpi
    }

    /// Whether calls are recorded. Ratios compare recorded calls with each other, if both sides have them.
    pub(super) fn is_graph(self) -> bool {
        matches!(self, By::StGraph | By::NcclGraph | By::NcclWindowsGraph)
    }

    /// Whether the way has this collective.
    pub(super) fn does(self, kind: Kind) -> bool {
        match kind {
            Kind::Barrier | Kind::Scan => !self.is_nccl(),
            Kind::DispatchCombine => self != By::Mpi,
            _ => self != By::NcclCounts,
        }
    }

    /// As on the command line.
    pub(super) fn name(self) -> String {
        let value = self.to_possible_value().expect("none is skipped");
        value.get_name().to_owned()
    }
}

/// The command line.
#[derive(Debug, Clone, Parser)]
#[command(name = "collectives", max_term_width = 100)]
pub struct CollectivesArgs {
    /// Which collectives
    #[arg(long, value_enum, value_name = "LIST", value_delimiter = ',', default_values_t = Kind::value_variants().to_vec())]
    pub kinds: Vec<Kind>,

    /// How many ranks there are
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub ranks: u32,

    /// The ranks are so many teams, all of which do the same at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=512))]
    pub teams: u32,

    /// The device of the ranks
    #[arg(long, value_enum, default_value_t)]
    pub device: Device,

    /// Which ways (default: this library's; an MPI's too, if it was built with the feature `mpi`)
    #[arg(long, value_enum, value_name = "LIST", value_delimiter = ',')]
    pub ways: Vec<By>,

    /// Another library in the same run: nccl, by the library that `NCCL_LIBRARY` names (libnccl.so.2)
    #[arg(long, value_name = "NAME", value_parser = ["nccl"])]
    pub peers: Option<String>,

    /// The smallest block or vector of a rank, in bytes: numbers of 4 bytes
    #[arg(long, value_name = "B", default_value_t = 8, value_parser = clap::value_parser!(u64).range(4..=1 << 30))]
    pub min: u64,

    /// The largest block or vector of a rank, in bytes
    #[arg(long, value_name = "B", default_value_t = 64 << 20, value_parser = clap::value_parser!(u64).range(4..=1 << 30))]
    pub max: u64,

    /// How many times larger the next size is
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(2..))]
    pub factor: u64,

    /// These sizes instead
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub sizes: Vec<u64>,

    /// Calls that are enqueued before anything waits; fewer if a rank's data is larger than 64 KiB
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub iterations: u64,

    /// How often to measure; the result is the median
    #[arg(long, value_name = "TIMES", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,

    /// Calls that a recording contains; on GPUs, a launch makes several replays of it at a time, NCCL's too
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub unroll: u64,

    /// `Choice::short`, in bytes
    #[arg(long, value_name = "B")]
    pub short: Option<usize>,

    /// `Choice::pair`, in bytes
    #[arg(long, value_name = "B")]
    pub pair: Option<usize>,

    /// `Choice::piece`, in bytes
    #[arg(long, value_name = "B")]
    pub piece: Option<usize>,

    /// `Choice::few`
    #[arg(long, value_name = "N")]
    pub few: Option<usize>,

    /// `Choice::scan`
    #[arg(long, value_name = "N")]
    pub scan: Option<usize>,

    /// `Choice::along`, in bytes
    #[arg(long, value_name = "B")]
    pub along: Option<usize>,

    /// Make no difference between nodes (`Choice::by_node`)
    #[arg(long)]
    pub flat: bool,

    /// Instead of times, what one call sends, as `observe` counts it
    #[arg(long)]
    pub observe: bool,

    /// Print only the table of ratios
    #[arg(long)]
    pub brief: bool,

    /// Write all rows to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// How the ranks are started.
    #[command(flatten)]
    pub start: Start,
}

/// Arguments that do not go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// An MPI has no way to the GPUs here.
    #[error("the ways of an MPI are measured on the host")]
    MpiOnGpus,
    /// NCCL needs CUDA.
    #[error("NCCL is for `--device cuda`")]
    NcclWithoutCuda,
    /// Ranks are left over.
    #[error("`--teams` must divide `--ranks`")]
    Teams,
    /// The calls of an MPI are those of all ranks here.
    #[error("the ways of an MPI are measured without `--teams`")]
    MpiInTeams,
    /// GPUs have no streams that the calling thread does the work of.
    #[error("the way `inline` is for `--device host`")]
    InlineOnGpus,
    /// There is no size between these.
    #[error("`--min` must not be greater than `--max`")]
    Sizes,
}

impl CollectivesArgs {
    /// The arguments with their ways: all that can be measured so, if none were named. MPI is measured with all ranks
    /// in one communicator, so teams leave it out.
    pub(super) fn with_ways(&self) -> CollectivesArgs {
        let mut args = self.clone();
        if args.ways.is_empty() {
            args.ways = vec![By::St, By::StGraph];
            if self.device == Device::Host {
                args.ways.push(By::Inline);
                if cfg!(feature = "mpi") && self.teams == 1 {
                    args.ways.push(By::Mpi);
                }
            }
            if self.peers.is_some() {
                let all = By::value_variants().iter().copied();
                args.ways.extend(all.filter(|by| by.is_nccl()));
            }
        }
        if args.observe {
            args.ways = vec![By::St];
        }
        args
    }

    /// Refuses combinations that no device can do, and those that measure nothing.
    pub(super) fn fit(&self) -> Result<(), Misfit> {
        let has = |test: fn(By) -> bool| self.ways.iter().any(|by| test(*by));
        let mpi = has(|by| by == By::Mpi) || self.start.over.transport == Transport::Mpi;
        if !self.ranks.is_multiple_of(self.teams) {
            return Err(Misfit::Teams);
        }
        if self.sizes.is_empty() && self.min > self.max {
            return Err(Misfit::Sizes);
        }
        if self.teams > 1 && has(|by| by == By::Mpi) {
            return Err(Misfit::MpiInTeams);
        }
        match self.device {
            Device::Host if has(By::is_nccl) => Err(Misfit::NcclWithoutCuda),
            Device::Host => Ok(()),
            _ if mpi => Err(Misfit::MpiOnGpus),
            _ if has(|by| by == By::Inline) => Err(Misfit::InlineOnGpus),
            Device::Hip if has(By::is_nccl) => Err(Misfit::NcclWithoutCuda),
            _ => Ok(()),
        }
    }

    /// The numbers of elements of a collective. A barrier has none.
    pub(super) fn counts(&self, kind: Kind) -> Vec<usize> {
        if kind == Kind::Barrier {
            return vec![0];
        }
        let mut sizes = self.sizes.clone();
        if sizes.is_empty() {
            let all = std::iter::successors(Some(self.min), |bytes| bytes.checked_mul(self.factor));
            sizes = all.take_while(|bytes| *bytes <= self.max).collect();
            if sizes.last() != Some(&self.max) {
                sizes.push(self.max);
            }
        }
        let count = |bytes: u64| (bytes as usize).div_ceil(NUMBER).max(1);
        sizes.into_iter().map(count).collect()
    }

    /// The ranks of a team.
    pub(super) fn team_size(&self) -> usize {
        (self.ranks / self.teams) as usize
    }

    /// How many calls are enqueued.
    pub(super) fn calls(&self, kind: Kind, count: usize) -> u64 {
        let (input, output) = kind.lengths(0, self.team_size(), count);
        let bytes = (input.max(output) * NUMBER) as u64;
        let fewer = self.iterations * (64 << 10) / bytes.max(64 << 10);
        fewer
            .max(self.iterations.min(self.unroll))
            .next_multiple_of(self.unroll)
    }

    pub(super) fn choice<D: Hal>(&self, stream: &Stream<'_, D>) -> Choice {
        let usual = Choice::on(stream);
        Choice {
            short: self.short.unwrap_or(usual.short),
            at_once: usual.at_once,
            pair: self.pair.unwrap_or(usual.pair),
            piece: self.piece.unwrap_or(usual.piece),
            few: self.few.unwrap_or(usual.few),
            scan: self.scan.unwrap_or(usual.scan),
            along: self.along.unwrap_or(usual.along),
            by_node: !self.flat,
        }
    }
}
