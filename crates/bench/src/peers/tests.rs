//! Peers here are shell scripts: real processes, which print their arguments and environment.

#[path = "../../tests/common/script.rs"]
mod script;

use super::calls::calls;
use super::*;
use crate::cli::FacesArgs;
use crate::results::Setting;
use crate::results::{Row, comparison::comparison, exit_code, tests::setting};
use std::time::{Duration, Instant};
use tempfile::TempDir;

fn parse(line: &str) -> FacesArgs {
    let words = std::iter::once("faces").chain(line.split_whitespace());
    FacesArgs::try_from_iter(words).unwrap()
}

fn program(dir: &TempDir, name: &str, script: &str) {
    script::program(&dir.path().join(name), script);
}

/// A row as a peer prints it.
fn line(mode: &str, more: &str) -> String {
    format!(
        r#"echo '{{"peer":"x","row":"the way","mode":"{mode}","ranks":2,"us":7.5,"min":7.25,"max":9,"verified":true,"enqueue_us":3,"cpu_us":null,"launches":1,"note":""{more}}}'"#
    )
}

fn args(dir: &TempDir, line: &str) -> FacesArgs {
    parse(&format!("{line} --peers-at {}", dir.path().display()))
}

fn run(args: &FacesArgs) -> Vec<Row> {
    let ours = Setting {
        benchmark: match args.exchange {
            true => "exchange".into(),
            false => "faces".into(),
        },
        compute: args.compute,
        ..setting(2)
    };
    let peers = Peers::find_or_build(args, &[]).unwrap();
    peers.run(args, &ours, &mut |_| ())
}

fn words(line: &str) -> Vec<String> {
    calls(&parse(line)).remove(0).args
}

#[test]
fn options_are_translated() {
    let text = |line| words(line).join(" ");
    assert_eq!(
        text("--exchange --grid 4x2x1 --size 5x4x3x10 --counts 1,5,250 --peers hostrma"),
        "--limit 55 --mode exchange --grid 4,2,1 --m 5,4,3 --n 10 --ni 250 --unroll 1,20"
    );
    // Defaults are those of our own run.
    assert_eq!(
        text("--exchange --size small --unroll 50 --peers mpi --peers-limit 9"),
        "--limit 4 --mode exchange --grid 2,2,2 --m 15,14,13 --n 12 --ni 1000 --unroll 1,50"
    );
    assert_eq!(
        text("--size small --peers hostrma"),
        "--limit 55 --mode share --grid 2,2,2 --m 15,14,13 --n 12 --shares 100 --unroll 1,20"
    );
    // Whole graphs, but never so many that the values overflow.
    assert!(text("--counts 1,1,7 --peers hostrma").contains("--shares 20 "));
    assert!(text("--counts 1,1,330 --peers hostrma").contains("--shares 320 "));
    assert!(text("--compute --peers hostrma").ends_with("--unroll 1,20 --compute"));
    assert_eq!(
        text("--pair --bytes 64 --peers nccl"),
        "--limit 55 --mode pair --rounds 5"
    );
    assert_eq!(text("--exchange --peers floor"), "--limit 55");
}

#[test]
fn every_library_is_run_in_all_its_forms() {
    let labels = |line: &str| -> Vec<String> {
        calls(&parse(line))
            .into_iter()
            .map(|call| call.label)
            .collect()
    };
    assert_eq!(
        labels("--exchange --peers nccl,mpi,floor"),
        [
            "nccl-exchange",
            "nccl-exchange-channels",
            "nccl-exchange-puts",
            "nccl-exchange-device",
            "mpi-exchange",
            "floor"
        ]
    );
    assert_eq!(
        labels("--compute --peers nvshmem"),
        [
            "nvshmem-share-compute-puts",
            "nvshmem-share-compute-stores",
            "nvshmem-share-compute-stream",
            "nvshmem-share-compute-barrier",
            "nvshmem-share-compute-graph",
            "nvshmem-share-compute-graph-all",
            "nvshmem-share-compute-graph-nbi"
        ]
    );
    assert_eq!(
        labels("--pair --peers nvshmem,nccl"),
        ["nvshmem-pair", "nccl-pair"]
    );
    let nccl = calls(&parse("--exchange --peers nccl"));
    assert!(nccl[0].env.is_empty());
    assert_eq!(nccl[1].env.len(), 2);
    assert!(nccl[1].args.contains(&"32 channels".to_owned()));
    // The last one counts.
    assert_eq!(nccl[3].args.join(" ").rsplit(' ').next(), Some("20,200"));
}

