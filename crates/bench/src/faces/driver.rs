//! The benchmark as a program.
//!
//! # Model
//!
//! [`main`] starts this very program again, once for each rank, and waits; the ranks find in their
//! environment that they are ranks. Each runs [`rank`]: several rounds of all variants in turn,
//! after each of which the samples are sent to rank 0, which makes [`Row`]s of them, prints the
//! table and writes the files. The device is chosen in one place; everything below [`run`] is the same for all.
//!
//! Where there are more ranks (that are processes) than processors, each rank is bound to one, by
//! turns. Otherwise the scheduler moves ranks, and what they exchange, about, and some runs take
//! twice as long as others.
//!
//! # Failures
//!
//! Where there is no such device, no rank is started. The exit code is 1 if any row is a failed one. A rank that dies ends the job: rank 0 shows what
//! it has got, with the rank that did not report.

use super::device::{FacesDevice, Shape};
use super::params::{Params, Variant};
use super::variants::{self, SetupOn};
use super::verify::Verifier;
use crate::cli::{Device, FacesArgs, RanksAs};
use crate::progress::Progress;
use crate::report::{self, About};
use crate::results::{RankSample, Row, Setting, exit_code, json, table};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::error::Error;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use tidegate_boot::launch::{Job, Output};
use tidegate_core::World;
use tidegate_cuda::Cuda;
use tidegate_host::Host;

/// Set for the processes that are ranks.
const IS_RANK: &str = "TIDEGATE_FACES_RANK";

/// What the driver of a CUDA job should find in its environment, unless it is set: as many hardware queues as there can be, so that no
/// stream is behind another's wait, and code that is loaded when a module is.
const CUDA_ENVIRONMENT: [(&str, &str); 2] = [
    ("CUDA_DEVICE_MAX_CONNECTIONS", "32"),
    ("CUDA_MODULE_LOADING", "EAGER"),
];

