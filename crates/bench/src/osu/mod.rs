//! Latency and bandwidth of puts, and sums over all ranks, as MPI people measure them.
//!
//! # Model
//!
//! Two ranks, active-target epochs (post, start, put, complete, wait), messages of 1 B to 4 MiB:
//!
//! - *latency*: a put to and fro, each an epoch of its own; half the time of a round trip;
//! - *bandwidth*: epochs of 64 puts one way; bytes in a second by the origin's clock, in MB (10^6 bytes).
//!
//! Any number of ranks, on the host or on GPUs:
//!
//! - *allreduce*: sums of `f64`s of all ranks, one after the other; the time of one, by rank 0's clock. Ours are made in place,
//!   an MPI's from one memory to another.
//!
//! Several *ways* do the same: this library's stream-triggered epochs, enqueued (`st`), replayed (`st-graph`), or done by
//! the calling thread (`inline`); and, with the feature `mpi`, the calls of an MPI (`mpi`, `mpi-create`: MPI_Win_allocate,
//! MPI_Win_create). For each size, all ways take turns several times, and the median is printed. The output is a block for
//! each way, in two columns. All ways put to the same amount of memory, each message to a place of its own: slots have one
//! buffer, as windows of an MPI have (else `--buffers double`). The slots of an all-reduce always have two.
//!
//! Ways of this library run over a world. In a job of an MPI they run over mapped memory and over windows of that MPI, one
//! after the other, unless `--transport` names one. Streams over windows call MPI from threads of their own, so MPI is
//! then initialised for MPI_THREAD_MULTIPLE, which may slow the MPI's own ways down. `--transport shm` leaves windows out,
//! and asks for MPI_THREAD_FUNNELED.
//!
//! # Failures
//!
//! Arguments that do not go together ([`Misfit`], [`Unfit`](crate::transport::Unfit)), and a missing MPI or device, are
//! refused before there is a rank. After every measurement the received data is compared with the data that was sent: a
//! difference ends the program with code 1.

mod args;
mod case;
mod ours;
mod sums;
#[cfg(feature = "mpi")]
mod theirs;

pub use args::{By, Misfit, OsuArgs, Test};

use crate::cli::{BuffersOf, Device};
use crate::device::BenchDevice;
use crate::device::gpu::Gpu;
#[cfg(not(feature = "mpi"))]
use crate::mpi::NoMpi;
use crate::results::stats::median;
use crate::rounds::bind_launched;
use crate::transport::Transport as To;
#[cfg(feature = "mpi")]
use crate::transport::Way;
use case::Case;
use clap::Parser as _;
use std::error::Error;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;
use tidegate_cli::{Job, Output};
use tidegate_core::World;
use tidegate_cuda::Cuda;
use tidegate_hip::Hip;
use tidegate_host::Host;

/// Set for the processes that are ranks.
const IS_RANK: &str = "TIDEGATE_OSU_RANK";
/// Messages from this size on are sent less often.
const LARGE: usize = 8192 + 1;

/// A world that this library's ways run over.
struct Transport<'a, D: BenchDevice> {
    /// Its name: `mapped`, `windows of Open MPI v4.1.4`, …
    name: String,
    /// This rank's view of the job.
    world: &'a World<D>,
}

/// A device on which some tests run.
trait OsuDevice: BenchDevice {
    /// Seconds of all iterations of a test of puts, on this rank; collective.
    fn puts(world: &World<Self>, by: By, case: &Case, buffers: BuffersOf) -> Seconds;
}

/// How long something took.
type Seconds = Result<f64, Box<dyn Error>>;

impl OsuDevice for Host {
    fn puts(world: &World<Self>, by: By, case: &Case, buffers: BuffersOf) -> Seconds {
        ours::measure(world, by, case, buffers)
    }
}

impl<D: Gpu> OsuDevice for D {
    fn puts(_: &World<Self>, _: By, _: &Case, _: BuffersOf) -> Seconds {
        Err(Misfit::PutsOnGpus.into())
    }
}

