//! Common parts of the tests of jobs of processes.

use std::time::{Duration, Instant};
use tidegate_cli::{Job, Outcome, Output};

/// Long enough for a loaded machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) fn job(role: &str, ranks: usize) -> Job {
    Job::this_program(ranks)
        .unwrap()
        .args(["--exact", "role_of_a_rank", "--nocapture", "--quiet"])
        .env("TEST_ROLE", role)
        .output(Output::Captured)
        .grace(LONG)
}

/// Leaves a mark that the test can see while the job runs.
pub(crate) fn mark(what: &str, rank: usize) {
    let directory = std::path::PathBuf::from(std::env::var_os("TEST_MARKS").unwrap());
    std::fs::write(directory.join(format!("{what}.{rank}")), "").unwrap();
}

pub(crate) fn wait_for(marks: &tempfile::TempDir, mark: &str) {
    let started = Instant::now();
    while !marks.path().join(mark).exists() {
        assert!(started.elapsed() < LONG, "no {mark}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn lines(outcome: &Outcome, rank: usize) -> Vec<String> {
    let text = String::from_utf8_lossy(&outcome.ranks[rank].stdout).into_owned();
    text.lines().map(str::to_owned).collect()
}

pub(crate) fn has(outcome: &Outcome, rank: usize, what: &str) -> bool {
    lines(outcome, rank).iter().any(|line| line.contains(what))
}
