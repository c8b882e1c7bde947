//! The command line of Faces.
//!
//! # Model
//!
//! [`FacesArgs`] is parsed by `clap` from `cargo bench --bench faces -- …`; [`FacesArgs::params`]
//! turns it into validated [`Params`]. The `--bench` that cargo adds is accepted and ignored.
//!
//! # Failures
//!
//! [`FacesArgs::read`] ends the process with a usage message; [`FacesArgs::try_from_iter`] returns
//! it.

use crate::exchange::Pattern;
use crate::faces::params::{Counts, Grid, Init, Params, Size, Variant};
use crate::faces::timeline;
use crate::peers::Peer;
use crate::results::meaning;
use crate::throttling::BUDGETS;
use crate::transport::{Transport, TransportArgs, Unfit};
use clap::{CommandFactory, Parser, ValueEnum, error::ErrorKind};
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use tidegate_core::window::Buffers;

/// The longest limit, in seconds: clocks can still count it.
const A_YEAR: u64 = 365 * 24 * 3600;

/// The device of the ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
#[non_exhaustive]
pub enum Device {
    /// Threads as streams, shared memory: needs nothing but the CPU.
    #[default]
    Host,
    /// A GPU a rank, driven by CUDA.
    Cuda,
    /// A GPU a rank, driven by HIP. No AMD GPU has run it yet.
    Hip,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Host => f.write_str("host"),
            Device::Cuda => f.write_str("cuda"),
            Device::Hip => f.write_str("hip"),
        }
    }
}

/// How many buffers a slot of the exchanges has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum BuffersOf {
    /// One: the exposure is waited for in every epoch.
    Single,
    /// Two, by turns: it was given an epoch before.
    #[default]
    Double,
}

impl fmt::Display for BuffersOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BuffersOf::Single => "single",
            BuffersOf::Double => "double",
        })
    }
}

impl From<BuffersOf> for Buffers {
    fn from(buffers: BuffersOf) -> Buffers {
        match buffers {
            BuffersOf::Single => Buffers::Single,
            BuffersOf::Double => Buffers::Double,
        }
    }
}

/// Whether ranks are processes or threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum RanksAs {
    /// A process each, as the ranks of any job.
    #[default]
    Processes,
    /// Threads of one process: for debuggers.
    Threads,
}

/// The nearest-neighbour exchange of a spectral-element code, verified and timed.
#[derive(Debug, Clone, Parser)]
#[command(
    name = "faces",
    max_term_width = 100,
    after_long_help = format!("The table:\n{}", meaning::help())
)]
pub struct FacesArgs {
    /// Grid of ranks, one process each
    #[arg(long, value_name = "LXxLYxLZ", default_value = "2x2x2")]
    pub grid: Grid,

    /// Elements of a block and points along a side of an element: desk, small, large, or MXxMYxMZxN
    #[arg(long, value_name = "SIZE", default_value = "desk")]
    pub size: Size,

    /// How often to build windows, to start from the initial values, and to share (default: what
    /// goes with the size)
    #[arg(long, value_name = "NK,NJ,NI")]
    pub counts: Option<Counts>,

    /// Sum shared points inside of the blocks while the messages travel
    #[arg(long)]
    pub compute: bool,

    /// Initial values: same (on every rank), or global (a message that goes to the wrong rank is
    /// seen)
    #[arg(long, value_enum, value_name = "WHICH", default_value_t)]
    pub init: Init,

    /// Which variants to run, in this order; those of an MPI need the feature `mpi`
    #[arg(long, value_enum, value_name = "LIST", value_delimiter = ',', default_values_t = Variant::DEFAULT)]
    pub variants: Vec<Variant>,

    /// How often to run all variants in turn; the result is the median
    #[arg(long, value_name = "TIMES", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,

    /// Measure the exchange alone, without kernels, as st and st-graph
    #[arg(long)]
    pub exchange: bool,

    /// Measure two ranks instead: a message to and fro, and messages that cross
    #[arg(long, conflicts_with_all = ["exchange", "grid"])]
    pub pair: bool,

    /// In an exchange: so many messages to the other ranks by turns, instead of those of Faces
    #[arg(long, value_name = "K", requires_all = ["exchange", "bytes"])]
    pub neighbours: Option<usize>,

    /// Bytes of a message of --neighbours, or the only size of --pair (default there: 8 B to 256 MiB)
    #[arg(long, value_name = "B")]
    pub bytes: Option<usize>,

    /// So many messages an epoch, in --pair: a window of puts
    #[arg(long, value_name = "N", default_value_t = 1, requires = "pair")]
    pub puts: usize,

