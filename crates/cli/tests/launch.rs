//! The launcher's output and signals, and that it leaves nothing behind.

use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Stdio;
use std::time::Duration;
use tidegate_cli::{Bed, Cli, Job, Output, Signal};
use tidegate_testbed::WireChoice;

#[path = "launch/bind.rs"]
mod bind;
#[path = "launch/failures.rs"]
mod failures;
#[path = "launch/ground.rs"]
mod ground;
#[path = "launch/inherited.rs"]
mod inherited;
#[path = "../../../tests/common/skipped.rs"]
mod skipped;
#[path = "launch/stopped.rs"]
mod stopped;
#[path = "launch/unread.rs"]
mod unread;

use ground::{LONG, exists, tidegate, wait_until};

/// A job of ranks that are a shell script.
fn shell(ranks: usize, script: &str) -> Job {
    Job::new("/bin/sh", ranks)
        .arg("-c")
        .arg(script)
        .output(Output::Captured)
}

/// This is not a test, but the program that [`tidegate`] starts.
#[test]
fn role_of_the_launcher() {
    use clap::Parser;
    if let Ok(args) = std::env::var("TEST_CLI") {
        if std::env::var_os(inherited::FEW_PROCESSES).is_some() {
            inherited::have_few_processes();
        }
        let args = std::iter::once("tidegate").chain(args.split('\u{1}'));
        std::process::exit(match Cli::try_parse_from(args) {
            Ok(cli) => cli.run(&[("TIDEGATE_DEFAULT", "by the launcher")]).into(),
            Err(error) => {
                eprintln!("{error}");
                error.exit_code()
            }
        });
    }
}

#[test]
fn ranks_have_their_environment() {
    let script = "echo $RANK $WORLD_SIZE $LOCAL_RANK $MASTER_ADDR ${#TIDEGATE_SECRET} $MINE; test $MASTER_PORT -gt 0";
    let outcome = shell(3, script)
        .env("MINE", "x")
        .env("RANK", "9")
        .rank_env(1, "MINE", "y")
        .run()
        .unwrap();
    assert!(outcome.success());
    assert_eq!(outcome.exit_code(), 0);
    for (rank, end) in outcome.ranks.iter().enumerate() {
        let mine = if rank == 1 { "y" } else { "x" };
        let expected = format!("{rank} 3 {rank} 127.0.0.1 64 {mine}\n");
        assert_eq!(String::from_utf8_lossy(&end.stdout), expected);
    }
}

#[test]
fn output_is_labelled_in_whole_lines() {
    let script =
        r"printf 'a\000\377b\n'; printf 'half' ; printf ' line\n'; echo err >&2; printf end";
    let output = tidegate(&["run", "-n", "2", "--", "/bin/sh", "-c", script])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
    let lines = |bytes: &[u8]| {
        let mut lines: Vec<Vec<u8>> = bytes
            .split(|b| *b == b'\n')
            .filter(|line| line.starts_with(b"["))
            .map(<[u8]>::to_vec)
            .collect();
        lines.sort();
        lines
    };
    let expected: [&[u8]; 6] = [
        b"[0] a\0\xffb",
        b"[0] end",
        b"[0] half line",
        b"[1] a\0\xffb",
        b"[1] end",
        b"[1] half line",
    ];
    assert_eq!(lines(&output.stdout), expected);
    assert_eq!(lines(&output.stderr), [b"[0] err", b"[1] err"]);
}

#[test]
fn labels_can_be_left_out() {
    let output = tidegate(&["run", "-n", "2", "--no-label", "echo", "plain"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        text.lines().filter(|line| *line == "plain").count(),
        2,
        "{text}"
    );
}

#[test]
fn the_command_line_has_the_codes_of_a_shell() {
    let code = |args: &[&str]| tidegate(args).output().unwrap().status.code();
    assert_eq!(
        code(&["run", "-n", "2", "/bin/sh", "-c", "exit 5"]),
        Some(5)
    );
    assert_eq!(code(&["run", "-n", "1", "/no/such/program"]), Some(127));
    assert_eq!(code(&["run", "-n", "1", "/etc/passwd"]), Some(126));
    assert_eq!(code(&["run", "-n", "0", "true"]), Some(1));
    assert_eq!(code(&["run", "-n", "x", "true"]), Some(2));
    assert_eq!(code(&["run", "-n", "2"]), Some(2));
    assert_eq!(code(&["run", "true"]), Some(2));
    assert_eq!(code(&["run", "--nodes", "2x2", "true"]), Some(0));
    assert_eq!(code(&["run", "-n", "3", "--nodes", "2x2", "true"]), Some(1));
    assert_eq!(code(&["run", "--nodes", "2", "true"]), Some(2));
    assert_eq!(code(&["run", "--nodes", "2x", "true"]), Some(2));
    assert_eq!(code(&["run", "-n", "2", "--netns", "true"]), Some(2));
    let delay = ["run", "--nodes", "2x1", "--delay", "1ms", "true"];
    assert_eq!(
        code(&delay),
        Some(2),
        "without --netns there is no wire to be slow"
    );
    assert_eq!(
        code(&[
            "run",
            "-n",
            "1",
            "-e",
            "A=b",
            "--",
            "/bin/sh",
            "-c",
            "test $A = b"
        ]),
        Some(0)
    );
}

/// This is not a test, but a rank that only a signal ends. A shell would not do: while it starts a program, it keeps
/// SIGINT until that program has ended.
#[test]
fn role_of_a_rank_that_waits() {
    if std::env::var_os("TEST_CLI").is_some() {
        println!("ready");
        std::thread::sleep(Duration::from_secs(1000));
    }
}

#[test]
fn signals_are_passed_on() {
    let me = std::env::current_exe().unwrap();
    let rank = [me.to_str().unwrap(), "--exact", "role_of_a_rank_that_waits"];
    for (signal, number) in [(Signal::TERM, 15), (Signal::INT, 2), (Signal::HUP, 1)] {
        // The time is so long that nothing else ends the ranks.
        let args = [
            &["run", "-n", "2", "--grace", "60"],
            &rank[..],
            &["--nocapture"],
        ]
        .concat();
        let mut child = tidegate(&args)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = lines
            .by_ref()
            .map_while(Result::ok)
            .filter(|line| line.ends_with("ready"));
        assert_eq!(ready.take(2).count(), 2);
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(128 + number));
    }
}

