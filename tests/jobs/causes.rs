//! Failures of a job name the rank that caused them, even if that rank's process ends last.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tidegate::host::prelude::*;
use tidegate_cli::Outcome;

use crate::processes::{self, FAILED, LONG, assert_success, error, lines};
use crate::ring;

const RANKS: usize = 8;
/// The rank that causes the end of each job.
const CULPRIT: usize = 5;

/// This is not a test, but the ranks' program.
#[test]
fn a_rank() {
    processes::play(|role, world| {
        // This is dropped after the world, which each role takes.
        let last = Last::new(&world)?;
        match role {
            "panics" => in_a_ring(world, || panic!("rank 5 panics on purpose")),
            "fails" => in_a_ring(world, || Err(Error::other("a mistake of rank 5 alone"))),
            "leaves" => in_a_ring(world, || Ok(())),
            "kernel" => kernel(world, || ()),
            "unseen kernel" => kernel(world, || last.wait()),
            "late in a ring" => late_in_a_ring(world),
            "late in a sum" => late_in_a_sum(world),
            other => panic!("there is no role {other}"),
        }
    });
}

/// On the culprit: the processes of the other ranks. The culprit's process waits until they have ended.
struct Last(Vec<PathBuf>);

impl Last {
    fn new(world: &World) -> Result<Self> {
        let pids = world.all_gather("processes", std::process::id().to_le_bytes().to_vec())?;
        let pid = |bytes: &Vec<u8>| u32::from_le_bytes(bytes[..].try_into().expect("four bytes"));
        let of_culprit = |rank: &usize| world.rank() == CULPRIT && *rank != CULPRIT;
        let others = (0..pids.len()).filter(of_culprit);
        Ok(Last(
            others
                .map(|rank| format!("/proc/{}", pid(&pids[rank])).into())
                .collect(),
        ))
    }