#[test]
fn rows_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let script = format!("echo noise\n{}\necho \"$@\" >&2", line("exchange", ""));
    program(&dir, "hostrma", &script);
    let rows = run(&args(&dir, "--exchange --grid 2x1x1 --peers hostrma"));
    let [row] = rows.as_slice() else {
        panic!("{rows:?}")
    };
    assert!(!row.failed, "{row:?}");
    assert_eq!((&*row.who, &*row.variant), ("hostrma", "the way"));
    assert_eq!((row.us_max, row.us_least), (Some(7.5), Some(7.25)));
    assert_eq!((row.us_most, row.cpu_us), (Some(9.0), None));
    assert_eq!((row.launches, row.verified), (Some(1.0), 2));
    let log = std::fs::read_to_string(dir.path().join("logs/hostrma-exchange.log")).unwrap();
    assert!(log.contains("--grid 2,1,1 --m 4,4,4 --n 6"), "{log}");
    // They survive the way through the file.
    let text = crate::results::files::to_json(&rows);
    assert_eq!(serde_json::from_str::<Vec<Row>>(&text).unwrap(), rows);
}

#[test]
fn every_way_to_fail_is_a_row() {
    let wrong = line("share", "").replace("\"verified\":true", "\"verified\":false");
    let other = line("exchange", "");
    let few = line("share", "").replace("\"ranks\":2", "\"ranks\":1");
    let slow = line("share", "").replace("7.5", "null");
    for (script, needle) in [
        ("exit 3", "exit code 3"),
        (
            "echo one >&2; echo two >&2; exit 1",
            "exit code 1: one; two",
        ),
        ("true", "measured nothing"),
        ("kill -9 $$", "signal: 9"),
        ("echo '{\"row\":1}'", "not understood"),
        (&*wrong, "the data is wrong"),
        (&*other, "it did `exchange`, not `share`"),
        (&*few, "it ran on 1 ranks, not 2"),
        (&*slow, "it has no time"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        program(&dir, "hostrma", script);
        let rows = run(&args(&dir, "--grid 2x1x1 --peers hostrma"));
        assert_eq!(exit_code(&rows), 1, "{script}");
        let reason = rows[0].failure.as_deref().unwrap();
        assert!(reason.contains(needle), "{script}: {reason}");
        assert!(comparison(&rows).contains(needle), "{script}");
    }
}

#[test]
fn a_row_before_a_failure_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    program(&dir, "hostrma", &format!("{}\nexit 1", line("share", "")));
    let rows = run(&args(&dir, "--grid 2x1x1 --peers hostrma"));
    assert_eq!(
        (rows.len(), rows[0].failed, rows[1].failed),
        (2, false, true)
    );
}

#[test]
fn one_that_hangs_is_ended() {
    let dir = tempfile::tempdir().unwrap();
    program(&dir, "hostrma", "exec sleep 300");
    program(&dir, "floor", &line("floor", ""));
    let begin = Instant::now();
    let of = |limit: u32| {
        let rows = run(&args(
            &dir,
            &format!("--grid 2x1x1 --peers hostrma,floor --peers-limit {limit}"),
        ));
        let reason = rows[0].failure.as_deref().unwrap();
        assert_eq!(reason, format!("no end after {limit} s"));
        rows
    };
    let mut rows = of(1);
    if rows[1].failed {
        // A slow machine needs more for the other.
        rows = of(10);
    }
    assert!(begin.elapsed() < Duration::from_secs(40));
    // The next is run all the same.
    assert_eq!(
        (rows[1].failed, &*rows[1].setting.benchmark),
        (false, "floor")
    );
}

#[test]
fn none_is_started_when_the_time_is_over() {
    let dir = tempfile::tempdir().unwrap();
    program(&dir, "hostrma", "touch \"$0\".was-run");
    let rows = run(&args(&dir, "--grid 2x1x1 --peers hostrma --peers-budget 0"));
    assert!(rows[0].failure.as_deref().unwrap().contains("not run"));
    assert!(!dir.path().join("hostrma.was-run").exists());
}

