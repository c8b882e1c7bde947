//! The command line, and combinations that it refuses.

use crate::cli::{BuffersOf, Device};
use crate::transport::{Transport, TransportArgs};
use clap::{Parser, ValueEnum};

/// Bytes of a number that is summed up.
pub(super) const NUMBER: usize = size_of::<f64>();
/// The most bytes that an all-reduce takes.
const MOST_SUMMED: usize = 1 << 20;

/// Which quantity is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Test {
    /// Microseconds one way.
    Latency,
    /// MB in a second.
    Bandwidth,
    /// Microseconds of a sum over all ranks.
    Allreduce,
}

impl Test {
    /// Whether it is about two ranks, one of which puts.
    pub(super) fn is_of_puts(self) -> bool {
        self != Test::Allreduce
    }
}

/// How the messages are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// This library, enqueued on a stream
    St,
    /// This library, recorded and replayed
    StGraph,
    /// This library, by the calling thread
    Inline,
    /// An MPI: MPI_Win_allocate, MPI_Allreduce
    Mpi,
    /// An MPI, with MPI_Win_create
    MpiCreate,
}

impl By {
    pub(super) fn is_mpi(self) -> bool {
        matches!(self, By::Mpi | By::MpiCreate)
    }

    /// Whether there is such a way to do a test: sums have no window of an MPI to choose, and GPUs no streams that the
    /// calling thread does the work of.
    pub(super) fn does(self, test: Test, device: Device) -> bool {
        match self {
            By::MpiCreate => test.is_of_puts(),
            By::Inline => device == Device::Host,
            _ => true,
        }
    }
}

/// The command line.
#[derive(Debug, Clone, Parser)]
#[command(name = "osu", max_term_width = 100)]
pub struct OsuArgs {
    /// Which tests
    #[arg(long, value_enum, value_name = "LIST", value_delimiter = ',', default_values_t = [Test::Latency, Test::Bandwidth])]
    pub tests: Vec<Test>,

    /// How many ranks there are: 2, but for allreduce
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub ranks: u32,

    /// The device of the ranks; GPUs for allreduce alone, since `--bench faces -- --pair` measures pairs of GPUs
    #[arg(long, value_enum, default_value_t)]
    pub device: Device,

    /// Which ways (default: all that there are)
    #[arg(long, value_enum, value_name = "LIST", value_delimiter = ',')]
    pub ways: Vec<By>,

    /// The smallest message, in bytes; a sum has numbers of 8 bytes
    #[arg(long, value_name = "B", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    pub min: u64,

    /// The largest message, in bytes; a sum has 1 MiB at most
    #[arg(long, value_name = "B", default_value_t = 4 << 20, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    pub max: u64,

    /// Epochs of a measurement; a tenth of them for messages larger than 8 KiB, and a tenth again for bandwidth
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub iterations: u64,

    /// How often to measure; the result is the median
    #[arg(long, value_name = "TIMES", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,

    /// Buffers of a slot, in this library's ways: single, as the windows of an MPI are; or double, as slots are unless told
    /// otherwise, so that twice the memory goes through the caches
    #[arg(long, value_enum, default_value_t = BuffersOf::Single, value_name = "HOW")]
    pub buffers: BuffersOf,

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

/// Arguments that do not go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// Puts are measured between two ranks.
    #[error(
        "latency and bandwidth are of two ranks, and --ranks says {ranks}: `--tests allreduce` takes any number"
    )]
    NotTwo {
        /// The number that was asked for.
        ranks: u32,
    },
    /// On GPUs sums alone are measured.
    #[error(
        "on GPUs `--tests allreduce` alone is measured here; pairs are by `--bench faces -- --pair --device cuda`"
    )]
    PutsOnGpus,
    /// An MPI has no way to the GPUs here.
    #[error("the ways of an MPI are measured on the host")]
    MpiOnGpus,
    /// No way that was asked for can do the test.
    #[error("none of --ways does {test}")]
    NoWay {
        /// The name of the test that no way can do.
        test: &'static str,
    },
}

impl OsuArgs {
    /// The arguments with their ways: all, if none were named.
    pub(super) fn with_ways(&self) -> OsuArgs {
        let mut args = self.clone();
        if args.ways.is_empty() {
            let all = By::value_variants().iter().copied();
            let here = cfg!(feature = "mpi") && self.device == Device::Host;
            args.ways = all.filter(|by| here || !by.is_mpi()).collect();
        }
        args
    }

    /// The ways that do a test.
    pub(super) fn ways_of(&self, test: Test) -> impl Iterator<Item = By> {
        let ways = self.ways.iter().copied();
        ways.filter(move |by| by.does(test, self.device))
    }

    /// Refuses combinations that no transport can do.
    pub(super) fn fit(&self) -> Result<(), Misfit> {
        let puts = self.tests.iter().any(|test| test.is_of_puts());
        if puts && self.device != Device::Host {
            return Err(Misfit::PutsOnGpus);
        }
        if puts && self.ranks != 2 {
            return Err(Misfit::NotTwo { ranks: self.ranks });
        }
        let mpi = self.ways.iter().any(|by| by.is_mpi()) || self.over.transport == Transport::Mpi;
        if mpi && self.device != Device::Host {
            return Err(Misfit::MpiOnGpus);
        }
        match self
            .tests
            .iter()
            .find(|test| self.ways_of(**test).next().is_none())
        {
            Some(Test::Allreduce) => Err(Misfit::NoWay { test: "allreduce" }),
            Some(_) => Err(Misfit::NoWay { test: "puts" }),
            None => Ok(()),
        }
    }

    /// The sizes of a test: each twice the one before.
    pub(super) fn sizes(&self, test: Test) -> Vec<usize> {
        let (min, max) = (self.min as usize, self.max as usize);
        let (min, max) = match test {
            Test::Allreduce => (min.next_multiple_of(NUMBER), max.min(MOST_SUMMED)),
            _ => (min, max),
        };
        let all = std::iter::successors(Some(min), |bytes| Some(bytes * 2));
        all.take_while(|bytes| *bytes <= max).collect()
    }
}
