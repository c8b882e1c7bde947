//! The benchmarks as a program.
//!
//! # Model
//!
//! [`main`] starts this very program again, once for each rank, and waits; the ranks find in their environment that
//! they are ranks. Each does its part of [Faces](crate::faces), or of the [`exchange`] alone, or of a pair; rank 0 leaves
//! the rows in a file for the first process. When all ranks have ended, that process runs the [peers](crate::peers) that
//! were asked for, prints the table and writes the files. With `--timeline`, rank 0 writes the [timeline] instead, and
//! there are no rows. The device is chosen in one place; everything below [`run`] is the same for all devices.
//!
//! If there are more processes than processors, each rank is bound to one processor, by turns. Otherwise the scheduler
//! moves ranks and their data, and some runs take twice as long as others.
//!
//! If a variant or the transport uses [MPI](crate::mpi), an MPI's launcher starts the ranks instead.
//!
//! # Failures
//!
//! If the device is missing, or peers are neither found nor can be built, no rank is started. The exit code is 1 if any row
//! failed. If a rank dies, the job ends: the rows have the samples that rank 0 has got, and name the rank that did not
//! report. Without rows of ours no peer is run.

use crate::cli::{Device, FacesArgs, RanksAs, command_line};
use crate::exchange;
use crate::faces::device::FacesDevice;
use crate::faces::driver;
use crate::faces::timeline;
use crate::faces::variants::SetupOn;
use crate::faces::verify::Verifier;
#[cfg(not(feature = "mpi"))]
use crate::mpi::NoMpi;
use crate::peers::Peers;
use crate::progress::Progress;
use crate::report::{self, About};
use crate::results::meaning::{self, counted};
use crate::results::{Row, comparison, exit_code, files, table};
use crate::rounds::bind_launched;
#[cfg(feature = "mpi")]
use crate::transport::Transport;
use crate::transport::Way;
use crate::{charts, throttling};
use std::error::Error;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use tidegate_cli::{Job, Output};
use tidegate_core::World;
use tidegate_cuda::Cuda;
use tidegate_hal::slots::TriggerSlots;
use tidegate_hip::Hip;
use tidegate_host::Host;

/// Set for the processes that are ranks: the file that rank 0 leaves the rows in.
const IS_RANK: &str = "TIDEGATE_FACES_ROWS";