    fn wait(&self) {
        let start = Instant::now();
        while self.0.iter().any(|process| process.exists()) {
            assert!(start.elapsed() < LONG, "a rank waits for this one");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Last {
    fn drop(&mut self) {
        self.wait();
    }
}

/// A ring that the culprit leaves in this way.
fn in_a_ring(world: World, end: impl Fn() -> Result<()>) -> Result<()> {
    stream!(let s = world.stream()?);
    let mut ring = ring::open(&s)?;
    if world.rank() != CULPRIT {
        return Err(ring::forever(&s, ring));
    }
    for _ in 0..3 {
        ring = ring::step(&s, ring)?;
    }
    s.synchronize()?;
    drop(ring);
    end()
}

/// A ring in which a kernel of the culprit panics. The culprit does something else before it looks.
fn kernel(world: World, meanwhile: impl Fn()) -> Result<()> {
    stream!(let s = world.stream()?);
    let ring = ring::open(&s)?;
    if world.rank() != CULPRIT {
        return Err(ring::forever(&s, ring));
    }
    let mut x = Region::<u64, _>::zeroed(&world, 1)?.on(&s)?;
    s.launch(|_: &mut [u64]| panic!("out of cheese"), &mut x)?;
    // The neighbours wait for this step. It may be refused, if the kernel was quick.
    let ring = ring::step(&s, ring);
    meanwhile();
    let failed = s.synchronize();
    drop(ring);
    failed
}

fn run(role: &str) -> Outcome {
    processes::run("causes::a_rank", role, RANKS)
}

/// Asserts that the culprit ended with this code, and that each other rank failed because of it. Their errors contain
/// `says`.
fn assert_named(outcome: &Outcome, code: i32, says: &str) {
    for (rank, end) in outcome.ranks.iter().enumerate() {
        if rank == CULPRIT {
            assert_eq!((end.status.code(), end.because_of), (Some(code), None));
            continue;
        }
        let error = error(end);
        assert!(error.contains(says), "rank {rank}: {error}");
        assert_eq!(end.because_of, Some(CULPRIT), "rank {rank}: {error}");
    }
}

#[test]
fn a_rank_that_panics_is_the_first_that_failed() {
    let outcome = run("panics");
    assert_named(&outcome, 101, "rank 5 is lost (its program has panicked)");
    assert_eq!(outcome.first_failure, Some(CULPRIT));
    assert_eq!(outcome.exit_code(), 101);
}

/// The others hear that it has left, and only the launcher hears that it has failed.
#[test]
fn a_rank_that_fails_and_ends_late_is_the_first_that_failed() {
    let outcome = run("fails");
    assert_named(&outcome, FAILED, "rank 5 has left the job");
    assert_eq!(outcome.first_failure, Some(CULPRIT));
}

#[test]
fn a_rank_whose_kernel_panics_is_the_first_that_failed() {
    for role in ["kernel", "unseen kernel"] {
        let outcome = run(role);
        assert_named(&outcome, FAILED, " of rank 5 has failed");
        assert_eq!(outcome.first_failure, Some(CULPRIT));
    }
}

/// It has not failed, but all errors name it.
#[test]
fn a_rank_that_leaves_too_early_is_named_by_all_others() {
    let outcome = run("leaves");
    assert_named(&outcome, 0, "rank 5 has left the job");
    assert_ne!(outcome.first_failure, Some(CULPRIT));
    assert_eq!(outcome.exit_code(), FAILED as u8);
}

/// What all ranks but the culprit enqueue, and the culprit when the report has come.
fn late(world: &World, mut enqueue: impl FnMut() -> Result<()>) -> Result<()> {
    world.all_gather("through", Vec::new())?;
    world.report_waits_after(Duration::from_millis(300));
    if world.rank() != CULPRIT {
        enqueue()?;
    }
    // In an early report some ranks may not wait yet, or may not have answered.
    let is_late = "no cycle: rank 5 is late, or never posts, completes or makes its call: its streams have done all";
    let start = Instant::now();
    let report = loop {
        match world.last_report() {
            Some(report) if report.contains(is_late) => break report,
            other => assert!(start.elapsed() < LONG, "no such report, but {other:?}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    for line in report.lines() {
        println!("report: {line}");
    }
    world.all_gather("read", Vec::new())?;
    if world.rank() == CULPRIT {
        enqueue()?;
    }
    Ok(())
}

fn late_in_a_ring(world: World) -> Result<()> {
    stream!(let s = world.stream()?);
    let mut ring = Some(ring::open(&s)?);
    late(&world, || {
        for _ in 0..3 {
            let next = ring.take().expect("a step returns the ring");
            ring = Some(ring::step(&s, next)?);
        }
        Ok(())
    })?;
    s.synchronize()
}

fn late_in_a_sum(world: World) -> Result<()> {
    stream!(let s = world.stream()?);
    let mut sum = AllReduce::open(&s, "energy", 1, Op::Sum)?;
    let mut x = Region::from_slice(&world, &[1.0f64])?.on(&s)?;
    late(&world, || sum.enqueue(&s, &mut x))?;
    s.synchronize()
}

/// The line of a report without the ranks that it is about, and without times.
fn about(line: &str) -> String {
    let (_, what) = line.split_once(": ").expect("a line names ranks");
    let timed = what.strip_suffix(" ms)");
    let untimed = timed.and_then(|what| Some(what.rsplit_once(" for ")?.0));
    untimed.unwrap_or(what).to_owned()
}

#[test]
fn a_report_names_the_late_rank_last_and_says_nothing_twice() {
    for role in ["late in a ring", "late in a sum"] {
        let outcome = run(role);
        assert_success(&outcome, &[]);
        let report: Vec<_> = lines(&outcome.ranks[0], "report: ").collect();
        let [_, ranks @ .., last] = &report[..] else {
            panic!("{report:?}");
        };
        assert!(last.starts_with("  no cycle: rank 5 is late, "), "{last}");
        let said: BTreeSet<_> = ranks.iter().map(|line| about(line)).collect();
        assert_eq!(said.len(), ranks.len(), "{report:#?}");
    }
}