/// The whole of the program.
pub fn main() -> ExitCode {
    let args = FacesArgs::read();
    let result = match args.device {
        Device::Host => run::<Host>(&args),
        Device::Cuda => run::<Cuda>(&args),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("faces: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The program on one kind of device: as a rank, or as the one that starts the ranks.
///
/// # Errors
///
/// What is wrong with the device, before there is a rank; what a rank could not do.
pub fn run<D: FacesDevice>(args: &FacesArgs) -> Result<u8, Box<dyn Error>> {
    if std::env::var_os(IS_RANK).is_some() {
        if !args.no_bind {
            bind(args.grid.ranks());
        }
        return present(args, &World::<D>::init()?);
    }
    // Said once, and not by every rank.
    D::available()?;
    match args.ranks_as {
        RanksAs::Processes => launch(args),
        RanksAs::Threads => World::<D>::local(args.grid.ranks(), |world| {
            present(args, &world).map_err(|error| error.to_string())
        })
        .into_iter()
        .try_fold(0, |code, result| Ok(code.max(result?))),
    }
}

/// Binds this process to one of the processors that it may use, if there are fewer of them than
/// ranks; all its threads to come are bound with it.
///
/// Best effort: without it, all is the same but the times.
fn bind(ranks: usize) {
    let rank = std::env::var("RANK")
        .ok()
        .and_then(|rank| rank.parse::<usize>().ok());
    let (Some(rank), Ok(usable)) = (rank, sched_getaffinity(None)) else {
        return;
    };
    let usable: Vec<usize> = (0..CpuSet::MAX_CPU)
        .filter(|cpu| usable.is_set(*cpu))
        .collect();
    if !usable.is_empty() && usable.len() < ranks {
        let mut set = CpuSet::new();
        set.set(usable[rank % usable.len()]);
        _ = sched_setaffinity(None, &set);
    }
}

/// Starts the ranks, which print for themselves.
fn launch(args: &FacesArgs) -> Result<u8, Box<dyn Error>> {
    let mut job = Job::this_program(args.grid.ranks())?
        .args(std::env::args_os().skip(1))
        .env(IS_RANK, "1")
        .output(Output::Inherited)
        .forward_signals(true);
    if args.device == Device::Cuda {
        for (name, value) in CUDA_ENVIRONMENT {
            if std::env::var_os(name).is_none() {
                job = job.env(name, value);
            }
        }
    }
    let outcome = job.run()?;
    if let Some(rank) = outcome.first_failure
        && let Some(ended) = outcome.ranks.get(rank)
        && ended.status.code() != Some(1)
    {
        eprintln!("faces: rank {rank} ended with {}", ended.status);
    }
    Ok(outcome.exit_code())
}

/// One rank of the program: on rank 0 with all that is printed and written.
fn present<D: FacesDevice>(args: &FacesArgs, world: &World<D>) -> Result<u8, Box<dyn Error>> {
    let params = args.params()?;
    let steps = u64::from(args.rounds) * params.variants.len() as u64 * runs(&params);
    let progress = if world.rank() == 0 {
        Progress::new(steps)
    } else {
        Progress::hidden(steps)
    };
    let setup = SetupOn {
        world,
        params: &params,
        verifier: &Verifier::new(&params, world.rank())?,
        omit: None,
    };
    let rows = rank(&setup, args.rounds, &progress)?;
    if world.rank() != 0 {
        return Ok(0);
    }
    drop(progress);
    // Not `print!`: it panics when nobody reads any more.
    let mut out = std::io::stdout().lock();
    write!(out, "{}", table::table(&rows))?;
    if let Some(path) = &args.json {
        json::write(path, &rows)?;
    }
    let path = report::write(&args.report, &rows, &About::detect(args.command_line()))?;
    writeln!(out, "report: {}", path.display())?;
    Ok(exit_code(&rows))
}

/// How many runs one measurement has.
fn runs(params: &Params) -> u64 {
    params.counts.nk * (params.counts.nj + 1)
}

/// One rank's part of all measurements: `rounds` times all variants in turn; collective. The rows
/// (on every rank).
///
/// # Errors
///
/// A grid that does not fit the job. What becomes of the messages is no error: the rows say so.
pub fn rank<D: FacesDevice>(
    setup: &SetupOn<'_, D>,
    rounds: u32,
    progress: &Progress,
) -> Result<Vec<Row>, Box<dyn Error>> {
    let (world, params) = (setup.world, setup.params);
    if world.size() != params.grid.ranks() {
        let (size, grid) = (world.size(), params.grid);
        return Err(format!("the job has {size} ranks, but the grid is {grid}").into());
    }
    // Before there is a stream: code cannot be loaded behind a wait.
    let shape = Shape::new(setup.verifier.geometry().clone(), params.init, setup.omit);
    let kernels = D::kernels(world, Arc::new(shape))?;
    let mut samples = vec![Vec::new(); params.variants.len()];
    'rounds: for _ in 0..rounds {
        for (variant, samples) in params.variants.iter().zip(&mut samples) {
            progress.say(variant.name());
            let sample = variants::run(setup, &kernels, *variant, &mut || progress.step())
                .unwrap_or_else(|error| RankSample::failed(world.rank(), error.to_string()));
            match gather(world, &sample) {
                Ok(all) => samples.push(all),
                Err(error) => {
                    progress.note(&format!("faces: rank {}: {error}", world.rank()));
                    samples.push(vec![sample]);
                    break 'rounds;
                }
            }
        }
    }
    let device = world.device().label();
    let row = |(variant, samples): (&Variant, &Vec<Vec<RankSample>>)| {
        let setting = Setting::new(params, &device, "mapped");
        Row::new(variant.name(), setting, samples)
    };
    Ok(params.variants.iter().zip(&samples).map(row).collect())
}

/// Everybody's samples; collective.
fn gather<D: FacesDevice>(
    world: &World<D>,
    sample: &RankSample,
) -> Result<Vec<RankSample>, Box<dyn Error>> {
    let all = world.gather("faces sample", postcard::to_stdvec(sample)?)?;
    let samples = all.iter().map(|bytes| postcard::from_bytes(bytes));
    Ok(samples.collect::<Result<_, _>>()?)
}
