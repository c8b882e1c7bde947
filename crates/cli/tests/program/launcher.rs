//! The launcher as a program.

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use tidegate::Buffers;
use tidegate::host::prelude::*;
use tidegate_cli::{Job, LaunchError, Signal};

use crate::processes::{self, FAILED, take_flag};
use crate::ring;

fn tidegate(args: &[&str]) -> Command {
    let mut command = super::launcher();
    command.args(args);
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_launcher_with_a_stack_of_64_kib_works() {
    let script = "ulimit -s 64; exec \"$0\" \"$@\"";
    let run = |args: &[&str]| {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script, env!("CARGO_BIN_EXE_tidegate")]);
        command.args(args).output().unwrap()
    };
    let output = run(&["run", "-n", "2", "/bin/sh", "-c", "echo here; exit 5"]);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("[1] here"));
    assert_eq!(run(&["run", "--help"]).status.code(), Some(0));
    assert_eq!(run(&["run"]).status.code(), Some(2));
}

#[test]
fn output_that_finds_no_room_is_an_error_and_said() {
    let full = || {
        std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap()
    };
    for (script, code) in [("echo x", 1), ("echo x; exit 5", 5)] {
        let output = tidegate(&["run", "-n", "2", "/bin/sh", "-c", script])
            .stdout(full())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(
            said(&output).contains("is lost: No space left"),
            "{output:?}"
        );
    }
}

/// A daemon may start a job with nothing: no standard streams, no variables, no directory, no right to any file.
#[test]
fn a_launcher_needs_nothing_of_its_parent() {
    let folder = tempfile::tempdir().unwrap();
    let program = std::env::current_exe().unwrap();
    for state in [
        "exec 0<&-",
        "exec 0<&- 1>&- 2>&-",
        "umask 0777",
        "cd \"$GONE\" && rmdir \"$GONE\"",
        "for name in $(env | cut -d= -f1); do unset $name 2>/dev/null || true; done",
    ] {
        let gone = folder.path().join("gone");
        std::fs::create_dir_all(&gone).unwrap();
        let output = Command::new("/bin/sh")
            .arg("-c")
            .arg(format!("{state}; exec \"$0\" \"$@\""))
            .arg(env!("CARGO_BIN_EXE_tidegate"))
            .args(["run", "-n", "2", "-e", "TIDEGATE_TEST_ROLE=ring"])
            .arg(&program)
            .args(["--exact", "launcher::a_rank", "--nocapture", "--quiet"])
            .env("GONE", gone)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{state}: {output:?}");
    }
}

#[test]
fn a_misspelt_variable_is_said_once_and_is_no_error() {
    let output = tidegate(&["run", "-n", "2"])
        .args(["-e", "TIDEGATE_TEST_ROLE=ring", "-e", "TIDEGATE_RUOTE=nic"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "launcher::a_rank", "--nocapture", "--quiet"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = said(&output);
    let words = "[0] tidegate: TIDEGATE_RUOTE is set, and nothing reads it; the nearest name is TIDEGATE_ROUTE\n";
    assert!(said.contains(words), "{said}");
    assert_eq!(said.matches("TIDEGATE_RUOTE").count(), 1, "{said}");
}

/// This is not a test, but the program of such ranks.
#[test]
fn a_rank() {
    processes::play(|role, world| match role {
        "ring" => ring::run(world, Buffers::Double, 20),
        _ => rank_0_is_first(&world, role),
    });
}

/// Rank 0 ends, with an error or without, while rank 1 works until the test lets it end.
fn rank_0_is_first(world: &World, role: &str) -> Result<()> {
    if world.rank() == 1 {
        take_flag("go on");
        println!("rank 1 is done");
    } else {
        println!("rank 0 is first");
        if role == "rank 0 fails" {
            Region::<f64, _>::zeroed(world, 4)?.read(9, &mut [0.0; 1])?;
        }
    }
    Ok(())
}

/// The launcher's output for such a job, and its exit code. Rank 1 may end when a line begins with `cue`.
fn first_rank_0(role: &str, cue: &str) -> (Vec<String>, Option<i32>) {
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new("/bin/sh")
        .args([
            "-c",
            "exec \"$0\" \"$@\" 2>&1",
            env!("CARGO_BIN_EXE_tidegate"),
        ])
        .args(["run", "-n", "2", "--grace", "1e6"])
        .args(["-e", &format!("TIDEGATE_TEST_ROLE={role}")])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "launcher::a_rank", "--nocapture", "--quiet"])
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut all = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if line.starts_with(cue) {
            std::fs::write(folder.path().join("go on"), "").unwrap();
        }
        all.push(line);
    }
    (all, child.wait().unwrap().code())
}

#[test]
fn an_error_of_rank_0_is_seen_while_another_rank_works() {
    let cue = "tidegate: rank 0 failed (exit status: 3); the others get ";
    let (lines, code) = first_rank_0("rank 0 fails", cue);
    let at = |start: &str| {
        let found = lines.iter().position(|line| line.starts_with(start));
        found.unwrap_or_else(|| panic!("no {start:?}: {lines:?}"))
    };
    assert!(at("[0] error: ") < at(cue), "{lines:?}");
    assert!(at(cue) < at("[1] rank 1 is done"), "{lines:?}");
    assert_eq!(code, Some(FAILED), "{lines:?}");
}

#[test]
fn rank_0_may_end_while_another_rank_works() {
    let (lines, code) = first_rank_0("rank 0 is done", "[0] rank 0 is first");
    assert!(
        lines.iter().any(|line| line == "[1] rank 1 is done"),
        "{lines:?}"
    );
    assert_eq!(code, Some(0), "{lines:?}");
}

#[test]
fn the_launcher_says_that_there_is_no_such_program_though_nobody_reads_it() {
    let mut child = tidegate(&["run", "-n", "1", "./there/is/no/such/program"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stderr.take());
    assert_eq!(child.wait().unwrap().code(), Some(127));
}

/// Impossible jobs that safe code can describe. Each gives an error, or ends.
#[test]
fn jobs_of_odd_numbers_names_and_times_end() {
    assert!(Job::new("true", 0).spawn().is_err());
    assert!(Job::new("no such program at all", 2).spawn().is_err());
    assert!(Job::new("tr\0ue", 1).spawn().is_err());
    for path in ["/no such folder", "/etc/passwd"] {
        let refused = Job::new("true", 1).directory(path).spawn();
        assert!(matches!(refused, Err(LaunchError::Directory { .. })));
    }
    let job = Job::new("true", 2).grace(Duration::MAX).spawn().unwrap();
    assert!(job.signal(2, Signal::KILL).is_err());
    assert!(job.signal(usize::MAX, Signal::KILL).is_err());
    assert!(job.wait().ranks.iter().all(|rank| rank.status.success()));
    // A grace without an end begins, too.
    let failed = Job::new("false", 2).grace(Duration::MAX).spawn().unwrap();
    assert!(failed.wait().first_failure.is_some());
}
