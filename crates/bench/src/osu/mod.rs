//! Latency and bandwidth of puts, as MPI people measure them. [`collectives`](crate::collectives) has sums and the
//! rest.
//!
//! # Model
//!
//! Two ranks, active-target epochs (post, start, put, complete, wait), messages of 1 B to 4 MiB:
//!
//! - *latency*: a put to and fro, each an epoch of its own; half the time of a round trip;
//! - *bandwidth*: epochs of 64 puts one way; bytes in a second by the origin's clock, in MB (10^6 bytes).
//!
//! Several *ways* do the same: this library's stream-triggered epochs, enqueued (`st`), replayed (`st-graph`), or done
//! by the calling thread (`inline`); and, with the feature `mpi`, the calls of an MPI (`mpi`, `mpi-create`:
//! MPI_Win_allocate, MPI_Win_create). For each size, all ways take turns several times, and the median is printed. The
//! output is a block for each way, in two columns. All ways put to the same amount of memory, each message to a place
//! of its own: slots have one buffer, as windows of an MPI have (else `--buffers double`).
//!
//! Ways of this library run over a world. In a job of an MPI they run over mapped memory and over windows of that MPI,
//! one after the other, unless `--transport` names one. Streams over windows call MPI from threads of their own, so MPI
//! is then initialised for MPI_THREAD_MULTIPLE, which may slow the MPI's own ways down. `--transport shm` leaves
//! windows out, and asks for MPI_THREAD_FUNNELED.
//!
//! # Failures
//!
//! Arguments that do not go together ([`Misfit`], [`Unfit`](crate::transport::Unfit)), and a missing MPI, are refused
//! before there is a rank. After every measurement the received data is compared with the data that was sent: a
//! difference ends the program with code 1.

mod args;
mod case;
mod ours;
#[cfg(feature = "mpi")]
mod theirs;

pub use args::{By, Misfit, OsuArgs, Test};

#[cfg(not(feature = "mpi"))]
use crate::mpi::NoMpi;
use crate::ranks::{Done, Ranks, Transport};
use crate::results::stats::median;
use crate::transport::Transport as To;
use case::Case;
use clap::Parser as _;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;
use tidegate_host::Host;

/// Set for the processes that are ranks.
const IS_RANK: &str = "TIDEGATE_OSU_RANK";
/// There are two: one puts, or both by turns.
const RANKS: usize = 2;
/// Messages from this size on are sent less often.
const LARGE: usize = 8192 + 1;

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
pub fn run(args: &OsuArgs) -> Done {
    let args = args.with_ways();
    args.fit()?;
    let mpi = match args.ways.iter().any(|by| by.is_mpi()) {
        true => Some("the way `mpi`"),
        false => (args.start.over.transport == To::Mpi).then_some("`--transport mpi`"),
    };
    let windows = matches!(args.start.over.transport, To::Mpi)
        || mpi.is_some() && args.start.over.transport == To::Auto;
    args.start.over.fits(RANKS, windows)?;
    match mpi {
        Some(what) => over_mpi(&args, what, windows),
        None => ranks(&args).run::<Host>(|options| options, |worlds| measure(&args, worlds)),
    }
}

fn ranks(args: &OsuArgs) -> Ranks<'_> {
    Ranks {
        is_rank: IS_RANK,
        ranks: RANKS,
        start: &args.start,
    }
}

#[cfg(not(feature = "mpi"))]
fn over_mpi(_: &OsuArgs, what: &str, _: bool) -> Done {
    Err(NoMpi {
        what: what.into(),
        bench: "osu",
        example: "--ways st,mpi",
    }
    .into())
}

/// In a job of an MPI, or as the process that starts it; `windows`: some ways use windows of that MPI.
#[cfg(feature = "mpi")]
fn over_mpi(args: &OsuArgs, _: &str, windows: bool) -> Done {
    ranks(args).run_over_mpi(windows, |worlds| {
        measure(&theirs::without_refused(args)?, worlds)
    })
}

/// One rank's part of all measurements; rank 0 prints them.
fn measure(args: &OsuArgs, transports: &[Transport<'_, Host>]) -> Done {
    let first = transports.first().ok_or("there is nothing to run over")?;
    let (rank, sizes) = (first.world.rank(), args.sizes());
    for test in &args.tests {
        // The way, its transport, and its figures.
        let mut blocks = Vec::new();
        for by in args.ways.iter().copied() {
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
                let over = over.map(|over| &*over.name);
                let text = block(*test, *by, over, &sizes, figures);
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
    let how = "Synchronization: post/start/complete/wait";
    let mut text = format!("# {what}: {who}\n# {how}\n# {:<8}{head:>18}\n", "Size");
    for (bytes, figure) in sizes.iter().zip(figures) {
        _ = writeln!(text, "{bytes:<10}{figure:>18.2}");
    }
    text.push('\n');
    text
}

fn theirs_name(by: By) -> String {
    let how = match by {
        By::MpiCreate => "MPI_Win_create",
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
    use crate::cli::BuffersOf;
    use crate::transport::Unfit;
    use tidegate_core::World;

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

    #[test]
    fn sizes_that_do_not_exist() {
        let fit = |line: &str| OsuArgs::parse_from(line.split_whitespace()).fit();
        assert_eq!(fit("osu --min 16 --max 8"), Err(Misfit::Sizes));
        assert_eq!(fit("osu --min 8 --max 8"), Ok(()));
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
