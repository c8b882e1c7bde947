//! Randomised schedules: whole jobs, run on the library with ranks as threads, and sequentially on vectors by an oracle.
//!
//! A case is a list of numbers (`genes`) from which a deadlock-free job is made (`plan`, `acts`): windows, regions and
//! a program for each rank (`job`). `rank` runs a program on the library, `oracle` runs all programs on vectors, and
//! their results are compared.
//!
//! The cases are the same each time. `TIDEGATE_SCHEDULES=5000` runs this many; `TIDEGATE_SCHEDULES_SEED=n` changes
//! them.

#[path = "../schedules/found.rs"]
mod found;

use std::time::Duration;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{TestCaseError, TestRunner};
use tidegate::Throttle;
use tidegate::host::Host;

use crate::schedules::bag::{Adjust, ByNic};
use crate::schedules::census::{ALL, Census};
use crate::schedules::genes::genes;
use crate::schedules::mutants::Mutant;
use crate::schedules::{plan::plan, rounds, trial};

/// How many cases are run by default.
const CASES: u32 = 400;

#[test]
fn schedules_agree_with_the_oracle() {
    let mut runner = trial::runner(CASES, file!());
    let result = runner.run(&genes(), |genes| {
        let job = plan(&genes);
        trial::run::<Host>(&job, &job.programs, &Adjust::default()).map_err(TestCaseError::fail)
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

/// The job of the next case, over a NIC with few trigger slots.
fn short_of_slots(
    runner: &mut TestRunner,
    nic: ByNic,
    limit: Option<Duration>,
) -> Result<(), String> {
    let tree = genes().new_tree(runner).expect("genes come by themselves");
    let job = plan(&tree.current());
    let adjust = Adjust {
        nic: Some(nic),
        limit,
        ..Adjust::default()
    };
    trial::run::<Host>(&job, &job.programs, &adjust)
}

/// The jobs of all-reduces that GPUs run, too.
#[test]
fn all_reduces_round_after_round() {
    for ranks in [1, 2, 3, 5] {
        rounds::check::<Host>(ranks);
    }
}

#[test]
fn all_reduces_that_are_handed_over_in_a_recording() {
    for ranks in [1, 3] {
        rounds::check_handed_over::<Host>(ranks);
    }
}

/// All streams of a rank share the slots. With few slots nothing hangs and nothing is wrong.
#[test]
fn so_do_schedules_that_are_short_of_trigger_slots() {
    let mut runner = trial::runner(CASES, file!());
    for case in 0..CASES / 2 {
        let nic = ByNic {
            slots: [1, 2, 3, 5, 8][case as usize % 5],
            throttle: [Throttle::Static, Throttle::Adaptive][case as usize / 5 % 2],
            greedy: false,
        };
        let result = short_of_slots(&mut runner, nic, None);
        result.unwrap_or_else(|error| panic!("case {case}, {nic:?}: {error}"));
    }
    // If no slot were kept for operations that were rung for, some cases would hang.
    let greedy = ByNic {
        slots: 1,
        throttle: Throttle::Adaptive,
        greedy: true,
    };
    let limit = Some(Duration::from_millis(400));
    let caught = (0..CASES / 2).find_map(|_| short_of_slots(&mut runner, greedy, limit).err());
    println!("the mutant: {}", caught.expect("it is caught"));
}

/// Each kind of error is noticed within as many cases as are run by default.
#[test]
fn mutants_are_caught() {
    for mutant in Mutant::ALL {
        let mut runner = trial::runner(CASES, file!());
        let mut tried = 0;
        let caught = (0..CASES).find_map(|case| {
            let tree = genes()
                .new_tree(&mut runner)
                .expect("genes come by themselves");
            let job = plan(&tree.current());
            let (programs, adjust) = mutant.apply(&job, case as usize * 7)?;
            tried += 1;
            trial::caught::<Host>(mutant, &job, programs, &adjust)
        });
        let caught = caught.unwrap_or_else(|| panic!("{mutant:?} was not caught in {tried} tries"));
        println!("{mutant:?}, try {tried}: {caught}");
    }
}

/// The cases contain everything that they should.
#[test]
fn nothing_is_left_out() {
    let mut runner = trial::runner(CASES, file!());
    let mut census = Census::default();
    for _ in 0..CASES {
        let tree = genes()
            .new_tree(&mut runner)
            .expect("genes come by themselves");
        census.job(&plan(&tree.current()));
    }
    println!("{:#?}", census.0);
    for what in ALL {
        let times = census.0.get(*what).copied().unwrap_or(0);
        assert!(times >= 5, "{what}: {times} times in {CASES} cases");
    }
}
