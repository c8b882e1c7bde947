//! Random schedules: the jobs of `tests/host/random.rs`, with ranks that are processes, over windows of MPI.
//!
//! # Model
//!
//! All ranks make the same cases, from the same seed. Each runs its own program of a case, sends its results to the
//! others, and judges all ranks by the oracle. So all come to one verdict, and go on to the same case, or to the same
//! simpler one.
//!
//! `TIDEGATE_SCHEDULES=5000` runs this many cases in each mode; `TIDEGATE_SCHEDULES_SEED=n` changes the cases.
//!
//! # Failure
//!
//! Rank 0 reports the first error, and the simplest case that has it. If a case does not end, the process ends.

use std::cell::Cell;
use std::time::Duration;

use mpi::traits::*;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use tidegate::Op;
use tidegate::host::World;

use crate::rank::{Job, MODES, Mode};
use crate::schedules::bag::Adjust;
use crate::schedules::genes::{Genes, genes};
use crate::schedules::job::{Act, Item, Job as Plan, Verb, What};
use crate::schedules::mutants::Mutant;
use crate::schedules::oracle::{self, Outcome};
use crate::schedules::value::Ty;
use crate::schedules::{plan::plan, rank, trial};

/// How many cases are run in each mode by default.
const CASES: u32 = 24;
/// How many tries there are for a mutant.
const TRIES: u32 = 200;

/// Long enough for all cases. Each takes milliseconds, or seconds if there are few processors.
pub(crate) fn limit() -> Duration {
    let cases = trial::cases(CASES) * MODES.len() as u32;
    Duration::from_secs(60 + 2 * u64::from(cases))
}

fn runner(which: u64, ranks: usize) -> TestRunner {
    let config = Config {
        cases: trial::cases(CASES),
        max_shrink_iters: 300,
        // A time limit would end the search at a different case on each rank.
        max_shrink_time: 0,
        failure_persistence: None,
        ..Config::default()
    };
    let seed = trial::seed(which << 8 | ranks as u64);
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed))
}

/// The operations of a job that MPI cannot do, or does wrongly.
#[derive(Clone, Copy)]
struct Spared {
    swaps: bool,
    reductions: bool,
}

impl Spared {
    fn of(job: &Job, mode: Mode) -> Self {
        Spared {
            swaps: !job.swaps(mode),
            // If all ranks share memory, processors do it.
            reductions: job.comm.size() > 1 && !matches!(mode, Mode::Near),
        }
    }
}

/// The job of some genes, on `ranks` ranks.
fn planned(mut genes: Genes, ranks: usize, spared: Spared) -> Plan {
    genes.ranks = ranks;
    if spared.swaps {
        for window in genes.windows.iter_mut().filter(|gene| gene.kind % 4 == 3) {
            window.kind -= 1;
        }
    }
    let mut job = plan(&genes);
    let ops = job
        .programs
        .iter_mut()
        .flatten()
        .flat_map(|item| match item {
            Item::Do(op) => std::slice::from_mut(op),
            Item::Loop { body, .. } => body,
        });
    for op in ops {
        if let What::Complete { window, acts, .. }
        | What::Exchange { window, acts, .. }
        | What::Surface { window, acts, .. } = &mut op.what
        {
            let ty = job.windows[*window].ty;
            for act in acts {
                spare(act, ty, spared.reductions);
            }
        }
    }
    job
}

/// Replaces a reduction by another one, which is the same for all that use it. These are replaced:
///
/// - the least and greatest of unsigned numbers: MPICH 4.0.2, and Open MPI 4.1.4 in windows that are not shared, take
///   them for signed ones;
/// - sums of bytes, in an accumulate: those of Open MPI 4.1.4 (its `op/avx`) stay at 255 where they should go round.
fn spare(act: &mut Act, ty: Ty, reductions: bool) {
    let fetches = matches!(act.verb, Verb::Fetch { .. });
    let (Verb::Accumulate(op) | Verb::Fetch { op, .. }) = &mut act.verb else {
        return;
    };
    let unsigned = matches!(ty, Ty::U64 | Ty::U32 | Ty::U8);
    match *op {
        Op::Min if reductions && unsigned => *op = Op::BitXor,
        Op::Max if reductions && unsigned => *op = Op::BitOr,
        Op::Sum if reductions && !fetches && ty == Ty::U8 => *op = Op::BitXor,
        _ => {}
    }
}

