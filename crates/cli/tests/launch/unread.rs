//! Jobs whose output nobody reads.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use tidegate::observe::{Observer, Recorder};
use tidegate_cli::Signal;

use super::ground::{AGAIN, LONG, exists, tidegate, wait_until};

/// A launcher without a reader. Its output has filled the pipe, and its own queue is full, too.
fn unread(grace: &str, script: &str, done: &std::path::Path) -> Child {
    unread_with(&["-n", "2"], grace, script, done)
}

/// Like [`unread`], with more options.
fn unread_with(more: &[&str], grace: &str, script: &str, done: &std::path::Path) -> Child {
    let args = ["run", "--grace", grace];
    let args = [&args, more, &["/bin/sh", "-c", script]].concat();
    let child = tidegate(&args)
        .env("DONE", done)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pipe = child.stdout.as_ref().unwrap();
    // When a pipe is full, none of its pages is more than half empty, or at least none of two.
    wait_until("the pipe is full", || {
        rustix::io::ioctl_fionread(pipe).unwrap() >= 32_000
    });
    std::thread::sleep(Duration::from_millis(300));
    child
}

/// A rank writes its process number to its mark. The mark is complete or missing.
const MARK: &str = "echo $$ > $DONE.$RANK.new; mv $DONE.$RANK.new $DONE.$RANK";

/// Waits until both ranks have left a [`MARK`]. Returns their processes.
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

/// Waits until both ranks have ended, so that the next signal can kill none of them.
fn await_ends(ranks: [u32; 2]) {
    for rank in ranks {
        wait_until("a rank ends", || !exists(rank));
    }
}

fn ask_to_end(child: &Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
}

/// The exit code of a launcher that should end soon, although nobody reads it.
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
    // The grace is so long that the ranks end by the signal that asks them to, and not by the one after it.
    let mut child = unread("5", &script, &done);
    // One rank's output is enough to fill the pipe. So the other could get the signal before its handler is set.
    await_both(&done);
    // The launcher keeps only a little output.
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
    // The launcher could still report this.
    let said = said(child.stderr.take());
    assert!(said.contains("nobody reads what is printed"), "{said}");
}

/// The summary of the trace would wait for a reader. Its files do not.
#[test]
fn a_launcher_that_nobody_reads_writes_its_trace_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    let (done, trace) = (folder.path().join("done"), folder.path().join("trace"));
    // The ranks are no programs of this library, so one has its events from here.
    let recorder = Recorder::new(folder.path()).unwrap();
    let joined = serde_json::json!({"Joined": {
        "rank": 0, "ranks": 2, "node": 0, "host": "h", "process": 1, "device": "host", "at": 0, "rounds": [],
    }});
    recorder.event(&serde_json::from_value(joined).unwrap());
    drop(recorder);
    let events = Recorder::file(folder.path(), 0);
    let script = format!(
        "cp {} $TIDEGATE_TRACE; {MARK}; yes & exec yes >&2",
        events.display()
    );
    let trace_there = trace.to_str().unwrap();
    let mut child = unread_with(&["-n", "2", "--trace", trace_there], "0.2", &script, &done);
    await_both(&done);
    ask_to_end(&child);
    assert_eq!(code_of_unread(&mut child), Some(143));
    assert!(trace.join("trace.html").exists() && trace.join("trace.json").exists());
}

#[test]
fn a_launcher_that_nobody_reads_and_that_is_asked_twice_ends_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let done = folder.path().join("done");
    let mut child = unread("1e19", &format!("{MARK}; exec yes"), &done);
    let ranks = await_both(&done);
    ask_to_end(&child);
    await_ends(ranks);
    std::thread::sleep(AGAIN);
    assert_eq!(child.try_wait().unwrap(), None, "it waits for a reader");
    ask_to_end(&child);
    assert_eq!(code_of_unread(&mut child), Some(143));
}

#[test]
fn a_launcher_that_nobody_reads_ends_the_others_when_a_rank_fails() {
    let folder = tempfile::tempdir().unwrap();
    let done = folder.path().join("done");
    // The failure comes when the other rank is there and the pipe is full, which may take long on a loaded machine.
    let script = format!(
        "{MARK}; test $RANK = 1 && exec sleep 600; yes & until test -e $DONE.full; do sleep 0.01; done; exit 3"
    );
    let mut child = unread("0.5", &script, &done);
    let ranks = await_both(&done);
    std::fs::write(done.with_extension("full"), "").unwrap();
    await_ends(ranks);
    // Its output may still be read.
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
    // Its own end must count, so it must end before the launcher is asked to end it.
    wait_until("the rank ends", || !exists(rank));
    ask_to_end(&child);
    assert_eq!(code_of_unread(&mut child), Some(3));
}

/// All the others print without a pause, and the launcher has no room when the first rank prints something.
#[test]
fn ranks_that_print_much_leave_room_to_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let done = folder.path().join("done");
    let script = "test $RANK = 0 || exec yes
        until test -e $DONE; do sleep 0.01; done; echo mine; exec sleep 600";
    let mut child = unread_with(&["-n", "7"], "0.2", script, &done);
    std::fs::write(&done, "").unwrap();
    let stdout = child.stdout.take().unwrap().take(32 << 20);
    let mut lines = BufReader::new(stdout).lines().map(Result::unwrap);
    let found = lines.any(|line| line == "[0] mine");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(found, "it found no room");
}

#[test]
fn output_that_is_lost_is_no_success() {
    let folder = tempfile::tempdir().unwrap();
    let done = folder.path().join("done");
    // This is more than a pipe takes, and less than the launcher keeps.
    let mut child = unread("0.3", &format!("seq 40000; {MARK}"), &done);
    await_ends(await_both(&done));
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(child.try_wait().unwrap(), None, "it waits for a reader");
    ask_to_end(&child);
    assert_eq!(code_of_unread(&mut child), Some(1));
}

#[test]
fn a_late_or_slow_reader_gets_all_output() {
    /// With labels this is a little more than the pipe and the launcher take, so the rest is in the ranks' pipes when
    /// they end.
    const LINES: usize = 63_000;
    // The first job would be over when the reader begins. The second waits for a slow reader, though its ranks have
    // failed and reading takes longer than the grace.
    for (code, grace, late, piece) in [(0, "0.1", 1500, 1 << 16), (3, "3", 0, 4 << 10)] {
        // No rank fails before the other has written everything; after that it would only have the grace.
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