/// This is not a test, but a program that runs two jobs and then does something else.
#[test]
fn role_of_a_program_after_its_jobs() {
    if std::env::var_os("TEST_JOBS").is_some() {
        let first = Job::new("true", 1).forward_signals(true).run().unwrap();
        assert!(first.success());
        let second = Job::this_program(1).unwrap();
        let second = second.args(["--exact", "role_of_a_rank_that_waits", "--nocapture"]);
        let second = second.env("TEST_CLI", "").output(Output::Plain);
        let ended = second.grace(LONG).forward_signals(true).run().unwrap();
        println!("code {}", ended.exit_code());
        std::thread::sleep(LONG / 4);
    }
}

#[test]
fn signals_are_passed_on_by_each_job_and_end_the_program_afterwards() {
    let signals = [Signal::HUP, Signal::INT, Signal::TERM, Signal::USR1];
    for signal in signals {
        let mut program = std::process::Command::new(std::env::current_exe().unwrap());
        program.args(["--exact", "role_of_a_program_after_its_jobs", "--nocapture"]);
        program.env("TEST_JOBS", "");
        ground::begin_with(&mut program, signals, libc::SIG_DFL);
        let mut child = program.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .map_while(Result::ok);
        let pid = rustix::process::Pid::from_child(&child);
        let code = format!("code {}", 128 + signal.as_raw());
        for said in ["ready", &code] {
            assert!(lines.any(|line| line.ends_with(said)), "{said}");
            rustix::process::kill_process(pid, signal).unwrap();
        }
        assert_eq!(child.wait().unwrap().signal(), Some(signal.as_raw()));
    }
}

#[test]
fn user_signals_are_passed_on_and_end_nothing() {
    let script = "trap 'echo got; exit 0' USR1; echo ready; while :; do sleep 0.05; done";
    let mut child = tidegate(&["run", "-n", "2", "/bin/sh", "-c", script])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    assert_eq!(
        lines
            .by_ref()
            .filter(|line| line.ends_with("ready"))
            .take(2)
            .count(),
        2
    );
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::USR1).unwrap();
    assert_eq!(lines.filter(|line| line.ends_with("got")).count(), 2);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn children_of_ranks_end_with_them() {
    let outcome = shell(2, "sleep 1000 & echo $!").run().unwrap();
    assert!(outcome.success());
    for end in &outcome.ranks {
        let child: u32 = String::from_utf8_lossy(&end.stdout).trim().parse().unwrap();
        wait_until("the child of a rank ends", || !exists(child));
    }
}

#[test]
fn a_launcher_that_is_killed_leaves_nothing() {
    // The shell has a child, which the kernel does not kill with the shell.
    let script = "sleep 1000 & echo pids $$ $!; wait";
    let mut child = tidegate(&["run", "-n", "2", "/bin/sh", "-c", script])
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let pids: Vec<u32> = lines
        .filter(|line| line.contains("pids"))
        .take(2)
        .flat_map(|line| {
            let words = line
                .split_whitespace()
                .rev()
                .take(2)
                .map(|pid| pid.parse().unwrap());
            words.collect::<Vec<u32>>()
        })
        .collect();
    assert_eq!(pids.len(), 4);
    child.kill().unwrap();
    child.wait().unwrap();
    for pid in pids {
        wait_until("a rank or its child ends", || !exists(pid));
    }
}

#[test]
fn ranks_can_be_signalled_and_the_job_dropped() {
    let job = shell(2, "sleep 1000").grace(LONG).spawn().unwrap();
    let pids = [job.pid(0).unwrap(), job.pid(1).unwrap()];
    assert!(job.pid(2).is_none());
    job.signal(1, Signal::KILL).unwrap();
    wait_until("a killed rank is collected", || {
        job.signal(1, Signal::CONT).is_err()
    });
    assert!(exists(pids[0]));
    drop(job);
    assert!(!pids.iter().any(|pid| exists(*pid)));
}

