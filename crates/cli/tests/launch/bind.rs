//! Bound ranks, on any machine.

use super::ground::tidegate;
use crate::skipped::skipped;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::BTreeSet;
use tidegate_cli::{Bind, BindError, Job, LaunchError, Output};

/// A rank prints its processors, and the memory policy of a program that it starts.
const SCRIPT: &str = "grep Cpus_allowed_list /proc/self/status; cat /proc/self/numa_maps | head -1";

fn job(ranks: usize, bind: Bind) -> Job {
    Job::new("/bin/sh", ranks)
        .args(["-c", SCRIPT])
        .bind(bind)
        .output(Output::Captured)
}

fn allowed() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap();
    (0..CpuSet::MAX_CPU)
        .filter(|cpu| set.is_set(*cpu))
        .collect()
}

/// The numbers of a list in the kernel's format.
fn numbers(list: &str) -> BTreeSet<usize> {
    let range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        first.trim().parse::<usize>().unwrap()..=last.trim().parse().unwrap()
    };
    list.split(',').flat_map(range).collect()
}

/// The processors of each rank, and its line about memory.
fn bound(job: Job) -> Result<Vec<(BTreeSet<usize>, String)>, LaunchError> {
    let outcome = job.run()?;
    assert!(outcome.success(), "{outcome:?}");
    let rank = |stdout: &[u8]| {
        let text = String::from_utf8_lossy(stdout).into_owned();
        let (first, memory) = text.split_once('\n').unwrap();
        let list = first.strip_prefix("Cpus_allowed_list:").unwrap();
        (numbers(list), memory.to_owned())
    };
    Ok(outcome.ranks.iter().map(|own| rank(&own.stdout)).collect())
}

#[test]
fn ranks_run_on_shares_of_what_the_launcher_has() {
    let all = allowed();
    let shares = bound(job(all.len(), Bind::Core)).unwrap();
    let mut seen = BTreeSet::new();
    for (own, _) in &shares {
        assert_eq!(own.len(), 1, "{shares:?}");
        seen.extend(own);
    }
    assert_eq!(seen, all.iter().copied().collect());
    // A launcher that may use one processor divides only that one.
    let last = *all.last().unwrap();
    let thread = std::thread::spawn(move || {
        let mut one = CpuSet::new();
        one.set(last);
        sched_setaffinity(None, &one).unwrap();
        let error = bound(job(2, Bind::Core)).unwrap_err();
        assert!(
            matches!(error, LaunchError::Bind(BindError::TooFew { ranks: 2, .. })),
            "{error}"
        );
        bound(job(1, Bind::Core)).unwrap()
    });
    let shares = thread.join().unwrap();
    assert_eq!(shares[0].0, [last].into());
    // The binding does not change this process.
    assert_eq!(allowed(), all);
    assert_eq!(
        bound(job(1, Bind::None)).unwrap()[0].0,
        all.into_iter().collect()
    );
}

#[test]
fn ranks_prefer_the_memory_of_their_node() {
    let shares = match bound(job(2, Bind::Numa)) {
        Err(LaunchError::Bind(error @ BindError::Refused { .. })) => {
            return skipped("ranks_prefer_the_memory_of_their_node", &error.to_string());
        }
        shares => shares.unwrap(),
    };
    let all: BTreeSet<_> = allowed().into_iter().collect();
    for (own, memory) in &shares {
        assert!(!own.is_empty() && own.is_subset(&all), "{shares:?}");
        // `ADDRESS POLICY …`, or nothing if the kernel knows no nodes.
        let policy = memory.split_whitespace().nth(1);
        assert!(
            policy.is_none_or(|policy| policy.starts_with("prefer")),
            "{shares:?}"
        );
    }
    let (_, memory) = &bound(job(1, Bind::None)).unwrap()[0];
    assert!(!memory.contains(" prefer"), "{memory}");
}

#[test]
fn nothing_starts_where_ranks_cannot_be_bound() {
    let marks = tempfile::tempdir().unwrap();
    let ranks = allowed().len() + 1;
    let job = Job::new("/bin/sh", ranks)
        .args(["-c", "touch $MARKS/$RANK"])
        .env("MARKS", marks.path())
        .bind(Bind::Core);
    let error = job.run().unwrap_err();
    assert!(
        matches!(error, LaunchError::Bind(BindError::TooFew { .. })),
        "{error}"
    );
    assert_eq!(std::fs::read_dir(marks.path()).unwrap().count(), 0);
}

#[test]
fn bindings_are_printed_on_request() {
    let script = "echo $TIDEGATE_RANKS_HERE; grep Cpus_allowed_list /proc/self/status";
    let run = |arguments: &[&str]| {
        let run = ["run", "-n", "1", "--bind", "core"];
        let all = [&run, arguments, &["/bin/sh", "-c", script]].concat();
        let output = tidegate(&all).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap())
    };
    let [said, explained] = run(&["-v"]);
    // The test harness prints something, too.
    let list = said.split_once("Cpus_allowed_list:").unwrap().1;
    let list = list.lines().next().unwrap().trim();
    assert_eq!(explained, format!("tidegate: rank 0: processors {list}\n"));
    assert!(said.contains("[0] 1\n"), "{said}");
    assert_eq!(run(&[])[1], "");
    // On a machine with a device the rank is near it; otherwise this is an error.
    let near = tidegate(&["run", "-n", "1", "--bind", "device", "-v", "true"]);
    let output = { near }.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    match output.status.code() {
        Some(0) => assert!(said.contains("(near "), "{said}"),
        _ => assert!(said.starts_with("tidegate: --bind device"), "{said}"),
    }
}