/// The whole program.
pub fn main() -> ExitCode {
    let args = FacesArgs::read();
    let result = match args.device {
        Device::Host => run::<Host>(&args),
        Device::Cuda => run::<Cuda>(&args),
        Device::Hip => run::<Hip>(&args),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("faces: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The program on one kind of device: as a rank, or as the process that starts the ranks.
///
/// # Errors
///
/// An error of the device, before there is a rank; an error of a rank.
pub fn run<D: FacesDevice>(args: &FacesArgs) -> Result<u8, Box<dyn Error>> {
    if let Some(what) = args.over_mpi() {
        return over_mpi(args, what);
    }
    if let Some(rows) = std::env::var_os(IS_RANK) {
        if !args.no_bind {
            bind_launched(args.ranks());
        }
        let Way {
            options,
            label,
            slots,
        } = args.over.world()?;
        let world = World::<D>::join(options)?;
        if let Some(path) = &args.timeline {
            return record(args, &world, path);
        }
        let mut measured = measure(args, &world, slots.as_deref())?;
        if world.rank() != 0 {
            return Ok(0);
        }
        for row in &mut measured {
            row.setting.transport.clone_from(&label);
        }
        files::write_rows(Path::new(&rows), &measured)?;
        return Ok(exit_code(&measured));
    }
    // Reported once, and not by every rank.
    D::available()?;
    if let Some(path) = &args.timeline {
        let code = match args.ranks_as {
            RanksAs::Processes => launch(args)?.0,
            RanksAs::Threads => {
                let ranks = World::<D>::local(args.ranks(), |world| {
                    record(args, &world, path).map_err(|error| error.to_string())
                });
                ranks.into_iter().collect::<Result<Vec<_>, String>>()?;
                0
            }
        };
        if code == 0 {
            writeln!(std::io::stdout(), "timeline: {}", path.display())?;
        }
        return Ok(code);
    }
    let peers = match args.peers.is_empty() {
        true => None,
        false => Some(Peers::find(args)?),
    };
    let (code, mut rows) = match args.ranks_as {
        RanksAs::Processes => launch(args)?,
        RanksAs::Threads => (0, threads::<D>(args)?),
    };
    let Some(ours) = rows.first().map(|row| row.setting.clone()) else {
        return Ok(code.max(1));
    };
    if let Some(peers) = peers {
        let mut note = |line: &str| eprintln!("faces: {line}");
        rows.extend(peers.run(args, &ours, &mut note));
    }
    present(args, &rows)?;
    Ok(code.max(exit_code(&rows)))
}

#[cfg(not(feature = "mpi"))]
fn over_mpi(_: &FacesArgs, what: String) -> Result<u8, Box<dyn Error>> {
    Err(NoMpi {
        what,
        bench: "faces",
        example: "--variants st,mpi-rma",
    }
    .into())
}

/// Something goes over MPI, on the host: the program as an MPI job, or as the one that starts it.
#[cfg(feature = "mpi")]
fn over_mpi(args: &FacesArgs, _: String) -> Result<u8, Box<dyn Error>> {
    use crate::mpi::calls::{How, library};
    use crate::mpi::job::{self, Job};
    let rows_to = std::env::var_os(IS_RANK);
    if rows_to.is_none() && !job::is_rank() {
        let file = tempfile::NamedTempFile::new()?;
        let code = job::launch(&args.mpirun, args.ranks(), IS_RANK, file.path().as_os_str())?;
        if let Some(path) = &args.timeline {
            if code == 0 {
                writeln!(std::io::stdout(), "timeline: {}", path.display())?;
            }
            return Ok(code);
        }
        let rows = files::read_rows(file.path())?;
        if rows.is_empty() {
            return Ok(code.max(1));
        }
        present(args, &rows)?;
        return Ok(code.max(exit_code(&rows)));
    }
    let how = How {
        window: args.mpi_window,
        polls: args.mpi_polls,
    };
    how.choose();
    let windows = args.over.transport == Transport::Mpi;
    let job = Job::begin(!args.no_bind, windows)?;
    let (world, label): (World<Host>, _) = if windows {
        let (options, label) = args.over.windows();
        (job.world_over_windows(&options)?, label)
    } else {
        let Way { options, label, .. } = args.over.world()?;
        (job.world(options)?, label)
    };
    if let Some(path) = &args.timeline {
        return record(args, &world, path);
    }
    let mut rows = measure(args, &world, None)?;
    if world.rank() != 0 {
        return Ok(0);
    }
    let theirs = |row: &Row| {
        let mut variants = args.variants.iter();
        variants.any(|variant| variant.is_mpi() && variant.name() == row.variant)
    };
    for row in &mut rows {
        row.setting.transport = match theirs(row) {
            true => library(),
            false => label.clone(),
        };
    }
    match rows_to {
        Some(file) => files::write_rows(Path::new(&file), &rows)?,
        None => present(args, &rows)?,
    }
    Ok(exit_code(&rows))
}

/// The ranks as threads: the rows of the first.
fn threads<D: FacesDevice>(args: &FacesArgs) -> Result<Vec<Row>, Box<dyn Error>> {
    let ranks = World::<D>::local(args.ranks(), |world| {
        measure(args, &world, None).map_err(|error| error.to_string())
    });
    let rows: Result<Vec<_>, String> = ranks.into_iter().collect();
    Ok(rows?.into_iter().next().unwrap_or_default())
}

/// Starts the ranks; the code that they ended with, and the rows that rank 0 has left, if it came to that.
fn launch(args: &FacesArgs) -> Result<(u8, Vec<Row>), Box<dyn Error>> {
    let file = tempfile::NamedTempFile::new()?;
    let mut job = Job::this_program(args.ranks())?
        .args(std::env::args_os().skip(1))
        .env(IS_RANK, file.path())
        .output(Output::Inherited)
        .forward_signals(true);
    if args.device == Device::Cuda {
        for (name, value) in tidegate_cuda::ENVIRONMENT {
            job = job.default_env(name, value);
        }
    }
    let outcome = args.over.job(job)?.run()?;
    if let Some(rank) = outcome.first_failure
        && let Some(ended) = outcome.ranks.get(rank)
        && ended.status.code() != Some(1)
    {
        eprintln!("faces: rank {rank} ended with {}", ended.status);
    }
    Ok((outcome.exit_code(), files::read_rows(file.path())?))
}

/// Prints the table, and writes the files.
fn present(args: &FacesArgs, rows: &[Row]) -> Result<(), Box<dyn Error>> {
    // Not `print!`: it panics if the reader has gone.
    let mut out = std::io::stdout().lock();
    let about = about(args);
    match args.peers.is_empty() {
        true if args.throttling => write!(out, "{}", throttling::table(rows))?,
        true => {
            let legend = meaning::legend(rows, about.processors.unwrap_or(usize::MAX));
            write!(out, "{}{legend}", table::table(rows))?;
        }
        false => write!(out, "{}", comparison::comparison(rows))?,
    }
    if let Some(path) = &args.json {
        files::write_rows(path, rows)?;
    }
    if args.throttling {
        let place = format!("{}, {}", about.processor, about.date);
        for variant in args.unchecked().variants {
            let path = args.report.join(format!("throttling-{variant}.svg"));
            if let Some(svg) = charts::throttling(rows, variant.name(), &place) {
                files::write(&path, &svg)?;
                writeln!(out, "chart: {}", std::path::absolute(path)?.display())?;
            }
        }
        return Ok(());
    }
    write!(out, "{}", table::against_mpi(rows))?;
    // Rows of sizes that differ by orders of magnitude are no bar chart.
    if !args.pair {
        let path = report::write(&args.report, rows, &about)?;
        writeln!(out, "report: {}", std::path::absolute(path)?.display())?;
    }
    Ok(())
}

/// The circumstances of this run.
fn about(args: &FacesArgs) -> About {
    let over_mpi = args.over_mpi().is_some();
    let ranks = match args.ranks_as {
        _ if over_mpi => "processes that an MPI has started",
        RanksAs::Processes => "a process each",
        RanksAs::Threads => "threads of one process",
    };
    // Ranks that an MPI starts may be on other machines, and GPUs do the work of theirs.
    let all_here = args.device == Device::Host && !over_mpi;
    let processors = std::thread::available_parallelism().map(usize::from).ok();
    let processors = processors.filter(|_| all_here);
    let bound = !args.no_bind && args.ranks_as == RanksAs::Processes;
    let place = match (processors, args.device) {
        (_, Device::Cuda | Device::Hip) => "; kernels run on GPUs".to_owned(),
        (Some(count), _) if args.ranks() > count && bound => {
            format!("; bound by turns to {}", counted(count, "processor"))
        }
        (Some(count), _) => format!(
            "; the system's scheduler places them on {}",
            counted(count, "processor")
        ),
        (None, _) => String::new(),
    };
    About {
        processors,
        ..About::detect(
            command_line(std::env::args().skip(1), over_mpi),
            format!("{}, {ranks}{place}", counted(args.ranks(), "rank")),
        )
    }
}

/// One rank's part of a timeline; rank 0 writes it.
fn record<D: FacesDevice>(
    args: &FacesArgs,
    world: &World<D>,
    path: &Path,
) -> Result<u8, Box<dyn Error>> {
    let params = args.params()?;
    let setup = SetupOn {
        world,
        params: &params,
        verifier: &Verifier::new(&params, world.rank())?,
        throttle: args.over.throttle.into(),
        omit: None,
    };
    let spans = driver::timelines(&setup)?;
    if world.rank() == 0 {
        timeline::write(path, &spans)?;
    }
    Ok(0)
}

/// One rank's part of the benchmark.
fn measure<D: FacesDevice>(
    args: &FacesArgs,
    world: &World<D>,
    slots: Option<&TriggerSlots>,
) -> Result<Vec<Row>, Box<dyn Error>> {
    if world.size() != args.ranks() {
        let (size, ranks) = (world.size(), args.ranks());
        return Err(format!("the job has {size} ranks, and {ranks} are asked for").into());
    }
    let bar = |runs: u64| match world.rank() {
        0 => Progress::new(u64::from(args.rounds) * runs),
        _ => Progress::hidden(0),
    };
    if args.exchange || args.pair {
        let (rank, device) = (world.rank(), world.device().label());
        let cases = match args.pair {
            true => exchange::pairs(args, rank, &device)?,
            false => exchange::exchanges(args, rank, &device)?,
        };
        let runs = cases
            .iter()
            .map(|case| case.counts.nk * (case.counts.nj + 1));
        return exchange::run(world, &cases, args.rounds, &bar(runs.sum()));
    }
    let params = args.params()?;
    let setup = SetupOn {
        world,
        params: &params,
        verifier: &Verifier::new(&params, world.rank())?,
        throttle: args.over.throttle.into(),
        omit: None,
    };
    if args.throttling {
        let slots = slots.ok_or("--throttling goes with a NIC, and ranks that are processes")?;
        let bar = bar(throttling::runs(&params, &args.budgets));
        return throttling::rank(&setup, &args.budgets, slots, args.rounds, &bar);
    }
    let runs = params.variants.len() as u64 * driver::runs(&params);
    driver::rank(&setup, args.rounds, &bar(runs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::BenchDevice as _;
    use tidegate_hal::device::DeviceError;

    /// Without the feature, MPI is missed before a rank starts.
    #[cfg(not(feature = "mpi"))]
    #[test]
    fn mpi_is_missed() {
        for (option, value) in [("--variants", "st,mpi-rma"), ("--transport", "mpi")] {
            let args = FacesArgs::try_from_iter(["faces", option, value]).unwrap();
            let error = run::<Host>(&args).unwrap_err().downcast::<NoMpi>().unwrap();
            assert!(error.to_string().contains("--features mpi"), "{error}");
            assert!(error.what.contains("mpi"), "{error}");
        }
    }

    /// Where there is a driver, this says nothing.
    #[test]
    fn a_device_that_is_missing_is_told_before_ranks_start() {
        let args = FacesArgs::try_from_iter(["faces", "--device", "cuda"]).unwrap();
        let Err(missing) = Cuda::available() else {
            return;
        };
        let error = run::<Cuda>(&args).unwrap_err();
        let error = error
            .downcast::<DeviceError>()
            .expect("it is the typed one");
        assert!(matches!(
            *error,
            DeviceError::Missing { device: "cuda", .. }
        ));
        assert_eq!(error.to_string(), missing.to_string());
        assert!(
            error
                .to_string()
                .starts_with("there is no cuda device here")
        );
    }
}