/// The whole program.
pub fn main() -> ExitCode {
    match run(&OsuArgs::parse()) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("osu: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The program, as a rank, or as the process that starts the ranks.
///
/// # Errors
///
/// Something that is missing, before there is a rank; an error of a rank.
pub fn run(args: &OsuArgs) -> Result<u8, Box<dyn Error>> {
    let args = args.with_ways();
    args.fit()?;
    let mpi = match args.ways.iter().any(|by| by.is_mpi()) {
        true => Some("the way `mpi`"),
        false => (args.over.transport == To::Mpi).then_some("`--transport mpi`"),
    };
    let windows =
        matches!(args.over.transport, To::Mpi) || mpi.is_some() && args.over.transport == To::Auto;
    args.over.fits(args.ranks as usize, windows)?;
    if let Some(what) = mpi {
        return over_mpi(&args, what, windows);
    }
    match args.device {
        Device::Host => run_on::<Host>(&args),
        Device::Cuda => run_on::<Cuda>(&args),
        Device::Hip => run_on::<Hip>(&args),
    }
}

/// As [`run`], without any MPI.
fn run_on<D: OsuDevice>(args: &OsuArgs) -> Result<u8, Box<dyn Error>> {
    let ranks = args.ranks as usize;
    if std::env::var_os(IS_RANK).is_some() {
        if !args.no_bind {
            bind_launched(ranks);
        }
        let way = args.over.world()?;
        let world = World::<D>::join(way.options)?;
        let over = Transport {
            name: way.label,
            world: &world,
        };
        return measure(args, &[over]);
    }
    // Said once, and not by every rank.
    D::available()?;
    let job = Job::this_program(ranks)?
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

/// In a job of an MPI, or as the process that starts it; `windows`: some ways use windows of that MPI.
#[cfg(feature = "mpi")]
fn over_mpi(args: &OsuArgs, _: &str, windows: bool) -> Result<u8, Box<dyn Error>> {
    use crate::mpi::job;
    if std::env::var_os(IS_RANK).is_none() && !job::is_rank() {
        return job::launch(&args.mpirun, args.ranks as usize, IS_RANK, "1".as_ref());
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
fn measure<D: OsuDevice>(
    args: &OsuArgs,
    transports: &[Transport<'_, D>],
) -> Result<u8, Box<dyn Error>> {
    let Some(first) = transports.first() else {
        return Err("there is nothing to run over".into());
    };
    let (rank, size) = (first.world.rank(), first.world.size());
    if size != args.ranks as usize {
        let asked = args.ranks;
        return Err(format!("this is for {asked} ranks (--ranks), and there are {size}").into());
    }
    for test in &args.tests {
        let sizes = args.sizes(*test);
        // The way, its transport, and its figures.
        let mut blocks = Vec::new();
        for by in args.ways_of(*test) {
            match by.is_mpi() {
                true => blocks.push((by, None, Vec::new())),
                false => blocks.extend(transports.iter().map(|over| (by, Some(over), Vec::new()))),
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
                        Some(over) if test.is_of_puts() => {
                            D::puts(over.world, *by, &case, args.buffers)?
                        }
                        Some(over) => sums::measure(over.world, *by, &case)?,
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
                let over = over.map(|over| &*over.name);
                let text = block(*test, *by, over, (size, &sizes), figures);
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
fn block(
    test: Test,
    by: By,
    over: Option<&str>,
    (ranks, sizes): (usize, &[usize]),
    figures: &[f64],
) -> String {
    let who = match (by, over) {
        (By::St, Some(over)) => format!("tidegate st ({over}): enqueued on a stream"),
        (By::StGraph, Some(over)) => format!("tidegate st-graph ({over}): recorded and replayed"),
        (_, Some(over)) => format!("tidegate inline ({over}): by the calling thread"),
        (_, None) => theirs_name(test, by),
    };
    let puts = "Synchronization: post/start/complete/wait".to_owned();
    let (what, how, head) = match test {
        Test::Latency => ("Put Latency Test", puts, "Latency (us)"),
        Test::Bandwidth => (
            "Put Bandwidth Test, 64 puts an epoch",
            puts,
            "Bandwidth (MB/s)",
        ),
        Test::Allreduce => (
            "Allreduce Latency Test",
            format!("Sums of f64 over {ranks} ranks"),
            "Latency (us)",
        ),
    };
    let mut text = format!("# {what}: {who}\n# {how}\n# {:<8}{head:>18}\n", "Size");
    for (bytes, figure) in sizes.iter().zip(figures) {
        _ = writeln!(text, "{bytes:<10}{figure:>18.2}");
    }
    text.push('\n');
    text
}

fn theirs_name(test: Test, by: By) -> String {
    let how = match (test, by) {
        (Test::Allreduce, _) => "MPI_Allreduce",
        (_, By::MpiCreate) => "MPI_Win_create",
        _ => "MPI_Win_allocate",
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
            (2, &[1, 1024]),
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
    fn sums_of_ranks_as_threads() {
        for ranks in [1, 2, 3, 5] {
            let sums = Case {
                test: Test::Allreduce,
                bytes: 24,
                iterations: 2500, // so that they begin anew
            };
            assert_eq!(sums.figure(2.5e-3), 1.0);
            World::<Host>::local(ranks, |world| {
                for by in [By::St, By::StGraph, By::Inline] {
                    assert!(sums::measure(&world, by, &sums).unwrap() > 0.0);
                }
            });
        }
    }

    #[test]
    fn ways_and_sizes_of_tests() {
        let args = |line: &str| OsuArgs::parse_from(line.split_whitespace()).with_ways();
        let two = args("osu --ranks 4 --tests allreduce --ways st,inline --max 4194304");
        assert_eq!(two.fit(), Ok(()));
        let sizes = two.sizes(Test::Allreduce);
        assert_eq!(
            (sizes[0], sizes[1], sizes.last()),
            (8, 16, Some(&(1 << 20)))
        );
        assert_eq!(two.sizes(Test::Latency).last(), Some(&(4 << 20)));
        let misfit = |line: &str| args(line).fit().unwrap_err();
        assert_eq!(misfit("osu --ranks 4"), Misfit::NotTwo { ranks: 4 });
        assert_eq!(misfit("osu --device cuda"), Misfit::PutsOnGpus);
        let line = "osu --device cuda --tests allreduce --ways st,mpi";
        assert_eq!(misfit(line), Misfit::MpiOnGpus);
        for line in [
            "osu --tests allreduce --ways mpi-create",
            "osu --tests allreduce --ways inline --device cuda",
        ] {
            assert_eq!(misfit(line), Misfit::NoWay { test: "allreduce" });
        }
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

    /// Arguments that do not go together are refused before a rank starts.
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
