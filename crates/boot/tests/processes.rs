//! Jobs of processes: sudden deaths, suspended ranks, the environment. The ranks are this program again.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tidegate_boot::{BootError, TcpControl};
use tidegate_cli::{Job, Outcome, Output, RankOutcome, Running, Signal};
use tidegate_hal::control::{Control, ControlError, Event};

#[path = "processes/exit.rs"]
mod exit;
#[path = "processes/ground.rs"]
mod ground;
#[path = "processes/inherit.rs"]
mod inherit;
#[path = "processes/killed.rs"]
mod killed;
#[path = "processes/loopback.rs"]
mod loopback;
#[path = "processes/short.rs"]
mod short;

use ground::{LONG, has, job, lines, mark, wait_for};

/// This is not a test, but a rank's program.
#[test]
fn role_of_a_rank() {
    let Ok(role) = std::env::var("TEST_ROLE") else {
        return;
    };
    // This is as in a program whose `main` is not Rust's. A write to a peer that has died must not end this rank.
    // SAFETY: the default action runs no code of this process.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    inherit::play(&role);
    if let Some(times) = role.strip_prefix("again ") {
        again(times.parse().unwrap());
    }
    let control = match TcpControl::from_env() {
        Ok(control) => control,
        Err(error) => {
            println!("error {error}");
            std::process::exit(3);
        }
    };
    let (sender, events) = channel();
    let sender = Mutex::new(sender);
    control.subscribe(Arc::new(move |event| {
        let _ = sender.lock().unwrap().send(event);
    }));
    play(&role, control, &events);
    // It does not return, because the test harness would go on.
    std::process::exit(0);
}

/// Joins one job after the other.
fn again(times: u64) -> ! {
    let mut me = 0;
    for time in 0..times {
        let control = TcpControl::from_env().unwrap();
        me = control.rank();
        let joined = TcpControl::from_env().unwrap_err();
        assert!(
            matches!(joined, BootError::Joined { rank } if rank == me),
            "{joined}"
        );
        let said = |rank: usize| format!("{time} {rank}").into_bytes();
        let all = control.exchange("step", said(me)).unwrap();
        assert!(all.into_iter().eq((0..control.size()).map(said)));
        // Each rank is the first to leave once, and the last once.
        let late = (me as u64 + time) % control.size() as u64;
        std::thread::sleep(Duration::from_millis(late * 3));
    }
    println!("rank {me} was there {times} times");
    std::process::exit(0);
}