    /// In --pair: so many bytes of each message are sent, as the stream counts them
    #[arg(long, value_name = "B", requires_all = ["pair", "bytes"])]
    pub counted: Option<usize>,

    /// Buffers of a slot, in --exchange and --pair
    #[arg(long, value_enum, default_value_t, value_name = "HOW")]
    pub buffers: BuffersOf,

    /// Epochs that are recorded in one graph, in --exchange and --pair
    #[arg(long, value_name = "EPOCHS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub unroll: u64,

    /// The device to run on
    #[arg(long, value_enum, default_value_t)]
    pub device: Device,

    /// Instead of measuring, write a timeline of a few shares to this file, as a JSON array
    #[arg(long, value_name = "FILE", conflicts_with_all = ["exchange", "pair", "peers", "counts", "json"])]
    pub timeline: Option<PathBuf>,

    /// Afterwards do the same with other libraries, on GPUs: any of nvshmem, nccl, mpi, hostrma, floor
    #[arg(
        long,
        value_enum,
        value_name = "LIST",
        value_delimiter = ',',
        conflicts_with = "neighbours"
    )]
    pub peers: Vec<Peer>,

    /// Where the programs of --peers are; they are built if they are not there and their sources are found
    #[arg(long, value_name = "DIR", default_value = "target/peers")]
    pub peers_at: PathBuf,

    /// Measure with each number of trigger slots of --budgets and each policy, and print how they compare
    #[arg(long, conflicts_with_all = ["exchange", "pair", "timeline", "peers", "budget", "throttle"])]
    pub throttling: bool,

    /// The numbers of trigger slots of a node's NIC, in --throttling
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = BUDGETS, requires = "throttling",
        value_parser = clap::value_parser!(u32).range(1..))]
    pub budgets: Vec<u32>,

    /// Seconds that one program of --peers may take
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u64).range(..=A_YEAR))]
    pub peers_limit: u64,

    /// Seconds after which no further program of --peers is started
    #[arg(long, value_name = "S", default_value_t = 240)]
    pub peers_budget: u64,

    /// Write the rows to this file, as a JSON array
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write a page with charts into this folder (default: faces in CARGO_TARGET_DIR, or in target)
    #[arg(long, value_name = "DIR", default_value_os_t = report_folder(std::env::var_os("CARGO_TARGET_DIR")))]
    pub report: PathBuf,

    /// How the ranks reach each other.
    #[command(flatten)]
    pub over: TransportArgs,

    /// Whether ranks are processes or threads
    #[arg(long, value_enum, default_value_t, hide = true)]
    pub ranks_as: RanksAs,

    /// The command that starts the ranks if something goes over MPI (--transport mpi, or a variant); `-n RANKS PROGRAM …` is added to it
    #[arg(long, value_name = "COMMAND", default_value = "mpirun")]
    pub mpirun: String,

    /// How the windows of mpi-rma get their memory
    #[cfg(feature = "mpi")]
    #[arg(long, value_enum, default_value_t, value_name = "HOW")]
    pub mpi_window: crate::mpi::WindowBy,

    /// Over MPI, wait by testing, and give the processor away between: for an MPI that keeps it, where there are more ranks
    /// than processors
    #[cfg(feature = "mpi")]
    #[arg(long)]
    pub mpi_polls: bool,

    /// Let the scheduler move the ranks, instead of binding each to a processor
    #[arg(long)]
    pub no_bind: bool,

    /// Passed by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

/// The default folder of reports: where cargo builds.
fn report_folder(target: Option<OsString>) -> PathBuf {
    let target = target.filter(|folder| !folder.is_empty());
    PathBuf::from(target.unwrap_or("target".into())).join("faces")
}

impl FacesArgs {
    /// Parses and validates the arguments of this process. If they are wrong, or ask for help, prints that and exits.
    pub fn read() -> FacesArgs {
        FacesArgs::try_from_iter(std::env::args_os()).unwrap_or_else(|e| e.exit())
    }