#[test]
fn mpi_is_launched_as_its_installer_says() {
    let dir = tempfile::tempdir().unwrap();
    let bin = tempfile::tempdir().unwrap();
    // A launcher that prints its arguments, and starts one rank.
    program(
        &bin,
        "mpirun",
        "case $1 in --version) echo 'mpirun (Open MPI) 9.9'; exit;; esac\n\
         echo \"$FABRIC: $@\" >&2; while [ ! -x \"$1\" ] || [ -d \"$1\" ]; do shift; done; exec \"$@\"",
    );
    program(&dir, "mpi", &line("share", ""));
    let path = format!("{}:/usr/bin:/bin", bin.path().display());
    let env = format!("# how\n\nFABRIC=a b=c\nPATH={path}\n");
    std::fs::write(dir.path().join("mpi.env"), env).unwrap();
    std::fs::write(dir.path().join("mpirun.args"), "--mca\n pml \nucx\n").unwrap();
    let rows = run(&args(&dir, "--grid 2x1x1 --peers mpi"));
    assert_eq!(exit_code(&rows), 0, "{rows:?}");
    let log = std::fs::read_to_string(dir.path().join("logs/mpi-share.log")).unwrap();
    assert!(
        log.starts_with(
            "a b=c: --allow-run-as-root --bind-to none --oversubscribe --mca pml ucx -n 2 /"
        ),
        "{log}"
    );
    std::fs::write(dir.path().join("mpi.env"), "A=b\nnonsense\n").unwrap();
    let error = Peers::find_or_build(&args(&dir, "--peers mpi"), &[]).unwrap_err();
    assert!(matches!(error, PeersError::Environment { line: 2, .. }));
}

#[test]
fn what_is_missing_is_built_or_named() {
    let dir = tempfile::tempdir().unwrap();
    let wanted = args(&dir, "--grid 2x1x1 --peers floor,nccl");
    let nowhere = dir.path().join("no/build.sh");
    let error = Peers::find_or_build(&wanted, std::slice::from_ref(&nowhere)).unwrap_err();
    let PeersError::NotFound {
        missing,
        looked_for,
        ..
    } = &error
    else {
        panic!("{error}")
    };
    assert_eq!(missing, &[Peer::Floor, Peer::Nccl]);
    assert_eq!(looked_for, std::slice::from_ref(&nowhere));
    assert!(error.to_string().contains("no/build.sh"), "{error}");

    // One can be built, the other cannot.
    let sources = tempfile::tempdir().unwrap();
    let floor = format!(
        "printf '#!/bin/sh\\n%s\\n' \"{}\"",
        line("floor", "").replace('"', "\\\"")
    );
    program(
        &sources,
        "build.sh",
        &format!(
            "{floor} >\"$1/floor\"; chmod +x \"$1/floor\"; echo 'NOT BUILT nccl: no NCCL found'; exit 0"
        ),
    );
    let script = sources.path().join("build.sh");
    let peers = Peers::find_or_build(&wanted, &[nowhere, script]).unwrap();
    let rows = peers.run(&wanted, &setting(2), &mut |_| ());
    assert_eq!((rows.len(), rows[0].failed), (2, false), "{rows:?}");
    let reason = rows[1].failure.as_deref().unwrap();
    assert!(
        reason.starts_with("not built: no NCCL found (said in "),
        "{reason}"
    );
    assert_eq!(exit_code(&rows), 1);
    // The output of the build is kept, and nothing is built again.
    let again = Peers::find_or_build(&wanted, &[]).unwrap();
    let rows = again.run(&wanted, &setting(2), &mut |_| ());
    assert_eq!(rows[1].failure.as_deref().unwrap(), reason);
}

#[test]
fn only_the_size_that_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let sizes = [8, 64].map(|bytes| line("pair", &format!(",\"bytes\":{bytes}")));
    program(&dir, "nccl", &sizes.join("\n"));
    let of = |line: &str| run(&args(&dir, line));
    let bytes = |rows: Vec<Row>| -> Vec<u64> { rows.iter().map(|row| row.setting.bytes).collect() };
    assert_eq!(bytes(of("--pair --peers nccl")), [8, 64]);
    assert_eq!(bytes(of("--pair --bytes 64 --peers nccl")), [64]);
    let rows = of("--pair --bytes 24 --peers nccl");
    assert!(rows[0].failure.as_deref().unwrap().contains("this size"));
}
