//! Errors that somebody could make in the kernel: each is found by a test that is there for it.
//!
//! # Failure
//!
//! A kernel that is wrong may read and write anywhere, so each is run by a process of its own, which it may take down,
//! or keep from ending.

use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::machine::{Machine, SMALL};
use super::protocol::Form;
use super::{failure, moves, neighbours, order, protocol, waits};

mod short;
mod steps;
mod teams;
mod wait;

type Check = fn(&mut Machine) -> Result<(), String>;

/// What is found by what: `(check, before, after)`.
type Mutant = (Check, &'static str, &'static str);

const MOVES: Check = |machine| moves::check(machine, 0..400);
const PARITIES: Check = |machine| moves::check_parities(machine, 0..200);
const EPOCHS: Check = |machine| protocol::check(machine, Form::Whole, 0..60, 20);
const POISON: Check = |machine| failure::check_poison(machine, Form::Whole, 0..150);
const ABORT: Check = |machine| failure::check_abort(machine, Form::Whole, 0..100);
const FOLLOW: Check = |machine| failure::check_follow(machine, 0..500);
const REPORTS: Check = |machine| failure::check_reports(machine, 0..40);
const ORDER: Check = |machine| order::check(machine, 0..80);
const LOOKS: Check = |machine| order::check_looks(machine, 0..40);
const WAITS: Check = |machine| waits::check(machine, 0..400);
const NEIGHBOURS: Check = |machine| neighbours::check(machine, 0..100);

fn mutants() -> Vec<Mutant> {
    [
        steps::MUTANTS,
        short::MUTANTS,
        wait::MUTANTS,
        teams::MUTANTS,
    ]
    .concat()
}

/// Names the error for a process that is to look for it.
const WHICH: &str = "TIDEGATE_MUTANT";
const BUILT: &str = "the kernel with the error is built";
const PASSED: &str = "the kernel with the error has passed";

/// Whether the check of an error finds it.
fn is_found(number: usize) -> Result<(), String> {
    let name = concat!(module_path!(), "::one_error");
    let name = name
        .split_once("::")
        .expect("the crate's name comes first")
        .1;
    let mut child = Command::new(std::env::current_exe().expect("the test has a name"))
        .args(["--exact", name, "--ignored", "--nocapture"])
        .env(WHICH, number.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the test can be run");
    let begun = Instant::now();
    while child.try_wait().expect("it is a child").is_none() {
        // In circles.
        if begun.elapsed() > Duration::from_secs(60) {
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let said = child.wait_with_output().expect("it is a child").stdout;
    let said = String::from_utf8_lossy(&said);
    match (said.contains(BUILT), said.contains(PASSED)) {
        (true, false) => Ok(()),
        (true, true) => Err("is not found".into()),
        (false, _) => Err(format!("was not built: {said}")),
    }
}

#[test]
fn errors_in_the_kernel_are_found() {
    // Without a compiler there is nothing to look for.
    if Machine::new(SMALL, &[]).is_none() {
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
            if let Err(why) = is_found(number) {
                let error = format!("{number}: `{before}` as `{after}` {why}");
                missed.lock().expect("nobody panics").push(error);
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
        Err(why) => println!("{why}"),
    }
}