    /// Parses and validates arguments, of which the first is the name of the program.
    ///
    /// # Errors
    ///
    /// Unknown or malformed arguments, arguments that do not fit together, and requests for help.
    pub fn try_from_iter<T: Into<OsString> + Clone>(
        args: impl IntoIterator<Item = T>,
    ) -> Result<FacesArgs, clap::Error> {
        let args = FacesArgs::try_parse_from(args)?;
        let refuse = |why: String| Err(FacesArgs::command().error(ErrorKind::ValueValidation, why));
        let checked = match args.exchange || args.pair {
            // Only Faces has values that grow.
            true => args.exchange_fits(),
            false => args.unchecked().validate().map_err(|e| e.to_string()),
        };
        let windows = args.over.transport == Transport::Mpi;
        let over = args.over.fits(args.ranks(), windows);
        let over = over.and_then(|()| if windows { args.fit_windows() } else { Ok(()) });
        let over = over.map_err(|unfit| unfit.to_string());
        let throttling = match args.throttling && !args.over.has_nic() {
            true => Err("--throttling goes with a NIC: --nodes, or --transport fabric".to_owned()),
            false => Ok(()),
        };
        let alone = args.exchange || args.pair || args.throttling || args.timeline.is_some();
        let alone = alone || !args.peers.is_empty() || args.over.nodes.is_some();
        let elsewhere = alone || args.ranks_as == RanksAs::Threads || args.device != Device::Host;
        let mpi = match args.variants.iter().find(|variant| variant.is_mpi()) {
            Some(variant) if elsewhere => Err(format!(
                "`{variant}` is for Faces alone, on the host, with an MPI's own ranks"
            )),
            _ => Ok(()),
        };
        match checked.and(over).and(throttling).and(mpi) {
            Ok(()) => Ok(args),
            Err(why) => refuse(why),
        }
    }

    /// Whether this can be done over windows of MPI, as far as it is not about the transport.
    fn fit_windows(&self) -> Result<(), Unfit> {
        let asked = [
            (
                "a device other than the host",
                self.device != Device::Host,
                "windows of MPI carry what is in memory of the host",
            ),
            (
                "--peers",
                !self.peers.is_empty(),
                "their programs are not part of an MPI job",
            ),
            (
                "--ranks-as threads",
                self.ranks_as == RanksAs::Threads,
                "ranks of an MPI are processes",
            ),
            (
                "--throttling",
                self.throttling,
                "there is no NIC of this library's",
            ),
        ];
        let mut unfit = asked.into_iter().filter(|(_, asked, _)| *asked);
        match unfit.next() {
            Some((option, _, why)) => Err(Unfit::NotOverMpi { option, why }),
            None => Ok(()),
        }
    }

    /// The argument that needs MPI, if there is one: the ranks are those of an MPI then.
    pub(crate) fn over_mpi(&self) -> Option<String> {
        if self.over.transport == Transport::Mpi {
            return Some("`--transport mpi`".into());
        }
        let variant = self.variants.iter().find(|variant| variant.is_mpi())?;
        Some(format!("the variant `{variant}`"))
    }

    /// Whether there are such messages.
    fn exchange_fits(&self) -> Result<(), String> {
        let ranks = self.ranks();
        let bytes = self.bytes.unwrap_or(8);
        self.grid.validate().map_err(|e| e.to_string())?;
        self.size.validate().map_err(|e| e.to_string())?;
        if self.pair || self.neighbours.is_some() {
            let count = self.neighbours.unwrap_or(self.puts);
            Pattern::ring(ranks, 0, count, bytes).map_err(|e| e.to_string())?;
        } else if self.bytes.is_some() {
            return Err("--bytes goes with --neighbours or --pair".into());
        }
        match self.counted {
            Some(counted) if !counted.is_multiple_of(8) || counted > bytes => Err(format!(
                "--counted {counted} is to be a multiple of 8, and not more than --bytes, which is {bytes}"
            )),
            _ => Ok(()),
        }
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> usize {
        if self.pair { 2 } else { self.grid.ranks() }
    }

    /// The parameters; valid if this was made by [`FacesArgs::read`] or
    /// [`FacesArgs::try_from_iter`].
    ///
    /// # Errors
    ///
    /// As [`Params::validate`].
    pub fn params(&self) -> Result<Params, crate::faces::params::ParamsError> {
        let params = self.unchecked();
        params.validate()?;
        Ok(params)
    }

    /// As [`FacesArgs::params`], of arguments that were validated before.
    pub(crate) fn unchecked(&self) -> Params {
        Params {
            grid: self.grid,
            size: self.size,
            counts: match &self.timeline {
                Some(_) => timeline::COUNTS,
                None => self.counts.unwrap_or(self.size.default_counts()),
            },
            init: self.init,
            compute: self.compute,
            variants: self.variants.clone(),
        }
    }
}

/// The command that repeats a run with these arguments, in a shell's words.
pub(crate) fn command_line(args: impl IntoIterator<Item = String>, over_mpi: bool) -> String {
    let features = if over_mpi { " --features mpi" } else { "" };
    let mut line = format!("cargo bench{features} --bench faces --");
    // Cargo adds `--bench` itself.
    for word in args.into_iter().filter(|word| word != "--bench") {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_=,.:/+".contains(c);
        line += " ";
        match !word.is_empty() && word.chars().all(plain) {
            true => line += &word,
            false => line += &format!("'{}'", word.replace('\'', r"'\''")),
        }
    }
    line
}

#[cfg(test)]
mod tests;
