//! Errors that somebody could make in the kernel: each is found by a test that is there for it.
//!
//! # Failure
//!
//! A kernel that is wrong may read and write anywhere, so each is run by a process of its own, which it may take down.
//! It is found when the check says what is wrong, when the test panics, or when the process dies of what the kernel did.
//! A kernel that goes in circles is ended by the emulated machine, which counts its steps, and by nothing else: a
//! process that has not ended in time, or that somebody else has ended, has shown nothing, and fails the test.

use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::machine::{MACHINE, Machine, SMALL, Scratch, compile_machine};
use super::protocol::Form;
use super::{failure, landings as lands, moves, neighbours, order, protocol, waits};

mod landings;
mod short;
mod steps;
mod teams;
mod wait;

type Check = fn(&mut Machine) -> Result<(), String>;

/// What is found by what: `(check, before, after)`.
type Mutant = (Check, &'static str, &'static str);

const MOVES: Check = |machine| moves::check(machine, 0..400);
const EXTREMES: Check = |machine| moves::extremes::check(machine);
const REDUCTIONS: Check = |machine| moves::reductions::check(machine, 0..200);
const TURNS: Check = |machine| moves::turns::check(machine, 0..100);
const PARITIES: Check = |machine| moves::check_parities(machine, 0..200);
const EPOCHS: Check = |machine| protocol::check(machine, Form::Whole, 0..60, 20);
const POISON: Check = |machine| failure::check_poison(machine, Form::Whole, 0..150);
const ABORT: Check = |machine| failure::check_abort(machine, Form::Whole, 0..100);
const FOLLOW: Check = |machine| failure::check_follow(machine, 0..500);
const REPORTS: Check = |machine| failure::check_reports(machine, 0..40);
const REPORTS_BY_TURNS: Check = |machine| failure::check_reports_by_turns(machine, 0..10);
const ORDER: Check = |machine| order::check(machine, 0..80);
const LOOKS: Check = |machine| order::check_looks(machine, 0..40);
const WAITS: Check = |machine| waits::check(machine, 0..400);
const LANDED: Check = |machine| lands::check_waits(machine, 0..200);
const LANDING: Check = |machine| lands::check_puts(machine, 0..200);
const NEIGHBOURS: Check = |machine| neighbours::check(machine, 0..100);

fn mutants() -> Vec<Mutant> {
    [
        steps::MUTANTS,
        short::MUTANTS,
        wait::MUTANTS,
        teams::MUTANTS,
        landings::MUTANTS,
    ]
    .concat()
}

/// Names the error for a process that is to look for it.
const WHICH: &str = "TIDEGATE_MUTANT";
const BUILT: &str = "the kernel with the error is built";
const PASSED: &str = "the kernel with the error has passed";
const FOUND: &str = "the kernel with the error is found:";

/// How long a process may take: ten times what the longest takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// How the check of an error finds it.
///
/// # Errors
///
/// It does not, or nothing is known.
fn find(number: usize, machine: &Path) -> Result<String, String> {
    let name = concat!(module_path!(), "::one_error");
    let name = name
        .split_once("::")
        .expect("the crate's name comes first")
        .1;
    let mut child = Command::new(std::env::current_exe().expect("the test has a name"))
        .args(["--exact", name, "--ignored", "--nocapture"])
        .env(WHICH, number.to_string())
        .env(MACHINE, machine)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the test can be run");
    let begun = Instant::now();
    // It says three short lines, which the pipe has room for: they are read when it has ended.
    let status = loop {
        if let Some(status) = child.try_wait().expect("it is a child") {
            break status;
        }
        if begun.elapsed() > PATIENCE {
            child.kill().expect("it is a child");
            child.wait().expect("it is a child");
            return Err(format!("is undecided: no end after {PATIENCE:?}"));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let (mut said, mut stdout) = (Vec::new(), child.stdout.take().expect("it is a pipe"));
    stdout.read_to_end(&mut said).expect("it can be read");
    verdict(&String::from_utf8_lossy(&said), status)
}

/// What a process that has ended has shown.
fn verdict(said: &str, status: ExitStatus) -> Result<String, String> {
    if !said.contains(BUILT) {
        return Err(format!("was not built: {said}"));
    }
    if said.contains(PASSED) {
        return Err("is not found".into());
    }
    if let Some((_, why)) = said.split_once(FOUND) {
        return Ok(why.lines().next().unwrap_or_default().trim().to_owned());
    }
    /// Of processes that do what none may: SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGSEGV.
    const OWN: [i32; 5] = [4, 6, 7, 8, 11];
    /// What a test ends with that has panicked.
    const PANICKED: i32 = 101;
    match (status.signal(), status.code()) {
        (Some(signal), _) if OWN.contains(&signal) => Ok(format!("died of signal {signal}")),
        (_, Some(PANICKED)) => Ok("the test has panicked".into()),
        _ => Err(format!(
            "is undecided: it ended with {status}, and said {said}"
        )),
    }
}

#[test]
fn only_what_the_kernel_did_counts() {
    let signal = ExitStatus::from_raw;
    let code = |code: i32| ExitStatus::from_raw(code << 8);
    let built = |more: &str| format!("{BUILT}\n{more}");
    assert!(verdict(&built(FOUND), code(0)).is_ok());
    assert!(verdict(&built(""), signal(11)).is_ok());
    assert!(verdict(&built(""), code(101)).is_ok());
    for (said, status) in [
        (built(PASSED), code(0)),
        (built(""), code(0)),
        // Ended by somebody else: for want of memory, for example.
        (built(""), signal(9)),
        (built(""), signal(15)),
        (String::new(), code(101)),
        (String::new(), signal(11)),
    ] {
        assert!(verdict(&said, status).is_err(), "{said}, {status}");
    }
}

#[test]
fn errors_in_the_kernel_are_found() {
    let scratch = Scratch::new();
    let machine = scratch.file("machine.o");
    // Without a compiler there is nothing to look for.
    if compile_machine(SMALL, &machine).is_none() {
        return;
    }
    let mutants = mutants();
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some((_, before, after)) = mutants.get(number) else {
                return;
            };
            match find(number, &machine) {
                Ok(how) => println!("{number}: {how}"),
                Err(why) => {
                    let error = format!("{number}: `{before}` as `{after}` {why}");
                    missed.lock().expect("nobody panics").push(error);
                }
            }
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers.min(8) {
            scope.spawn(work);
        }
    });
    let missed = missed.into_inner().expect("nobody panics");
    assert!(missed.is_empty(), "{missed:#?}");
}

/// What a process of its own does.
#[test]
#[ignore = "run by the other test"]
fn one_error() {
    let Some(number) = std::env::var_os(WHICH) else {
        return;
    };
    let number: usize = number.to_string_lossy().parse().expect("a number");
    let (check, before, after) = mutants()[number];
    let mut machine = Machine::new(SMALL, &[(before, after)]).expect("there is a compiler");
    println!("{BUILT}");
    match check(&mut machine) {
        Ok(()) => println!("{PASSED}"),
        // What is wrong may be a long list.
        Err(why) => println!("{FOUND} {}", why.chars().take(200).collect::<String>()),
    }
}