fn play(role: &str, control: TcpControl, events: &Receiver<Event>) {
    let me = control.rank();
    match role {
        "nothing" | "starts helpers" => {}
        role if role.starts_with("exit: ") => exit::play(&role[6..], &control, events),
        "killed" => killed::play(&control),
        role if role.starts_with("short: ") => {
            let (victim, unmet) = role[7..].split_at(1);
            short::play(victim.parse().unwrap(), unmet.is_empty(), &control);
        }
        // Rank 1 dies suddenly while the others wait for it.
        "die" | "die-first" => {
            let victim = if role == "die" { 1 } else { 0 };
            let mut started = Instant::now();
            let error = loop {
                match control.exchange("step", Vec::new()) {
                    // It has the step from all others; they may not have it from all.
                    Ok(_) if me == victim => {
                        rustix::process::kill_process(rustix::process::getpid(), Signal::KILL)
                            .unwrap();
                    }
                    Ok(_) => started = Instant::now(),
                    Err(error) => break error,
                }
            };
            let ControlError::PeerLost { rank, reason, .. } = error else {
                panic!("{error}")
            };
            println!("peer {rank}: {reason}");
            println!("after {}", started.elapsed().as_millis());
            let first = events.recv_timeout(LONG).unwrap();
            println!("first {first:?}");
            println!(
                "victim {victim} {}",
                matches!(first, Event::Lost { rank, .. } if rank == victim)
            );
            control.leave();
        }
        // Rank 1 or 0 ends in some way, and the others learn why.
        role if role.starts_with("end ") => {
            let mut words = role.split(' ').skip(1);
            let how = words.next().unwrap();
            let victim: usize = words.next().unwrap().parse().unwrap();
            control.exchange("start", Vec::new()).unwrap();
            if me == victim {
                // The others have finished that exchange, too.
                for _ in 1..control.size() {
                    events.recv_timeout(LONG).unwrap();
                }
                match how {
                    "exit" => std::process::exit(words.next().unwrap().parse().unwrap()),
                    // Right after leaving, as when `main` returns an error.
                    "fail" => {
                        drop(control);
                        std::process::exit(5);
                    }
                    // Long after the others know that it has left.
                    "fail-late" => {
                        drop(control);
                        std::thread::sleep(Duration::from_secs(1));
                        std::process::exit(5);
                    }
                    "abort" => std::process::abort(),
                    other => panic!("{other}"),
                }
            }
            control.notify(Some(&[victim]), b"through").unwrap();
            while let Ok(event) = events.recv_timeout(LONG) {
                println!("{event:?}");
                let over = how == "fail" && matches!(event, Event::Left { .. });
                if over || matches!(event, Event::Lost { .. }) {
                    break;
                }
            }
            let error = control.exchange("step", Vec::new()).unwrap_err();
            println!("{error}");
            control.leave();
        }
        // Rank 0 is done when rank 2 has left, and rank 1 stays until rank 0 has said what it waits for.
        "late" => {
            control.exchange("start", Vec::new()).unwrap();
            let said = std::env::var_os("TEST_SAID").unwrap();
            if me == 0 {
                while events.recv_timeout(LONG).unwrap() != (Event::Left { rank: 2 }) {}
                rustix::stdio::dup2_stderr(std::fs::File::create(said).unwrap()).unwrap();
            } else if me == 1 {
                let started = Instant::now();
                let has_spoken = || {
                    let said = std::fs::read_to_string(&said);
                    said.is_ok_and(|said| said.contains("control plane"))
                };
                while !has_spoken() && started.elapsed() < LONG {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        }
        "exit-without-leaving" => {
            if me == 1 {
                std::process::exit(0);
            }
            let event = events.recv_timeout(LONG).unwrap();
            assert!(matches!(event, Event::Lost { rank: 1, .. }), "{event:?}");
        }
        // Reports events until all others have left or are lost.
        "watch" => {
            control.exchange("start", Vec::new()).unwrap();
            mark("ready", me);
            if me == 0 {
                while let Ok(event) = events.recv_timeout(LONG) {
                    println!("{event:?}");
                    mark("event", me);
                    if !matches!(event, Event::Message { .. }) {
                        break;
                    }
                }
            } else {
                // Until rank 0 or this rank is gone.
                while let Ok(event) = events.recv_timeout(LONG) {
                    println!("{event:?}");
                    if matches!(event, Event::Left { rank: 0 } | Event::Lost { rank: 0, .. }) {
                        break;
                    }
                }
            }
            control.leave();
        }
        // Measures how often the service wakes while nothing happens, and for how long.
        "idle" => {
            control.exchange("start", Vec::new()).unwrap();
            let (before, began) = (wakeups(), Instant::now());
            std::thread::sleep(Duration::from_secs(3));
            let count = wakeups() - before;
            println!("wakeups {count} {}", began.elapsed().as_millis());
            control.exchange("end", Vec::new()).unwrap();
            control.leave();
        }
        other => panic!("no such role: {other}"),
    }
}

/// A job in the role `watch`, and a function that waits for the marks of its ranks.
fn watched(ranks: usize, silence: &str) -> (Running, tempfile::TempDir) {
    let marks = tempfile::tempdir().unwrap();
    let job = job("watch", ranks)
        .env("TEST_MARKS", marks.path())
        .env("TIDEGATE_HEARTBEAT_MS", "50")
        .env("TIDEGATE_SILENCE_MS", silence)
        .spawn()
        .unwrap();
    for rank in 0..ranks {
        wait_for(&marks, &format!("ready.{rank}"));
    }
    (job, marks)
}

/// How often the threads of the control plane have gone to sleep.
fn wakeups() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let of = |task: std::fs::DirEntry| {
        let comm = std::fs::read_to_string(task.path().join("comm")).ok()?;
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        let line = status.lines().find(|line| line.starts_with("voluntary"))?;
        let count = line.split_whitespace().last()?.parse::<u64>().ok()?;
        comm.starts_with("tidegate").then_some(count)
    };
    tasks.filter_map(|task| of(task.ok()?)).sum()
}

#[test]
fn a_node_may_have_many_ranks() {
    for _ in 0..3 {
        let outcome = job("nothing", 150).grace(Duration::ZERO).run().unwrap();
        assert!(outcome.success(), "{:?}", first_failure(&outcome));
    }
}

fn first_failure(outcome: &Outcome) -> Option<&RankOutcome> {
    outcome.ranks.get(outcome.first_failure?)
}

#[test]
fn a_launched_job_joins_and_leaves() {
    for ranks in [1, 2, 8] {
        let outcome = job("nothing", ranks).run().unwrap();
        assert!(outcome.success(), "{outcome:?}");
    }
}

#[test]
fn a_sudden_death_is_noticed_by_all_at_once() {
    for (role, victim) in [("die", 1), ("die-first", 0)] {
        // Neither silence nor a heartbeat that cannot be sent shows it before that time.
        let job = job(role, 4).env("TIDEGATE_HEARTBEAT_MS", "40000");
        let outcome = job.env("TIDEGATE_SILENCE_MS", "120000").run().unwrap();
        assert_eq!(outcome.first_failure, Some(victim), "{outcome:?}");
        assert_eq!(outcome.exit_code(), 137);
        for rank in (0..4).filter(|rank| *rank != victim) {
            assert!(outcome.ranks[rank].status.success(), "{outcome:?}");
            let after = lines(&outcome, rank)
                .iter()
                .find_map(|line| line.strip_prefix("after ")?.parse().ok());
            let after: u64 = after.unwrap();
            assert!(after < 30_000, "{after} ms");
            let line = format!("peer {victim}: the connection ");
            assert!(has(&outcome, rank, &line), "{outcome:?}");
            assert!(
                has(&outcome, rank, &format!("victim {victim} true")),
                "{outcome:?}"
            );
        }
    }
}

#[test]
fn an_exit_without_leaving_is_a_loss() {
    let outcome = job("exit-without-leaving", 3).run().unwrap();
    assert!(outcome.success(), "{outcome:?}");
}

/// If a rank ends without leaving, events and exchanges give the reason.
#[test]
fn how_a_rank_has_ended_is_told_to_all() {
    let ends = [
        ("exit 1 3", "its program has failed (exit status 3)"),
        ("exit 0 3", "its program has failed (exit status 3)"),
        (
            "exit 1 0",
            "its program has ended (exit status 0) and dropped no world",
        ),
        (
            "exit 0 0",
            "its program has ended (exit status 0) and dropped no world",
        ),
        ("fail-late 0", "its program has failed (exit status 5)"),
        (
            "abort 1",
            "the connection was closed, as by a process that was killed or has crashed",
        ),
        (
            "abort 0",
            "the connection was closed, as by a process that was killed or has crashed",
        ),
    ];
    for (how, why) in ends {
        // A heartbeat that a process has not read when it aborts would make its kernel reset the connection.
        let job = job(&format!("end {how}"), 3).env("TIDEGATE_HEARTBEAT_MS", "40000");
        let outcome = job.env("TIDEGATE_SILENCE_MS", "120000").run().unwrap();
        let victim: usize = how.split(' ').nth(1).unwrap().parse().unwrap();
        for rank in (0..3).filter(|rank| *rank != victim) {
            assert!(outcome.ranks[rank].status.success(), "{how}: {outcome:?}");
            let event = format!("Lost {{ rank: {victim}, reason: \"{why}\" }}");
            assert!(has(&outcome, rank, &event), "{how}: {outcome:?}");
            // If it left first, the error says that it has left.
            let error = format!("rank {victim} will not come ({why})");
            let left = how.starts_with("fail") && has(&outcome, rank, "it has left the job");
            assert!(left || has(&outcome, rank, &error), "{how}: {outcome:?}");
        }
    }
}

/// A `main` that returns an error has dropped its world before. On a slow machine its process may end too late for the
/// others to be told, but not every time.
#[test]
fn a_rank_that_fails_when_it_has_just_left_has_failed() {
    const WHY: &str = "its program has failed (exit status 5)";
    for victim in [1, 0] {
        let told = (0..10).any(|_| {
            let role = format!("end fail {victim}");
            let outcome = job(&role, 2).run().unwrap();
            has(&outcome, 1 - victim, WHY)
        });
        assert!(told, "{victim}");
    }
}

/// A process that waits for others says so.
#[test]
fn the_end_of_rank_0_waits_for_the_others_and_names_them() {
    let said = tempfile::NamedTempFile::new().unwrap();
    let outcome = job("late", 3).env("TEST_SAID", said.path()).run().unwrap();
    assert!(outcome.success(), "{outcome:?}");
    let text = std::fs::read_to_string(said.path()).unwrap();
    let says = "rank 0 waits until rank 1 leaves the job, whose control plane it carries";
    assert!(text.contains(says), "{text}");
}

#[test]
fn a_process_may_join_one_job_after_the_other() {
    for ranks in [1, 2, 3, 8] {
        let role = match ranks {
            // No other rank could be kept from joining again.
            1 => "nothing",
            _ => "again 5",
        };
        let outcome = job(role, ranks).run().unwrap();
        assert!(outcome.success(), "{outcome:?}");
        for rank in 0..ranks {
            let there = format!("rank {rank} was there 5 times");
            assert!(ranks == 1 || has(&outcome, rank, &there), "{outcome:?}");
        }
    }
}

#[test]
fn ranks_that_variables_have_started_may_join_again() {
    // The port is free until rank 0 listens, as with other launchers, so another process may take it.
    assert!((0..20).any(|_| started_by_variables()));
}

/// Returns whether the port was still free.
fn started_by_variables() -> bool {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = port.local_addr().unwrap();
    drop(port);
    let start = |rank: usize| {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "role_of_a_rank", "--nocapture", "--quiet"]);
        command.env("TEST_ROLE", "again 5").env("WORLD_SIZE", "3");
        command.env("RANK", rank.to_string());
        command.env("MASTER_ADDR", address.ip().to_string());
        command.env("MASTER_PORT", address.port().to_string());
        command.env("TIDEGATE_SECRET", "0123456789abcdef");
        command
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap()
    };
    let [first, mut others @ ..] = [0, 2, 1].map(start);
    let output = first.wait_with_output().unwrap();
    if String::from_utf8_lossy(&output.stderr).contains("in use") {
        for rank in &mut others {
            rank.kill().unwrap();
            rank.wait().unwrap();
        }
        return false;
    }
    assert!(output.status.success(), "{output:?}");
    for rank in others {
        let output = rank.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}");
        assert!(text.contains("was there 5 times"), "{text}");
    }
    true
}

