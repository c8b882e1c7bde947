//! Which failure counts, which ranks are named for it, and how long the others may go on, also after a request to end.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::Duration;

use tidegate_cli::{Outcome, Signal};

use super::ground::{AGAIN, LONG, tidegate};
use super::shell;

#[test]
fn the_first_failure_decides() {
    let outcome = shell(3, "test $RANK = 1 && exit 7; sleep 1000")
        .grace(Duration::from_millis(50))
        .run()
        .unwrap();
    assert_eq!(outcome.first_failure, Some(1));
    assert_eq!(outcome.exit_code(), 7);
    assert_eq!(outcome.ranks[0].status.signal(), Some(15));
}

/// In a script: a rank says who it is before it ends (`here`), and another one waits until the launcher has taken its
/// status (`after RANK`), since until then the process exists.
const ORDER: &str = "here() { echo $$ > $ENDS/new.$RANK; mv $ENDS/new.$RANK $ENDS/$RANK; }
after() {
    until test -e $ENDS/$1; do sleep 0.01; done
    while kill -0 $(cat $ENDS/$1) 2>/dev/null; do sleep 0.01; done
}
";

/// If a rank ends by `process::exit(0)`, its failure is invisible; the rank that waited for it fails visibly.
#[test]
fn ranks_that_had_ended_before_the_first_failure_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let script = "case $RANK in 2) here; exit 0;; 1) after 2; exit 1;; esac; exec sleep 1000";
    let script = format!("{ORDER}{script}");
    let output = tidegate(&["run", "-n", "3", "--", "/bin/sh", "-c", &script])
        .env("ENDS", folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let words =
        "tidegate: rank 1 failed (exit status: 1); by then rank 2 had ended (exit status: 0; ";
    assert!(said.contains(words), "{said}");
    let output = tidegate(&["run", "-n", "2", "--", "/bin/sh", "-c", "exit 1"])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!said.contains("by then"), "{said}");
}

/// In a script: tells the launcher because of which rank this one fails, as tidegate does.
const TELL: &str = r"tell() {
    printf $(printf '\\%o\\0\\0\\0' $(($1 + 1))) |
        dd of=/proc/self/fd/${TIDEGATE_ENDS_FD%%:*} bs=4 seek=$RANK conv=notrunc 2>/dev/null
}
";

/// Ranks that fail because of another one often end before it.
#[test]
fn the_rank_that_others_name_has_failed_first() {
    let folder = tempfile::tempdir().unwrap();
    // Rank 3 is there until the others have ended, so nobody has to be ended by the launcher.
    let script = "case $RANK in
        3) after 2; exit 0;;
        2) here; after 0; after 1; exit 7;;
        esac
        tell 2; here; exit 1";
    let script = format!("{TELL}{ORDER}{script}");
    let args = ["run", "-n", "4", "--grace", "60", "/bin/sh", "-c", &script];
    let output = tidegate(&args).env("ENDS", folder.path()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(7), "{said}");
    // If rank 2 takes long, these are parts of one line.
    for part in [
        "rank 2 failed (exit status: 7)",
        "ranks 0, 1 ended because of it\n",
    ] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn a_rank_that_others_name_and_that_does_not_end_is_named() {
    let script = format!("{TELL} if test $RANK = 1; then tell 0; exit 1; fi; exec sleep 1000");
    let output = tidegate(&["run", "-n", "2", "--grace", "2", "/bin/sh", "-c", &script])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(128 + 15), "{said}");
    let lines: Vec<_> = said.lines().collect();
    let first = "tidegate: rank 1 failed (exit status: 1), because of rank 0, which has not ended yet; \
                 the others get 2.0s";
    let last = "tidegate: rank 0 failed (signal: 15 (SIGTERM)); rank 1 ended because of it";
    assert!(
        lines[0].starts_with(first) && lines.last() == Some(&last),
        "{said}"
    );
}

/// The rank that a failed one names has not failed, but has ended too early.
#[test]
fn a_rank_that_ended_well_has_not_failed() {
    let script = format!("{TELL} if test $RANK = 1; then tell 0; exit 3; fi; sleep 0.1");
    let outcome = shell(2, &script).grace(LONG).run().unwrap();
    assert_eq!((outcome.first_failure, outcome.exit_code()), (Some(1), 3));
    assert_eq!(outcome.ranks[1].because_of, Some(0));
}

#[test]
fn a_signal_is_128_and_its_number() {
    let outcome = shell(2, "test $RANK = 0 && kill -9 $$; exit 0")
        .run()
        .unwrap();
    assert_eq!(outcome.exit_code(), 137);
    assert_eq!(outcome.ranks[1].status.code(), Some(0));
}

#[test]
fn ranks_that_do_not_want_to_end_are_killed() {
    let folder = tempfile::tempdir().unwrap();
    // The failure comes when it is too late for the signal.
    let script = "if test $RANK = 1; then until test -e $DEAF; do sleep 0.01; done; exit 3; fi
        trap '' TERM; : > $DEAF; while :; do sleep 1000; done";
    let outcome = shell(2, script)
        .env("DEAF", folder.path().join("deaf"))
        .grace(Duration::from_millis(10))
        .run()
        .unwrap();
    assert_eq!(outcome.exit_code(), 3);
    assert_eq!(outcome.ranks[0].status.signal(), Some(9));
}

/// A job of two ranks, of which rank 1 fails. Rank 0 runs `then` so long after that, that a launcher that gives no time
/// would usually have ended it.
fn survivor(then: &str, grace: Duration) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let begin = "test $RANK = 1 && here && exit 3; after 1; sleep 0.3";
    let job = shell(2, &format!("{ORDER}{begin}; {then}")).env("ENDS", folder.path());
    job.grace(grace).run().unwrap()
}

#[test]
fn survivors_get_their_time() {
    let outcome = survivor("echo mine; exit 4", LONG);
    assert_eq!(outcome.exit_code(), 3);
    assert_eq!(outcome.ranks[0].status.code(), Some(4));
    assert_eq!(outcome.ranks[0].stdout, b"mine\n");
}

#[test]
fn survivors_may_get_all_the_time_there_is() {
    let outcome = survivor("exit 4", Duration::MAX);
    assert_eq!(outcome.exit_code(), 3);
    assert_eq!(outcome.ranks[0].status.code(), Some(4));
    // The same after a signal; the second signal waits for nothing.
    let script = "trap 'echo got' TERM; echo ready; while :; do sleep 0.01; done";
    let args = ["run", "-n", "1", "--grace", "1e19", "/bin/sh", "-c", script];
    let mut child = tidegate(&args)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let pid = rustix::process::Pid::from_child(&child);
    for said in ["ready", "got"] {
        assert!(lines.any(|line| line.ends_with(said)), "{said}");
        if said == "got" {
            std::thread::sleep(AGAIN);
        }
        rustix::process::kill_process(pid, Signal::TERM).unwrap();
    }
    assert_eq!(child.wait().unwrap().code(), Some(137));
}

#[test]
fn requests_to_end_that_come_together_are_one() {
    let script =
        "trap 'sleep 0.5; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.01; done";
    let args = ["run", "-n", "1", "--grace", "60", "/bin/sh", "-c", script];
    let mut child = tidegate(&args).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    assert!(lines.any(|line| line.ends_with("ready")));
    let pid = rustix::process::Pid::from_child(&child);
    for signal in [Signal::TERM, Signal::HUP, Signal::TERM] {
        rustix::process::kill_process(pid, signal).unwrap();
    }
    assert!(lines.any(|line| line.ends_with("saved")));
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
