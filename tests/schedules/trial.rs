//! Runs one job on the library, under a watchdog, and judges it.

use std::io::Write as _;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use proptest::test_runner::{Config, FileFailurePersistence, RngAlgorithm, TestRng, TestRunner};
use tidegate::generic::World;
use tidegate::{Route, WorldOptions};
use tidegate_loopback::{Loopback, Options};

use super::bag::Adjust;
use super::device::Bench;
use super::job::{Item, Job};
use super::mutants::Mutant;
use super::{oracle, rank};

/// How long a case may take. It takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// How many cases are run: `usual`, unless `TIDEGATE_SCHEDULES` says otherwise.
pub(crate) fn cases(usual: u32) -> u32 {
    number("TIDEGATE_SCHEDULES").map_or(usual, |cases| cases as u32)
}

/// A seed, which is the same each time unless `TIDEGATE_SCHEDULES_SEED` is set. `which` distinguishes several seeds.
pub(crate) fn seed(which: u64) -> [u8; 32] {
    let mut seed = [0x5e; 32];
    seed[..8].copy_from_slice(&number("TIDEGATE_SCHEDULES_SEED").unwrap_or(0).to_le_bytes());
    if which > 0 {
        seed[8..16].copy_from_slice(&which.to_le_bytes());
    }
    seed
}

/// A runner whose cases are the same each time, for the test program with this source.
pub(crate) fn runner(usual: u32, source: &'static str) -> TestRunner {
    let config = Config {
        cases: cases(usual),
        max_shrink_iters: 2000,
        max_shrink_time: 120_000,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        source_file: Some(source),
        ..Config::default()
    };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed(0)))
}

/// Runs the programs, which may differ from the job's own, and compares with the right results of the job.
///
/// # Errors
///
/// The first difference, or the error of a rank.
pub(crate) fn run<D: Bench>(
    job: &Job,
    programs: &[Vec<Item>],
    adjust: &Adjust,
) -> Result<(), String> {
    let truth =
        oracle::run(job).map_err(|stuck| format!("the generator made a deadlock: {stuck}"))?;
    let results = guarded(job, || {
        let options = |_| match adjust.nic {
            None => WorldOptions::new(),
            Some(nic) => {
                // The ranks are on one node, and divide the budget.
                let options = Options::default().budget(nic.slots * job.ranks);
                let options = if nic.greedy {
                    options.greedy()
                } else {
                    options
                };
                WorldOptions::new()
                    .nic(Loopback::new(options))
                    .route(Route::Nic)
            }
        };
        World::<D>::local_with(job.ranks, options, |world| {
            let program = &programs[world.rank()];
            rank::run(job, program, world, adjust).map_err(|error| error.to_string())
        })
    });
    let mut real = Vec::new();
    for (rank, result) in results.into_iter().enumerate() {
        real.push(result.map_err(|error| format!("rank {rank} failed: {error}"))?);
    }
    truth.judge(job, &real)
}

/// How a mutant's programs are noticed, if they are: by a difference, or because no rank can go on.
///
/// # Panics
///
/// If the library refuses a program that does not hang.
pub(crate) fn caught<D: Bench>(
    mutant: Mutant,
    job: &Job,
    programs: Vec<Vec<Item>>,
    adjust: &Adjust,
) -> Option<String> {
    let caught = run::<D>(job, &programs, adjust).err()?;
    if !caught.contains("failed") {
        return Some(caught);
    }
    // The library can only notice programs that hang.
    assert!(mutant.may_hang(), "{mutant:?}: {caught}");
    // A wait may take too long because of the machine. It is the mutant's effect if no rank could ever have gone on.
    let mutated = Job {
        programs,
        ..job.clone()
    };
    oracle::run(&mutated).is_err().then_some(caught)
}

/// Prints the schedule if the run does not end soon, since it may hang.
pub(crate) fn guarded<R>(job: &Job, run: impl FnOnce() -> R) -> R {
    std::thread::scope(|scope| {
        let (done, over) = channel::<()>();
        scope.spawn(move || {
            if over.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                // `eprintln!` would be kept by the test harness.
                let text = format!("this schedule has not ended for {PATIENCE:?}: {job:#?}\n");
                let _ = std::io::stderr().write_all(text.as_bytes());
            }
        });
        let result = run();
        drop(done);
        result
    })
}
