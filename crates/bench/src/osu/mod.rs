//! Latency and bandwidth of puts, as MPI people measure them.
//!
//! # Model
//!
//! Two ranks, active-target epochs (post, start, put, complete, wait), messages of 1 B to 4 MiB:
//!
//! - *latency*: a put to and fro, each an epoch of its own; half the time of a round trip;
//! - *bandwidth*: epochs of 64 puts one way; bytes in a second by the origin's clock, in MB (10^6 bytes).
//!
//! Several *ways* do the same: this library's stream-triggered epochs, enqueued (`st`) or replayed (`st-graph`), or
//! done by the calling thread as they are called (`inline`); and, with the feature `mpi`, the calls of an MPI (`mpi`,
//! `mpi-create`: MPI_Win_allocate, MPI_Win_create). For each size all ways have their turn, and all of that several
//! times; what is printed is the median. The output is a block for each way, in two columns. All ways put to as much
//! memory, each message to a place of its own: slots have one buffer, as windows of an MPI have (`--buffers double`).
//!
//! Ways of this library run over a [`Transport`]: a world, however it was made. In a job of an MPI these are mapped memory,
//! and windows of that MPI, side by side, unless `--transport` names one. (Streams over windows call MPI from threads of
//! their own, so it is initialised for MPI_THREAD_MULTIPLE then, which may cost the MPI's own ways something:
//! `--transport shm` leaves windows out, and asks for MPI_THREAD_FUNNELED.)
//!
//! # Failures
//!
//! What does not go together ([`Unfit`](crate::transport::Unfit)), or needs an MPI that is not there, is said before there is a rank. What has come is compared with what was sent, after every measurement: a difference ends the program with code 1.

mod ours;
#[cfg(feature = "mpi")]
mod theirs;

use crate::cli::BuffersOf;
#[cfg(not(feature = "mpi"))]
use crate::mpi::NoMpi;
use crate::results::stats::median;
#[cfg(feature = "mpi")]
use crate::transport::Way;
use crate::transport::{Transport as To, TransportArgs};
use clap::{Parser, ValueEnum};
use std::error::Error;
use std::fmt::Write as _;
use std::io::Write as _;
use std::ops::Range;
use std::process::ExitCode;
use tidegate_boot::launch::{Job, Output};
use tidegate_core::World;
use tidegate_host::Host;

/// Set for the processes that are ranks.
const IS_RANK: &str = "TIDEGATE_OSU_RANK";
/// Puts of an epoch, for the bandwidth.
const PUTS: usize = 64;
/// Messages from this size on are sent less often.
const LARGE: usize = 8192 + 1;

/// Which test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Test {
    /// Microseconds one way.
    Latency,
    /// MB in a second.
    Bandwidth,
}

/// Who sends the messages.
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
    fn is_mpi(self) -> bool {
        matches!(self, By::Mpi | By::MpiCreate)
    }
}

/// What can be said on the command line.
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

    /// Epochs of a measurement; a tenth of it where messages are larger than 8 KiB (bandwidth: a tenth of both)
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub iterations: u64,

    /// How often to measure; the result is the median
    #[arg(long, value_name = "TIMES", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,

    /// Buffers of a slot, in this library's ways: single, as the windows of an MPI are; or double, as slots are unless told
    /// otherwise, so that twice the memory goes through the caches
    #[arg(long, value_enum, default_value_t = BuffersOf::Single, value_name = "HOW")]
    pub buffers: BuffersOf,

    /// What starts the ranks where an MPI takes part; `-n 2 PROGRAM …` comes behind it
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

/// What this library's ways run over.
pub struct Transport<'a> {
    /// What it is called: `mapped`, `windows of Open MPI v4.1.4`, …
    pub name: String,
    /// The world.
    pub world: &'a World<Host>,
}

/// One measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    test: Test,
    bytes: usize,
    iterations: u64,
}

impl Case {
    /// Iterations before the clock starts: enough for each page of each buffer to be there, whatever is measured.
    fn ahead(&self) -> u64 {
        (self.iterations / 10).clamp(4, 100)
    }