fn stop_and_continue(job: &Running, rank: usize, pause: Duration) {
    job.signal(rank, Signal::STOP).unwrap();
    std::thread::sleep(pause);
    job.signal(rank, Signal::CONT).unwrap();
}

#[test]
fn a_suspended_rank_is_given_up_after_the_silence() {
    let (job, marks) = watched(3, "5000");
    job.signal(2, Signal::STOP).unwrap();
    // Rank 0 gives the suspended rank up, says so and leaves. The suspended rank then finds itself cut off.
    wait_for(&marks, "event.0");
    job.signal(2, Signal::CONT).unwrap();
    let outcome = job.wait();
    assert!(
        has(
            &outcome,
            0,
            "Lost { rank: 2, reason: \"nothing was heard of it for 5.0s"
        ) && has(&outcome, 0, "TIDEGATE_SILENCE_MS says how long that may be"),
        "{outcome:?}"
    );
    assert!(has(&outcome, 1, "Lost { rank: 2"), "{outcome:?}");
    assert!(has(&outcome, 2, "gave this rank up"), "{outcome:?}");
}

#[test]
fn a_short_pause_is_no_death() {
    let (job, _marks) = watched(2, "60000");
    stop_and_continue(&job, 0, Duration::from_millis(300));
    stop_and_continue(&job, 1, Duration::from_millis(300));
    job.signal(1, Signal::KILL).unwrap();
    let outcome = job.wait();
    assert!(
        has(&outcome, 0, "Lost { rank: 1, reason: \"the connection"),
        "{outcome:?}"
    );
    assert!(!has(&outcome, 0, "nothing was heard"), "{outcome:?}");
}

