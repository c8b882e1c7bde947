//! Random schedules on a GPU: the jobs of `tests/host/random.rs`, with ranks as threads, compared with the same oracle.
//!
//! `TIDEGATE_SCHEDULES=5000` runs this many; `TIDEGATE_SCHEDULES_SEED=n` changes them. A job has up to 15 streams, all
//! of which may wait. Jobs that need more than a GPU admits (`TIDEGATE_GPU_WAITING_STREAMS`, its hardware queues) are
//! left out, and counted.

use std::cell::{Cell, RefCell};
use std::io::Write as _;

use crate::vendor::{self, prelude::Gpu};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestCaseError;

use crate::schedules::bag::Adjust;
use crate::schedules::census::{ALL, Census};
use crate::schedules::genes::genes;
use crate::schedules::job::Job;
use crate::schedules::mutants::Mutant;
use crate::schedules::{plan::plan, trial};

#[path = "../schedules/gpu.rs"]
mod gpu;

/// How many cases are run by default.
const CASES: u32 = 200;

/// The numbers of streams that GPUs admit.
struct Limits {
    gpus: usize,
    /// Streams of a GPU that wait.
    waiting: usize,
    /// Streams of a GPU in all.
    open: usize,
}

impl Limits {
    fn of_this_process() -> Self {
        let number = |name: &str, default: usize| {
            let value = std::env::var(name).ok();
            value
                .and_then(|value| value.trim().parse().ok())
                .unwrap_or(default)
        };
        Limits {
            gpus: Gpu::count().unwrap(),
            waiting: number("TIDEGATE_GPU_WAITING_STREAMS", 12),
            // Two hardware queues are for the device's own streams.
            open: vendor::queues() - 2,
        }
    }

    /// Ranks take the GPUs in turn. Each has three streams, of which it uses as many as it has lanes.
    fn admit(&self, job: &Job) -> bool {
        (0..self.gpus).all(|gpu| {
            let ranks = || job.lanes.iter().skip(gpu).step_by(self.gpus);
            let waiting: usize = ranks().map(Vec::len).sum();
            waiting <= self.waiting && ranks().count() * 3 <= self.open
        })
    }
}

/// Writes to standard error directly, since the harness would hide `eprintln!` of a test that passes.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn schedules_agree_with_the_oracle() {
    let limits = Limits::of_this_process();
    let (run, left_out) = (Cell::new(0), Cell::new(0));
    let census = RefCell::new(Census::default());
    let count = |cell: &Cell<u32>| cell.set(cell.get() + 1);
    let mut runner = trial::runner(CASES, file!());
    let result = runner.run(&genes(), |genes| {
        let job = plan(&genes);
        if !limits.admit(&job) {
            count(&left_out);
            return Ok(());
        }
        count(&run);
        census.borrow_mut().job(&job);
        trial::run::<Gpu>(&job, &job.programs, &Adjust::default()).map_err(TestCaseError::fail)
    });
    let (run, left_out) = (run.get(), left_out.get());
    say(&format!(
        "schedules: {run} were run, {left_out} left out, which have more streams than {} GPUs admit ({} waiting, {} open on each)",
        limits.gpus, limits.waiting, limits.open
    ));
    let census = census.into_inner();
    let missing = |what: &&&str| !census.0.contains_key(**what);
    let missing: Vec<_> = ALL.iter().filter(missing).collect();
    say(&format!("schedules: in none of them: {missing:?}"));
    if let Err(error) = result {
        panic!("{error}");
    }
    assert!(
        run > left_out,
        "most schedules were left out: the GPUs have too few hardware queues"
    );
}

/// Each kind of error is noticed on a GPU, too. Otherwise the comparison might compare nothing.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn mutants_are_caught() {
    let limits = Limits::of_this_process();
    for mutant in Mutant::ALL {
        let mut runner = trial::runner(CASES, file!());
        let mut tried = 0;
        let caught = (0..2 * CASES).find_map(|case| {
            let tree = genes()
                .new_tree(&mut runner)
                .expect("genes come by themselves");
            let job = plan(&tree.current());
            if !limits.admit(&job) {
                return None;
            }
            let (programs, adjust) = mutant.apply(&job, case as usize * 7)?;
            tried += 1;
            trial::caught::<Gpu>(mutant, &job, programs, &adjust)
        });
        let caught = caught.unwrap_or_else(|| panic!("{mutant:?} was not caught in {tried} tries"));
        say(&format!("{mutant:?}, try {tried}: {caught}"));
    }
}
