//! Randomised schedules: whole jobs, run on the library with ranks as threads, and sequentially on vectors by an oracle.
//!
//! A case is a handful of numbers (`genes`) of which a deadlock-free job is made (`plan`, `acts`): windows, regions and a program a
//! rank (`job`). `rank` runs a program on the library, `oracle` all programs on vectors; what the two come to is compared.
//!
//! The cases are the same each time. `TIDEGATE_SCHEDULES=5000` runs so many, and with `TIDEGATE_SCHEDULES_SEED=n` others.

mod schedules {
    pub(crate) mod acts;
    pub(crate) mod bag;
    pub(crate) mod exec;
    mod found;
    pub(crate) mod genes;
    pub(crate) mod job;
    mod judge;
    pub(crate) mod oracle;
    pub(crate) mod plan;
    pub(crate) mod rank;
    pub(crate) mod reduce;
    pub(crate) mod trial;
    pub(crate) mod value;
}

use proptest::test_runner::TestCaseError;
use schedules::bag::Adjust;
use schedules::genes::genes;
use schedules::{plan::plan, trial};

/// How many cases are run if nobody asks for more.
const CASES: u32 = 150;

#[test]
fn schedules_agree_with_the_oracle() {
    let mut runner = trial::runner(CASES);
    let result = runner.run(&genes(), |genes| {
        let job = plan(&genes);
        trial::run(&job, &job.programs, &Adjust::default()).map_err(TestCaseError::fail)
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}
