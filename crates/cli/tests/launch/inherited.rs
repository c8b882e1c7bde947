//! Inherited settings that must not harm a launcher: signals that are ignored or blocked, and limits.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use rustix::process::{Resource, Rlimit, setrlimit};
use tidegate_cli::Signal;
use tidegate_testbed::Bed;

use super::ground::{LONG, begin_with, tidegate, wait_until};

/// Makes a process begin with a limit.
fn limit(command: &mut Command, resource: Resource, limit: u64) {
    let (current, maximum) = (Some(limit), Some(limit));
    // SAFETY: `setrlimit` is one system call.
    unsafe {
        command.pre_exec(move || Ok(setrlimit(resource, Rlimit { current, maximum })?));
    }
}

fn shell<'a>(ranks: &'a str, script: &'a str) -> [&'a str; 6] {
    ["run", "-n", ranks, "/bin/sh", "-c", script]
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn ends_of_ranks_are_known_where_the_parent_ignores_sigchld() {
    let run = |args: &[&str]| {
        let mut command = tidegate(args);
        begin_with(&mut command, [Signal::CHILD], libc::SIG_IGN);
        command.output().unwrap()
    };
    for (script, code) in [
        ("exit 0", 0),
        ("sleep 0.1", 0),
        ("sleep 0.1; exit 5", 5),
        ("kill -9 $$", 137),
        // Ranks do not ignore it, either.
        ("grep -q '^SigIgn:.*[13579bdf]....$' /proc/self/status", 1),
    ] {
        let output = run(&shell("2", script));
        assert_eq!(output.status.code(), Some(code), "{script}: {output:?}");
    }
    let test = "ends_of_ranks_are_known_where_the_parent_ignores_sigchld";
    if Bed::builder(2).build_or_skip(test).is_some() {
        let output = run(&["run", "--nodes", "2x1", "--netns", "true"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
}

/// SIGHUP is ignored, as with `nohup`.
#[test]
fn a_signal_that_the_parent_ignores_ends_neither_launcher_nor_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let script =
        "kill -HUP $$; : > $HERE/ready; until test -e $HERE/go; do sleep 0.01; done; exit 7";
    let mut command = tidegate(&shell("1", script));
    command.env("HERE", folder.path());
    begin_with(&mut command, [Signal::HUP], libc::SIG_IGN);
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    wait_until("the rank lives on", || path("ready").exists());
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::HUP).unwrap();
    std::fs::write(path("go"), "").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(7));
}

#[test]
fn a_signal_that_the_parent_has_blocked_is_passed_on() {
    let folder = tempfile::tempdir().unwrap();
    let ready = folder.path().join("ready");
    let script = "trap 'exit 9' TERM; : > $READY; while :; do sleep 0.01; done";
    let mut command = tidegate(&shell("1", script));
    command.env("READY", &ready).stderr(Stdio::null());
    // SAFETY: the calls may be made between fork and exec, and `set` is initialised before it is read.
    unsafe {
        command.pre_exec(|| {
            let mut set = std::mem::MaybeUninit::uninit();
            libc::sigfillset(set.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
            Ok(())
        });
    }
    let mut child = command.spawn().unwrap();
    wait_until("the rank listens", || ready.exists());
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    let began = std::time::Instant::now();
    while child.try_wait().unwrap().is_none() && began.elapsed() < LONG {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let _ = child.kill();
    assert_eq!(child.wait().unwrap().code(), Some(9));
}

#[test]
fn a_limit_that_a_job_meets_is_named() {
    let mut command = tidegate(&shell("40", "sleep 1000"));
    limit(&mut command, Resource::Nofile, 60);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(126), "{output:?}");
    let text = said(&output);
    let words = [
        "cannot start rank ",
        "no more than 60 descriptors (RLIMIT_NOFILE",
    ];
    assert!(words.iter().all(|words| text.contains(words)), "{text}");

    let mut command = tidegate(&shell("40", "sleep 1000"));
    let output = command.env(FEW_PROCESSES, "").output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    let text = said(&output);
    assert!(
        text.contains("no more than 1 processes and threads (RLIMIT_NPROC"),
        "{text}"
    );
}

/// The variable that makes [`tidegate`] call [`have_few_processes`].
pub(crate) const FEW_PROCESSES: &str = "TEST_FEW_PROCESSES";

/// From here on this process cannot start processes or threads.
pub(crate) fn have_few_processes() {
    let (current, maximum) = (Some(1), Some(1));
    setrlimit(Resource::Nproc, Rlimit { current, maximum }).unwrap();
    if rustix::process::geteuid().is_root() {
        // The limit does not apply to root.
        // SAFETY: the call has no contract; it changes the user of all threads.
        assert_eq!(unsafe { libc::setuid(61_234) }, 0);
    }
}

/// The launcher may write 10,000 bytes to a file. Its output is lost, but the ranks go on.
#[test]
fn output_that_cannot_be_written_is_an_error_and_said() {
    let mut file = tempfile::tempfile().unwrap();
    let mut command = tidegate(&shell("1", "seq 10000; exit 0"));
    limit(&mut command, Resource::Fsize, 10_000);
    command.stdout(file.try_clone().unwrap());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = said(&output);
    let words = [
        "is lost: ",
        "no more than 10000 bytes in a file (RLIMIT_FSIZE",
    ];
    assert!(words.iter().all(|words| text.contains(words)), "{text}");
    let mut written = Vec::new();
    std::io::Seek::rewind(&mut file).unwrap();
    file.read_to_end(&mut written).unwrap();
    assert_eq!(written.len(), 10_000);
}

/// Some parents (those that wait for many pipes at once) make the launcher's streams non-blocking.
#[test]
fn a_pipe_that_does_not_block_loses_nothing() {
    const LINES: usize = 30_000;
    let (ours, theirs) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    rustix::io::ioctl_fionbio(&theirs, true).unwrap();
    let mut child = tidegate(&shell("1", &format!("seq {LINES}; exit 6")))
        .stdout(theirs)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // This waits until the pipe is nearly full: none of its pages is more than half empty.
    wait_until("the pipe is full", || {
        rustix::io::ioctl_fionread(&ours).unwrap() >= 32_000
    });
    let mut text = String::new();
    std::fs::File::from(ours).read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(6));
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("[0] "));
    for line in 1..=LINES {
        assert_eq!(lines.next(), Some(&*line.to_string()));
    }
}

/// As with `tidegate run … | head -1`, the reader ends early on purpose.
#[test]
fn a_reader_that_closes_its_end_changes_nothing() {
    for (script, code) in [("seq 100000", 0), ("seq 100000; exit 5", 5)] {
        let mut child = tidegate(&shell("2", script))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut pipe = child.stdout.take().unwrap();
        pipe.read_exact(&mut [0; 4]).unwrap();
        drop(pipe);
        assert_eq!(child.wait().unwrap().code(), Some(code));
    }
}