#[test]
fn an_idle_control_plane_sleeps() {
    let outcome = job("idle", 4).run().unwrap();
    assert!(outcome.success(), "{outcome:?}");
    for rank in 0..4 {
        let line = lines(&outcome, rank)
            .into_iter()
            .find(|line| line.starts_with("wakeups"))
            .unwrap();
        let numbers: Vec<u64> = line
            .split_whitespace()
            .skip(1)
            .map(|word| word.parse().unwrap())
            .collect();
        let (count, took) = (numbers[0], numbers[1]);
        eprintln!("rank {rank}: {count} wake-ups in {took} ms");
        // The expected wake-ups are one heartbeat each second, and on rank 0 an answer of each other rank. There is
        // room for a loaded machine, on which the end of one exchange and the beginning of the next may come
        // separately.
        let beats = took.div_ceil(1000);
        let expected = if rank == 0 { beats * 4 } else { beats };
        assert!(count <= 2 * expected + 2 * 4, "rank {rank}: {count}");
    }
}

#[test]
fn an_incomplete_environment_is_an_error_by_name() {
    let run = |variables: &[(&str, &str)]| {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "role_of_a_rank", "--nocapture", "--quiet"]);
        command
            .env("TEST_ROLE", "nothing")
            .envs(variables.iter().copied());
        let output = command.output().unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    };
    assert_eq!(run(&[]).0, Some(0));
    let (code, text) = run(&[("RANK", "0")]);
    assert!(
        code == Some(3) && text.contains("WORLD_SIZE is not set"),
        "{text}"
    );
    let full = [
        ("RANK", "0"),
        ("WORLD_SIZE", "2"),
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", "1"),
    ];
    let (code, text) = run(&full);
    assert!(
        code == Some(3) && text.contains("TIDEGATE_SECRET is not set"),
        "{text}"
    );
    let secret = ("TIDEGATE_SECRET", "0123456789abcdef");
    for value in ["0:1", "3", "x:1", "3:", "3:x"] {
        let listen = ("TIDEGATE_LISTEN_FD", value);
        let (code, text) = run(&[&full[..], &[secret, listen]].concat());
        assert!(
            code == Some(3) && text.contains("TIDEGATE_LISTEN_FD"),
            "{text}"
        );
    }
}

