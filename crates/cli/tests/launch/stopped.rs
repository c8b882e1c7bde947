//! The launcher reports a rank that is stopped, since the rank cannot.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use rustix::process::{Pid, kill_process};
use tidegate_cli::Signal;

use super::ground::tidegate;

/// Stops a process of rank 1, and lets it go on when the launcher has reported it. Then rank 1 fails on purpose.
fn stop_and_go_on(script: &str) {
    let folder = tempfile::tempdir().unwrap();
    let mut child = tidegate(&["run", "-n", "2", "/bin/sh", "-c", script])
        .env("DONE", folder.path().join("done"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut out = out.map(Result::unwrap);
    let number = out.find_map(|line| Some(line.split_once("process ")?.1.to_owned()));
    let number = number.unwrap();
    let process = Pid::from_raw(number.parse().unwrap()).unwrap();
    kill_process(process, Signal::STOP).unwrap();

    let said = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut said = said.map(Result::unwrap);
    let stopped = said.next().unwrap();
    let is_rank = !script.contains("$!");
    let who = match is_rank {
        true => format!("tidegate: rank 1 (process {number})"),
        // It may be the rank, or a helper of the rank.
        false => format!("tidegate: process {number}, which rank 1 has started,"),
    };
    assert!(
        stopped.starts_with(&format!("{who} is stopped"))
            && stopped.contains(&format!("`kill -CONT {number}`")),
        "{stopped}"
    );
    // A process can only ask for its own children which signal has stopped them.
    assert_eq!(stopped.contains("by SIGSTOP"), is_rank, "{stopped}");

    kill_process(process, Signal::CONT).unwrap();
    assert_eq!(said.next().unwrap(), format!("{who} is stopped no longer"));
    std::fs::write(folder.path().join("done"), "").unwrap();
    let end = said.next().unwrap();
    assert!(
        end.starts_with("tidegate: rank 1 failed (exit status: 4)"),
        "{end}"
    );
    assert_eq!(child.wait().unwrap().code(), Some(4));
}

#[test]
fn a_stopped_rank_is_reported_and_so_is_that_it_goes_on() {
    stop_and_go_on(
        "test $RANK = 0 && exit 0; echo process $$; until test -e $DONE; do sleep 0.1; done; exit 4",
    );
}

#[test]
fn a_stopped_program_behind_a_script_is_reported() {
    stop_and_go_on(
        "test $RANK = 0 && exit 0
        (until test -e $DONE; do sleep 0.1; done; exit 4) & echo process $!; wait $!; exit $?",
    );
}

#[test]
fn a_failure_names_the_ranks_that_are_stopped() {
    let folder = tempfile::tempdir().unwrap();
    // A process that has stopped itself cannot print, so the other one looks.
    let script =
        "if test $RANK = 1; then echo $$ > $ONE.new; mv $ONE.new $ONE; kill -STOP $$; exit 0; fi
        until test -e $ONE; do sleep 0.01; done
        until grep -q '^State:.T' /proc/$(cat $ONE)/status; do sleep 0.01; done; exit 3";
    let output = tidegate(&["run", "-n", "2", "--grace", "0", "/bin/sh", "-c", script])
        .env("ONE", folder.path().join("one"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    let said = String::from_utf8(output.stderr).unwrap();
    let first = said.lines().next().unwrap();
    assert!(
        first.starts_with("tidegate: rank 0 failed (exit status: 3); rank 1 (process ")
            && first.contains(") is stopped by SIGSTOP; the others get "),
        "{first}"
    );
}