    /// How many messages an epoch has.
    fn puts(&self) -> usize {
        match self.test {
            Test::Latency => 1,
            Test::Bandwidth => PUTS,
        }
    }

    /// What is printed, if all the iterations took so many seconds.
    fn figure(&self, seconds: f64) -> f64 {
        match self.test {
            Test::Latency => seconds * 1e6 / (2 * self.iterations) as f64,
            Test::Bandwidth => {
                (self.iterations as usize * PUTS * self.bytes) as f64 / 1e6 / seconds
            }
        }
    }

    /// What a rank sends.
    fn pattern(&self, rank: usize) -> Vec<u8> {
        pattern(rank, 0..self.bytes * self.puts())
    }

    /// Compares what has come to `rank` with what the other has sent.
    fn check(&self, rank: usize, at: usize, received: &[u8]) -> Result<(), String> {
        match received == pattern(1 - rank, at..at + received.len()) {
            true => Ok(()),
            false => Err(format!(
                "rank {rank}: what has come is not what was sent ({self:?})"
            )),
        }
    }
}

/// A part of the bytes that a rank sends. They repeat, so that hundreds of MB are made as fast as they are copied.
fn pattern(rank: usize, part: Range<usize>) -> Vec<u8> {
    const PERIOD: usize = 251;
    let first = part.start + 7 * rank;
    let period = (first..first + PERIOD).map(|at| (at % PERIOD) as u8 + 1);
    let mut bytes: Vec<u8> = period.collect();
    bytes.truncate(part.len());
    bytes.reserve_exact(part.len() - bytes.len());
    while bytes.len() < part.len() {
        let more = bytes.len().min(part.len() - bytes.len());
        bytes.extend_from_within(..more);
    }
    bytes
}

