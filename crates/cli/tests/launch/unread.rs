//! What becomes of a job whose output nobody reads.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use tidegate_cli::Signal;

use super::ground::{LONG, exists, tidegate, wait_until};

/// A launcher that nobody reads, when what it prints has filled the pipe, and what it keeps is full, too.
fn unread(grace: &str, script: &str, done: &std::path::Path) -> Child {
    let args = ["run", "-n", "2", "--grace", grace, "/bin/sh", "-c", script];
    let child = tidegate(&args)
        .env("DONE", done)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pipe = child.stdout.as_ref().unwrap();
    // Of a pipe's pages none is more than half empty when it is full, or at least none of two.
    wait_until("the pipe is full", || {
        rustix::io::ioctl_fionread(pipe).unwrap() >= 32_000
    });
    std::thread::sleep(Duration::from_millis(300));
    child
}

/// How a rank leaves its mark, which is its number as a process: all of it or nothing.
const MARK: &str = "echo $$ > $DONE.$RANK.new; mv $DONE.$RANK.new $DONE.$RANK";

/// Until both ranks have come to where they leave a [`MARK`]; their processes.
fn await_both(done: &std::path::Path) -> [u32; 2] {
    [0, 1].map(|rank| {
        let mark = done.with_extension(rank.to_string());
        wait_until("both ranks leave their marks", || mark.exists());
        std::fs::read_to_string(mark)
            .unwrap()
            .trim()
            .parse()
            .unwrap()
    })
}

/// Until both ranks have ended: then there is nobody left who could die of the next signal.
fn await_ends(ranks: [u32; 2]) {
    for rank in ranks {
        wait_until("a rank ends", || !exists(rank));
    }
}

fn ask_to_end(child: &Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
}

/// The exit code of a launcher that is to end soon, though nobody reads it.
fn code_of_unread(child: &mut Child) -> Option<i32> {
    let start = Instant::now();
    while start.elapsed() < LONG / 3 {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    None
}

fn said(pipe: Option<impl Read>) -> String {
    let mut said = String::new();
    pipe.unwrap().read_to_string(&mut said).unwrap();
    said
}

#[test]
fn a_launcher_that_nobody_reads_passes_signals_on_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    let done = folder.path().join("done");
    let script = format!("trap ': > $DONE' USR1; {MARK}; yes & while :; do sleep 0.01; done");
    // So long that the ranks die of the signal that they are asked by, and not of the one that comes behind it.
    let mut child = unread("5", &script, &done);
    // What one rank prints is enough to fill the pipe; the other would die of the signal before it asks for it.
    await_both(&done);
    // It keeps no more than a little.
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let resident = status.split_once("VmRSS:").unwrap().1.split_whitespace();
    let resident: usize = resident.take(1).next().unwrap().parse().unwrap();
    assert!(resident < 64 << 10, "{resident} KiB");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::USR1).unwrap();
    let start = Instant::now();
    while !done.exists() && start.elapsed() < LONG / 3 {
        std::thread::sleep(Duration::from_millis(5));
    }
    ask_to_end(&child);
    assert_eq!(code_of_unread(&mut child), Some(143));
    assert!(done.exists());
    // Of this it could still tell.
    let said = said(child.stderr.take());
    assert!(said.contains("nobody reads what is printed"), "{said}");
}

#[test]
fn a_launcher_that_nobody_reads_and_that_is_asked_twice_ends_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let done = folder.path().join("done");
    let mut child = unread("1e19", &format!("{MARK}; exec yes"), &done);
    let ranks = await_both(&done);
    ask_to_end(&child);
    await_ends(ranks);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(child.try_wait().unwrap(), None, "it waits for a reader");
    ask_to_end(&child);
    assert_eq!(code_of_unread(&mut child), Some(143));
}