#[test]
fn a_rank_that_never_comes_is_named() {
    let run = |timeout: &str| {
        Job::new("/bin/sh", 3)
            .args(["-c", "test $RANK = 1 && exit 0; exec \"$PROGRAM\" --exact role_of_a_rank --nocapture --quiet"])
            .env("PROGRAM", std::env::current_exe().unwrap())
            .env("TEST_ROLE", "nothing")
            .env("TIDEGATE_RENDEZVOUS_TIMEOUT", timeout)
            .output(Output::Captured)
            .grace(LONG)
            .run()
            .unwrap()
    };
    // On a slow machine another rank may come too late, too. Then the test tries a longer limit.
    let named = |outcome: &Outcome| {
        [0, 2]
            .iter()
            .all(|rank| has(outcome, *rank, "had not joined: [1]"))
    };
    let mut outcome = run("2");
    if !named(&outcome) {
        outcome = run("15");
    }
    assert!(named(&outcome), "{outcome:?}");
}

#[test]
fn a_rank_0_that_can_let_nobody_in_names_the_limit() {
    let run = |timeout: &str| {
        let script = "test $RANK = 0 && ulimit -n 16; exec \"$PROGRAM\" --exact role_of_a_rank --nocapture --quiet";
        Job::new("/bin/sh", 24)
            .args(["-c", script])
            .env("PROGRAM", std::env::current_exe().unwrap())
            .env("TEST_ROLE", "nothing")
            .env("TIDEGATE_RENDEZVOUS_TIMEOUT", timeout)
            .output(Output::Captured)
            .grace(LONG)
            .run()
            .unwrap()
    };
    let named = |outcome: &Outcome| {
        let limit = "no more than 16 descriptors (RLIMIT_NOFILE";
        has(outcome, 0, limit) && (1..24).any(|rank| has(outcome, rank, limit))
    };
    // On a slow machine too few ranks come in time to use up the descriptors.
    let mut outcome = run("2");
    if !named(&outcome) {
        outcome = run("20");
    }
    assert!(named(&outcome), "{outcome:?}");
}

/// No rank holds connections of many others, so a job may have many more ranks than any of them has descriptors.
#[test]
fn ranks_need_few_descriptors() {
    let script = "ulimit -n 64; exec \"$PROGRAM\" --exact role_of_a_rank --nocapture --quiet";
    let outcome = Job::new("/bin/sh", 100)
        .args(["-c", script])
        .env("PROGRAM", std::env::current_exe().unwrap())
        .env("TEST_ROLE", "nothing")
        .output(Output::Captured)
        .run()
        .unwrap();
    assert!(outcome.success(), "{:?}", first_failure(&outcome));
}

#[test]
fn errors_are_typed() {
    let error =
        TcpControl::join(tidegate_boot::Config::new(0, 2, "256.256.256.256:1", "x")).unwrap_err();
    assert!(matches!(error, BootError::Io { .. }), "{error}");
}