/// The whole of the program.
pub fn main() -> ExitCode {
    match run(&OsuArgs::parse()) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("osu: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The program, as a rank, or as the one that starts the ranks.
///
/// # Errors
///
/// What is missing, before there is a rank; what a rank could not do.
pub fn run(args: &OsuArgs) -> Result<u8, Box<dyn Error>> {
    let mut args = args.clone();
    if args.ways.is_empty() {
        let all = By::value_variants().iter().copied();
        args.ways = all
            .filter(|by| cfg!(feature = "mpi") || !by.is_mpi())
            .collect();
    }
    let mpi = match args.ways.iter().any(|by| by.is_mpi()) {
        true => Some("the way `mpi`"),
        false => (args.over.transport == To::Mpi).then_some("`--transport mpi`"),
    };
    let windows =
        matches!(args.over.transport, To::Mpi) || mpi.is_some() && args.over.transport == To::Auto;
    args.over.fits(2, windows)?;
    if let Some(what) = mpi {
        return over_mpi(&args, what, windows);
    }
    if std::env::var_os(IS_RANK).is_some() {
        let way = args.over.world()?;
        let world = World::init_with(way.options)?;
        return measure(
            &args,
            &[Transport {
                name: way.label,
                world: &world,
            }],
        );
    }
    let job = Job::this_program(2)?
        .args(std::env::args_os().skip(1))
        .env(IS_RANK, "1")
        .output(Output::Inherited)
        .forward_signals(true);
    Ok(args.over.job(job)?.run()?.exit_code())
}

#[cfg(not(feature = "mpi"))]
fn over_mpi(_: &OsuArgs, what: &str, _: bool) -> Result<u8, Box<dyn Error>> {
    Err(NoMpi {
        what: what.into(),
        bench: "osu",
        example: "--ways st,mpi",
    }
    .into())
}

/// In a job of an MPI, or as the one that starts it; `windows`: some of it goes over windows of that MPI.
#[cfg(feature = "mpi")]
fn over_mpi(args: &OsuArgs, _: &str, windows: bool) -> Result<u8, Box<dyn Error>> {
    use crate::mpi::job;
    if std::env::var_os(IS_RANK).is_none() && !job::is_rank() {
        return job::launch(&args.mpirun, 2, IS_RANK, "1".as_ref());
    }
    let job = job::Job::begin(!args.no_bind, windows)?;
    let args = &theirs::without_refused(args)?;
    let mut worlds: Vec<(String, World<Host>)> = Vec::new();
    if args.over.transport != To::Mpi {
        let Way { options, label, .. } = args.over.world()?;
        worlds.push((label, job.world(options)?));
    }
    if windows {
        let (options, label) = args.over.windows();
        worlds.push((label, job.world_over_windows(&options)?));
    }
    let transport = |(name, world)| Transport { name, world };
    let named = worlds.iter().map(|(name, world)| (name.clone(), world));
    measure(args, &named.map(transport).collect::<Vec<_>>())
}

/// One rank's part of all measurements; rank 0 prints them.
fn measure(args: &OsuArgs, transports: &[Transport<'_>]) -> Result<u8, Box<dyn Error>> {
    let Some(first) = transports.first() else {
        return Err("there is nothing to run over".into());
    };
    let (rank, size) = (first.world.rank(), first.world.size());
    if size != 2 {
        return Err(format!("this is for 2 ranks, and there are {size}").into());
    }
    let sizes: Vec<usize> = std::iter::successors(Some(args.min as usize), |bytes| Some(bytes * 2))
        .take_while(|bytes| *bytes <= args.max as usize)
        .collect();
    for test in &args.tests {
        // What, how it is called, and its figures.
        let mut blocks = Vec::new();
        for by in &args.ways {
            match by.is_mpi() {
                true => blocks.push((*by, None, Vec::new())),
                false => blocks.extend(transports.iter().map(|over| (*by, Some(over), Vec::new()))),
            }
        }
        for bytes in &sizes {
            let fewer = |by: bool| if by { 10 } else { 1 };
            let divisor = fewer(*bytes >= LARGE) * fewer(*test == Test::Bandwidth);
            let case = Case {
                test: *test,
                bytes: *bytes,
                iterations: (args.iterations / divisor).max(1),
            };
            let mut figures = vec![Vec::new(); blocks.len()];
            for _ in 0..args.rounds {
                for ((by, over, _), figures) in blocks.iter().zip(&mut figures) {
                    let seconds = match over {
                        Some(over) => ours::measure(over.world, *by, &case, args.buffers)?,
                        None => mpi(*by, &case)?,
                    };
                    figures.push(case.figure(seconds));
                }
            }
            for ((.., done), mut figures) in blocks.iter_mut().zip(figures) {
                done.push(median(&mut figures).expect("there is a round"));
            }
        }
        if rank == 0 {
            for (by, over, figures) in &blocks {
                let text = block(*test, *by, over.map(|over| &*over.name), &sizes, figures);
                std::io::stdout().write_all(text.as_bytes())?;
            }
        }
    }
    Ok(0)
}

#[cfg(feature = "mpi")]
use theirs::measure as mpi;

#[cfg(not(feature = "mpi"))]
fn mpi(_: By, _: &Case) -> Result<f64, String> {
    Err("this was built without MPI".into())
}

/// A block of the output.
fn block(test: Test, by: By, over: Option<&str>, sizes: &[usize], figures: &[f64]) -> String {
    let who = match (by, over) {
        (By::St, Some(over)) => format!("tidegate st ({over}): enqueued on a stream"),
        (By::StGraph, Some(over)) => format!("tidegate st-graph ({over}): recorded and replayed"),
        (_, Some(over)) => format!("tidegate inline ({over}): by the calling thread"),
        (_, None) => theirs_name(by),
    };
    let (what, head) = match test {
        Test::Latency => ("Put Latency Test", "Latency (us)"),
        Test::Bandwidth => ("Put Bandwidth Test, 64 puts an epoch", "Bandwidth (MB/s)"),
    };
    let mut text = format!(
        "# {what}: {who}\n# Synchronization: post/start/complete/wait\n# {:<8}{head:>18}\n",
        "Size"
    );
    for (bytes, figure) in sizes.iter().zip(figures) {
        _ = writeln!(text, "{bytes:<10}{figure:>18.2}");
    }
    text.push('\n');
    text
}

fn theirs_name(by: By) -> String {
    let how = if by == By::MpiCreate {
        "MPI_Win_create"
    } else {
        "MPI_Win_allocate"
    };
    #[cfg(feature = "mpi")]
    let library = crate::mpi::calls::library();
    #[cfg(not(feature = "mpi"))]
    let library = "MPI";
    format!("{library}, {how}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Unfit;

    #[test]
    fn patterns_are_of_one_piece() {
        let byte = |rank: usize, at: usize| ((at + 7 * rank) % 251) as u8 + 1;
        for (rank, part) in [(0, 0..0), (0, 3..40), (1, 0..1000), (1, 250..5000)] {
            let expected: Vec<_> = part.clone().map(|at| byte(rank, at)).collect();
            assert_eq!(pattern(rank, part), expected);
        }
    }

    #[test]
    fn figures_and_blocks() {
        let latency = Case {
            test: Test::Latency,
            bytes: 8,
            iterations: 1000,
        };
        assert_eq!(latency.figure(1e-3), 0.5);
        let bandwidth = Case {
            test: Test::Bandwidth,
            bytes: 1000,
            iterations: 100,
        };
        assert_eq!(bandwidth.figure(1e-3), 6400.0);
        assert!(latency.check(0, 0, &latency.pattern(1)).is_ok());
        assert!(latency.check(0, 0, &latency.pattern(0)).is_err());
        let text = block(
            Test::Latency,
            By::St,
            Some("mapped"),
            &[1, 1024],
            &[0.5, 12.25],
        );
        assert_eq!(
            text,
            "# Put Latency Test: tidegate st (mapped): enqueued on a stream\n\
             # Synchronization: post/start/complete/wait\n\
             # Size          Latency (us)\n\
             1                       0.50\n\
             1024                   12.25\n\n"
        );
    }

    #[test]
    fn ranks_as_threads() {
        for test in [Test::Latency, Test::Bandwidth] {
            let case = Case {
                test,
                bytes: 24,
                iterations: 20,
            };
            World::<Host>::local(2, |world| {
                let ways = [By::St, By::StGraph, By::Inline];
                let both = [BuffersOf::Single, BuffersOf::Double];
                for (by, buffers) in ways.into_iter().flat_map(|by| both.map(|two| (by, two))) {
                    assert!(ours::measure(&world, by, &case, buffers).unwrap() > 0.0);
                }
            });
        }
    }

    /// What cannot be is said before a rank starts.
    #[test]
    fn arguments_that_do_not_go_together() {
        let unfit = |line: &str| {
            let args = OsuArgs::parse_from(line.split_whitespace());
            *run(&args).unwrap_err().downcast::<Unfit>().expect(line)
        };
        assert!(matches!(
            unfit("osu --transport mpi --netns --nodes 1x2"),
            Unfit::NotOverMpi {
                option: "--netns",
                ..
            }
        ));
        assert!(matches!(
            unfit("osu --ways st --mpi-signals words"),
            Unfit::OnlyOverMpi {
                option: "--mpi-signals"
            }
        ));
        assert!(matches!(
            unfit("osu --ways st --transport fabric --nodes 2x2"),
            Unfit::Nodes {
                has: 4,
                ranks: 2,
                ..
            }
        ));
    }

    /// Without the feature, MPI is missed before a rank starts.
    #[cfg(not(feature = "mpi"))]
    #[test]
    fn mpi_is_missed() {
        for line in ["osu --ways st,mpi", "osu --ways st --transport mpi"] {
            let args = OsuArgs::parse_from(line.split_whitespace());
            let error = run(&args).unwrap_err().downcast::<NoMpi>().unwrap();
            assert!(error.to_string().contains("--features mpi"), "{error}");
        }
    }
}