#[test]
fn a_job_can_be_killed_from_elsewhere() {
    let job = shell(3, "sleep 1000").spawn().unwrap();
    let remote = job.remote();
    let killer = std::thread::spawn(move || remote.kill());
    let outcome = job.wait();
    killer.join().unwrap();
    assert!(
        outcome
            .ranks
            .iter()
            .all(|rank| rank.status.signal() == Some(9))
    );
    assert_eq!(outcome.exit_code(), 137);
}

#[test]
fn a_program_that_does_not_exist_leaves_no_ranks() {
    let error = Job::new("/no/such/program", 2).run().unwrap_err();
    assert!(error.to_string().contains("rank 0"), "{error}");
}

/// The network namespaces that some process is in, or has a descriptor of, as far as this user can see.
fn namespaces_in_use() -> Vec<String> {
    let mut found = Vec::new();
    for process in std::fs::read_dir("/proc").unwrap().map_while(Result::ok) {
        found.extend(std::fs::read_link(process.path().join("ns/net")));
        let fds = std::fs::read_dir(process.path().join("fd"));
        let fds = fds.into_iter().flatten().map_while(Result::ok);
        found.extend(fds.filter_map(|fd| std::fs::read_link(fd.path()).ok()));
    }
    let names = found
        .into_iter()
        .filter_map(|link| link.into_os_string().into_string().ok());
    names.filter(|name| name.starts_with("net:[")).collect()
}

#[test]
fn a_launcher_that_is_killed_leaves_no_network() {
    let test = "a_launcher_that_is_killed_leaves_no_network";
    for wire in [WireChoice::Auto, WireChoice::Relay] {
        if Bed::builder(2).wire(wire).build_or_skip(test).is_none() {
            continue;
        }
        let wire = if wire == WireChoice::Auto {
            "auto"
        } else {
            "relay"
        };
        let script = "sleep 1000 & echo found $$ $! $(readlink /proc/self/ns/net); wait";
        let args = [
            "run", "--nodes", "2x1", "--netns", "--wire", wire, "/bin/sh", "-c", script,
        ];
        let mut child = tidegate(&args)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let lines = lines
            .map_while(Result::ok)
            .filter(|line| line.contains("found"));
        let (mut pids, mut namespaces) = (Vec::<u32>::new(), Vec::new());
        for line in lines.take(2) {
            let words: Vec<_> = line.split_whitespace().rev().collect();
            namespaces.push(words[0].to_owned());
            pids.extend(words[1..3].iter().map(|pid| pid.parse::<u32>().unwrap()));
        }
        assert_eq!((pids.len(), namespaces.len()), (4, 2));
        assert_ne!(namespaces[0], namespaces[1]);
        let in_use = namespaces_in_use();
        assert!(namespaces.iter().all(|name| in_use.contains(name)));
        child.kill().unwrap();
        child.wait().unwrap();
        for pid in pids {
            wait_until("a rank or its child ends", || !exists(pid));
        }
        wait_until("the namespaces are gone", || {
            let in_use = namespaces_in_use();
            !namespaces.iter().any(|name| in_use.contains(name))
        });
        // No name keeps one alive, either.
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!namespaces.iter().any(|name| mounts.contains(name)));
    }
}

#[test]
fn the_command_line_makes_beds_and_cuts_links() {
    let test = "the_command_line_makes_beds_and_cuts_links";
    if Bed::builder(2)
        .wire(WireChoice::Relay)
        .build_or_skip(test)
        .is_none()
    {
        return;
    }
    // They stay until the link is mended, but not for ever.
    let script = "echo $TIDEGATE_NODE $TIDEGATE_ADDRESS
        until test -e $MENDED || test $((n += 1)) -gt 2000; do sleep 0.01; done";
    let wire = [
        "--delay", "1ms", "--loss", "1%", "--rate", "1gbit", "--seed", "1",
    ];
    let args = [
        &[
            "run",
            "--nodes",
            "2x1",
            "--netns",
            "--cut",
            "1@100ms..200ms",
        ][..],
        &wire[..],
        &["/bin/sh", "-c", script][..],
    ];
    let folder = tempfile::tempdir().unwrap();
    let mended = folder.path().join("mended");
    let mut child = tidegate(&args.concat())
        .env("MENDED", &mended)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        if line.contains("is mended") {
            std::fs::write(&mended, "").unwrap();
        }
        said += &format!("{line}\n");
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}: {said}");
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(
        out.contains("[0] node0 10.77.0.1") && out.contains("[1] node1 10.77.0.2"),
        "{out}"
    );
    for what in [
        "2 network namespaces, a relay in user space: delay 1ms, loss 1%, rate 1000 Mbit/s",
        "the link of node 1 is cut",
        "the link of node 1 is mended",
        "packets arrived",
    ] {
        assert!(said.contains(what), "no {what}: {said}");
    }
    let output = tidegate(&["run", "--nodes", "2x1", "--netns", "--cut", "2@1s", "true"]).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("there is no node 2"));
}
