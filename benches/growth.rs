//! How a job grows with its ranks: joining, opening a window of two neighbours, and the memory of rank 0.
//!
//! ```sh
//! cargo bench --bench growth -- 8 64 256 512 1024
//! cargo bench --bench growth -- 8 64 256 512 1024 --svg benches/charts/growth-ranks.svg
//! ```
//!
//! All ranks are processes of this machine, and may open 256 descriptors. Each opens windows with the ranks on both
//! sides of it, which it keeps. Then one rank declares a slot that no other rank puts to: the error must be the same text
//! on all ranks.

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Resource, Rlimit, setrlimit};
use tidegate::WorldOptions;
use tidegate::host::prelude::*;
use tidegate_bench::charts::{Growth, large_jobs};
use tidegate_cli::{Job, Output};

/// The variable that makes this program a rank. Its value is the time at which the launcher began, in microseconds.
const BEGAN: &str = "GROWTH_BEGAN";
/// The variable with the file in which rank 0 tells what it has measured.
const TOLD: &str = "GROWTH_TOLD";
/// How many windows are opened while time is measured. One was opened before.
const WINDOWS: u32 = 8;

type Failure = Box<dyn Error>;

fn main() -> ExitCode {
    let done = match std::env::var(BEGAN) {
        Ok(began) => rank(&began),
        Err(_) => launch(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("growth: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a job of each size that the command line names.
fn launch() -> Result<(), Failure> {
    let (mut sizes, mut chart) = (Vec::new(), None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            // `cargo bench` adds this.
            "--bench" => {}
            "--svg" => chart = Some(arguments.next().ok_or("--svg needs a file")?),
            size => sizes.push(size.parse::<usize>()?),
        }
    }
    if sizes.is_empty() {
        sizes = vec![8, 64, 256];
    }
    println!("| ranks | join | open one window | rank 0's memory |\n|---|---|---|---|");
    let folder = tempfile::tempdir()?;
    let told = folder.path().join("told");
    let mut measured = Vec::new();
    for ranks in sizes {
        let outcome = Job::this_program(ranks)?
            .env(BEGAN, now().as_micros().to_string())
            .env(TOLD, &told)
            .output(Output::Inherited)
            .run()?;
        if outcome.exit_code() != 0 {
            return Err(format!("the job of {ranks} ranks failed").into());
        }
        let numbers = std::fs::read_to_string(&told)?;
        let numbers = numbers.split_whitespace().map(str::parse);
        let numbers = numbers.collect::<Result<Vec<f64>, _>>()?;
        let [join, window, memory] = numbers[..] else {
            return Err("rank 0 said something else".into());
        };
        println!(
            "| {ranks} | {:.2} s | {window:.1} ms | {memory:.1} MB |",
            join / 1e3
        );
        measured.push(Growth {
            ranks,
            join,
            window,
        });
    }
    if let Some(path) = chart {
        let processors = std::thread::available_parallelism()?;
        let place = format!("host streams, {processors} processors, 256 descriptors a rank");
        let svg = large_jobs(&measured, &place).ok_or("a chart needs two numbers of ranks")?;
        std::fs::write(path, svg)?;
    }
    Ok(())
}

fn now() -> Duration {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap_or_default()
}

/// A window with a slot from each side. Rank `odd` also has a slot to which nobody puts.
fn window(world: &World, name: &str, odd: Option<usize>) -> SlotWindow<f64> {
    let (left, right) = world.ring();
    let mut window = SlotWindow::new(name);
    window.slot_from(left, 0, 100);
    window.slot_from(right, 1, 100);
    window.slot_to(right, 0);
    window.slot_to(left, 1);
    if odd == Some(world.rank()) {
        window.slot_from(right, 7, 1);
    }
    window
}

/// The limit under which ranks run, as `ulimit -n` sets it.
const DESCRIPTORS: u64 = 256;

fn limit_descriptors() -> Result<(), Failure> {
    let (current, maximum) = (Some(DESCRIPTORS), Some(DESCRIPTORS));
    Ok(setrlimit(Resource::Nofile, Rlimit { current, maximum })?)
}

fn rank(began: &str) -> Result<(), Failure> {
    limit_descriptors()?;
    let world = World::join(WorldOptions::new())?;
    let joined = now().saturating_sub(Duration::from_micros(began.parse()?));
    stream!(let s = world.stream()?);
    let mut windows = vec![window(&world, "first", None).open(&s)?];
    let opens = Instant::now();
    for number in 0..WINDOWS {
        windows.push(window(&world, &format!("window {number}"), None).open(&s)?);
    }
    let each = opens.elapsed() / WINDOWS;
    let memory = resident()? as f64 / 1024.0;
    let refused = window(&world, "odd", Some(world.size() / 2)).open(&s);
    let error = refused
        .err()
        .ok_or("a slot without an origin was not found")?;
    let all = world.all_gather("errors", error.to_string().into_bytes())?;
    if all.iter().any(|other| *other != all[0]) {
        return Err(format!("not all ranks have this error: {error}").into());
    }
    if world.rank() == 0 {
        let [joined, each] = [joined, each].map(|time| time.as_secs_f64() * 1e3);
        std::fs::write(std::env::var(TOLD)?, format!("{joined} {each} {memory}"))?;
    }
    Ok(())
}

/// The memory of this process that is not part of a file, in KiB.
fn resident() -> Result<u64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("RssAnon:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.ok_or("no RssAnon")?.parse()?)
}