#[test]
fn a_launcher_that_nobody_reads_ends_the_others_when_a_rank_fails() {
    let folder = tempfile::tempdir().unwrap();
    let done = folder.path().join("done");
    // The failure comes when the other is there, and when the pipe is full: that takes as long as it may on a loaded
    // machine.
    let script = format!(
        "{MARK}; test $RANK = 1 && exec sleep 600; yes & until test -e $DONE.full; do sleep 0.01; done; exit 3"
    );
    let mut child = unread("0.5", &script, &done);
    let ranks = await_both(&done);
    std::fs::write(done.with_extension("full"), "").unwrap();
    await_ends(ranks);
    // What it has printed may be read yet.
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(child.try_wait().unwrap(), None, "it waits for a reader");
    ask_to_end(&child);
    assert_eq!(code_of_unread(&mut child), Some(3));
    let said = said(child.stderr.take());
    assert!(said.contains("rank 0 failed"), "{said}");
}

#[test]
fn a_stream_that_nobody_reads_does_not_stop_the_other() {
    let script = "yes >&2 & sleep 0.5; echo mine $$; exit 3";
    let args = ["run", "-n", "1", "--grace", "0.5", "/bin/sh", "-c", script];
    let mut child = tidegate(&args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = child.stdout.take().unwrap();
    let mut lines = BufReader::new(stdout).lines().map(Result::unwrap);
    let mine = lines.find_map(|line| line.strip_prefix("[0] mine ")?.parse().ok());
    let rank = mine.expect("it was not printed");
    // Its own end is what counts: it is not to be ended by what is asked for now.
    wait_until("the rank ends", || !exists(rank));
    ask_to_end(&child);
    assert_eq!(code_of_unread(&mut child), Some(3));
}

#[test]
fn output_that_is_lost_is_no_success() {
    let folder = tempfile::tempdir().unwrap();
    let done = folder.path().join("done");
    // More than a pipe takes, and less than the launcher keeps.
    let mut child = unread("0.3", &format!("seq 40000; {MARK}"), &done);
    await_ends(await_both(&done));
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(child.try_wait().unwrap(), None, "it waits for a reader");
    ask_to_end(&child);
    assert_eq!(code_of_unread(&mut child), Some(1));
}

#[test]
fn all_that_ranks_have_written_comes_to_who_reads_late_or_slowly() {
    /// With labels a little more than the pipe and the launcher take: the rest is in pipes of ranks when these end.
    const LINES: usize = 63_000;
    // The first job would be over when somebody begins to read. The second waits for who reads now and then, though its
    // ranks have failed and it takes longer than the grace.
    for (code, grace, late, piece) in [(0, "0.1", 1500, 1 << 16), (3, "3", 0, 4 << 10)] {
        // None fails before the other has written all: it would have no more time for that than the grace.
        let script = format!(
            "seq {LINES}; printf 'the end'; : > $DONE.$RANK
            until test -e $DONE.0 -a -e $DONE.1; do sleep 0.01; done; exit {code}"
        );
        let folder = tempfile::tempdir().unwrap();
        let args = [
            "run", "-n", "2", "-q", "--grace", grace, "/bin/sh", "-c", &script,
        ];
        let mut child = tidegate(&args)
            .env("DONE", folder.path().join("done"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(late));
        let mut pipe = child.stdout.take().unwrap();
        let (mut read, mut chunk) = (Vec::new(), vec![0; piece]);
        loop {
            match pipe.read(&mut chunk).unwrap() {
                0 => break,
                count => read.extend_from_slice(&chunk[..count]),
            }
            if code != 0 {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        assert_eq!(child.wait().unwrap().code(), Some(code));
        let read = String::from_utf8(read).unwrap();
        for label in ["[0] ", "[1] "] {
            let mut all = read.lines().filter_map(|line| line.strip_prefix(label));
            for line in 1..=LINES {
                assert_eq!(all.next(), Some(&*line.to_string()));
            }
            assert_eq!((all.next(), all.next()), (Some("the end"), None));
        }
    }
}