/// An error of a case.
enum Wrong {
    /// A rank failed, so its world may be broken.
    Failed(String),
    /// The result differs from the oracle's.
    Differs(String),
}

/// Runs this rank's program, and judges all ranks. Collective, with one verdict.
fn run(world: &World, job: &Plan, programs: &[Vec<Item>], adjust: &Adjust) -> Result<(), Wrong> {
    let truth = oracle::run(job)
        .map_err(|stuck| Wrong::Differs(format!("the generator made a deadlock: {stuck}")))?;
    let program = &programs[world.rank()];
    let mine = trial::guarded(job, || rank::run(job, program, world.clone(), adjust));
    let mine = mine
        .map(|outcome| (outcome.regions, outcome.windows, outcome.reads))
        .map_err(|error| error.to_string());
    let mine = postcard::to_stdvec(&mine).expect("plain data can be encoded");
    let all = world
        .all_gather("schedule", mine)
        .expect("all ranks are there");
    let mut real = Vec::new();
    for (rank, bytes) in all.iter().enumerate() {
        let theirs: Result<_, String> = postcard::from_bytes(bytes).expect("it was encoded");
        let failed = |error| Wrong::Failed(format!("rank {rank} failed: {error}"));
        let theirs = theirs.map_err(failed);
        let (regions, windows, reads) = theirs?;
        real.push(Outcome {
            regions,
            windows,
            reads,
        });
    }
    truth.judge(job, &real).map_err(Wrong::Differs)
}

/// Streams over windows of MPI have the same results as the oracle on vectors.
pub(crate) fn agree(job: &mut Job) {
    for (number, mode) in job.modes().iter().enumerate() {
        let (world, spared) = (job.world(*mode), Spared::of(job, *mode));
        let (ranks, first) = (world.size(), Cell::new(true));
        let result = runner(number as u64 + 1, ranks).run(&genes(), |genes| {
            let job = planned(genes.clone(), ranks, spared);
            let verdict = run(&world, &job, &job.programs, &Adjust::default());
            let Err(wrong) = verdict else {
                return Ok(());
            };
            // If the world may be broken, no simpler case is looked for.
            let failed = matches!(wrong, Wrong::Failed(_));
            let (Wrong::Failed(error) | Wrong::Differs(error)) = wrong;
            if first.take() && world.rank() == 0 {
                println!("{mode:?}: {error}, of {genes:?}");
            }
            if failed {
                std::process::exit(1);
            }
            Err(TestCaseError::fail(error))
        });
        if let Err(error) = result {
            panic!("{mode:?}: {error}");
        }
    }
}

/// Each kind of error is noticed here, too. Otherwise the comparison might compare nothing.
pub(crate) fn mutants(job: &mut Job) {
    let (world, spared) = (job.world(Mode::Near), Spared::of(job, Mode::Near));
    let ranks = world.size();
    for mutant in Mutant::ALL {
        let mut runner = runner(0, ranks);
        let mut tried = 0;
        let caught = (0..TRIES).find_map(|case| {
            let tree = genes().new_tree(&mut runner);
            let genes = tree.expect("genes come by themselves").current();
            let job = planned(genes, ranks, spared);
            let (programs, mut adjust) = mutant.apply(&job, case as usize * 7)?;
            tried += 1;
            // Some mutants deadlock where the original does not.
            adjust.limit.get_or_insert(Duration::from_millis(1500));
            match run(&world, &job, &programs, &adjust) {
                Err(Wrong::Differs(what)) => Some(what),
                // If a mutant hangs, the library must notice it.
                Err(Wrong::Failed(what)) if mutant.may_hang() => Some(what),
                _ => None,
            }
        });
        let caught = caught.unwrap_or_else(|| panic!("{mutant:?} was not caught in {tried} tries"));
        if world.rank() == 0 {
            println!("{mutant:?}, try {tried}: {caught}");
        }
    }
}
