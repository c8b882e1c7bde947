//! The command line, and combinations that it refuses.

use crate::cli::BuffersOf;
use crate::ranks::Start;
use clap::{Parser, ValueEnum};

/// Which quantity is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Test {
    /// Microseconds one way.
    Latency,
    /// MB in a second.
    Bandwidth,
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
    /// An MPI, with MPI_Win_allocate
    Mpi,
    /// An MPI, with MPI_Win_create
    MpiCreate,
}

impl By {
    pub(super) fn is_mpi(self) -> bool {
        matches!(self, By::Mpi | By::MpiCreate)
    }
}

/// The command line.
#[derive(Debug, Clone, Parser)]
#[command(name = "osu", max_term_width = 100)]
pub struct OsuArgs {
    /// Which tests
    #[arg(long, value_enum, value_name = "LIST", value_delimiter = ',', default_values_t = [Test::Latency, Test::Bandwidth])]
    pub tests: Vec<Test>,

    /// Which ways (default: all that there are)
    #[arg(long, value_enum, value_name = "LIST", value_delimiter = ',')]
    pub ways: Vec<By>,

    /// The smallest message, in bytes
    #[arg(long, value_name = "B", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    pub min: u64,

    /// The largest message, in bytes
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

    /// How the ranks are started.
    #[command(flatten)]
    pub start: Start,
}

/// Arguments that do not go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// There is no size between these.
    #[error("`--min` must not be greater than `--max`")]
    Sizes,
}

impl OsuArgs {
    /// Refuses combinations that measure nothing.
    pub(super) fn fit(&self) -> Result<(), Misfit> {
        match self.min > self.max {
            true => Err(Misfit::Sizes),
            false => Ok(()),
        }
    }

    /// The arguments with their ways: all, if none were named.
    pub(super) fn with_ways(&self) -> OsuArgs {
        let mut args = self.clone();
        if args.ways.is_empty() {
            let all = By::value_variants().iter().copied();
            args.ways = all
                .filter(|by| cfg!(feature = "mpi") || !by.is_mpi())
                .collect();
        }
        args
    }

    /// The sizes: each twice the one before.
    pub(super) fn sizes(&self) -> Vec<usize> {
        let all = std::iter::successors(Some(self.min as usize), |bytes| Some(bytes * 2));
        all.take_while(|bytes| *bytes <= self.max as usize)
            .collect()
    }
}
