//! Errors that someone could make in the kernel. Each must be found by the test that is meant to find it.
//!
//! # Failure
//!
//! A wrong kernel may read and write anywhere, so each runs in a process of its own. An error is found if the check
//! reports it, if the test panics, or if the process dies of the kernel's actions. A kernel that never ends is ended by
//! the emulated machine, which counts its steps. If anything else ends the process, that shows nothing, and the test
//! fails.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::machine::{MACHINE, Machine, SMALL, Scratch, compile_machine, kernel_source};
use super::protocol::Form;
use super::{
    checks, failure, folds as combines, landings as lands, moves, neighbours, order, protocol,
    waits,
};

mod folds;
mod landings;
mod short;
mod steps;
mod teams;
mod wait;

type Check = fn(&mut Machine) -> Result<(), String>;

/// An error and its check: `(check, before, after)`.
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
const CHECKS: Check = |machine| checks::check(machine, 0..600);
const LOOKS: Check = |machine| order::check_looks(machine, 0..40);
const WAITS: Check = |machine| waits::check(machine, 0..400);
const LANDED: Check = |machine| lands::check_waits(machine, 0..200);
const LANDING: Check = |machine| lands::check_puts(machine, 0..200);
const FOLDS: Check = |machine| combines::check(machine, 0..900);
const FOLD_REPORTS: Check = |machine| combines::check_reports(machine, 0..30);
const NEIGHBOURS: Check = |machine| neighbours::check(machine, 0..100);

fn mutants() -> Vec<Mutant> {
    [
        steps::MUTANTS,
        short::MUTANTS,
        wait::MUTANTS,
        teams::MUTANTS,
        landings::MUTANTS,
        folds::MUTANTS,
    ]
    .concat()
}

/// The errors to look for, with their numbers. The default is all. The environment can choose a part (`2/5`: each fifth
/// from the third on), plus those that concern the changes in a file (the output of `git diff`).
fn chosen() -> Vec<(usize, Mutant)> {
    let mutants = mutants().into_iter().enumerate();
    let Ok(part) = std::env::var("TIDEGATE_MUTANTS") else {
        return mutants.collect();
    };
    let numbers = part.split_once('/').and_then(|(turn, of)| {
        let of: usize = of.parse().ok().filter(|of| *of > 0)?;
        Some((turn.parse::<usize>().ok()?, of))
    });
    let (turn, of) =
        numbers.unwrap_or_else(|| panic!("TIDEGATE_MUTANTS is {part}, not such as 2/5"));
    let diff = std::env::var_os("TIDEGATE_MUTANTS_DIFF").map(std::fs::read_to_string);
    let diff = diff.map(|diff| diff.expect("the changes can be read"));
    let diff = diff.unwrap_or_default();
    let chosen: Vec<_> = mutants
        .filter(|(number, mutant)| number % of == turn % of || is_changed(mutant, &diff))
        .collect();
    println!("{} errors, by TIDEGATE_MUTANTS={part}", chosen.len());
    chosen
}

/// Whether the changes contain a line of the kernel that the error changes, or the error itself in these sources.
fn is_changed((_, before, after): &Mutant, diff: &str) -> bool {
    // A line with only a brace is in every change.
    const SHORT: usize = 10;
    let quoted = |text: &&str| text.escape_debug().to_string().replace("\\'", "'");
    let in_kernel = before.lines().map(|line| line.trim().to_owned());
    let here = [*before, *after];
    let parts = in_kernel.chain(here.iter().map(quoted));
    let parts: Vec<_> = parts.filter(|part| part.len() > SHORT).collect();
    let mut added = diff.lines().filter_map(|line| line.strip_prefix('+'));
    added.any(|line| parts.iter().any(|part| line.contains(part)))
}

/// The environment variable that names the error for a process that looks for it.
const WHICH: &str = "TIDEGATE_MUTANT";
const BUILT: &str = "the kernel with the error is built";
const PASSED: &str = "the kernel with the error has passed";
const FOUND: &str = "the kernel with the error is found:";

/// Looks for an error in a process of its own, and returns how its check finds it.
///
/// # Errors
///
/// If the error is not found, or if the process shows nothing.
fn find(number: usize, machine: &Path) -> Result<String, String> {
    let name = concat!(module_path!(), "::one_error");
    let name = name
        .split_once("::")
        .expect("the crate's name comes first")
        .1;
    let output = Command::new(std::env::current_exe().expect("the test has a name"))
        .args(["--exact", name, "--ignored", "--nocapture"])
        .env(WHICH, number.to_string())
        .env(MACHINE, machine)
        .stderr(Stdio::null())
        .output()
        .expect("the test can be run");
    verdict(&String::from_utf8_lossy(&output.stdout), output.status)
}

/// The verdict of a process that has ended.
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
    /// Signals for forbidden actions: SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGSEGV.
    const OWN: [i32; 5] = [4, 6, 7, 8, 11];
    /// The exit code of a test that has panicked.
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
        // The process was ended from outside, for example because memory was short.
        (built(""), signal(9)),
        (built(""), signal(15)),
        (String::new(), code(101)),
        (String::new(), signal(11)),
    ] {
        assert!(verdict(&said, status).is_err(), "{said}, {status}");
    }
}

#[test]
fn changed_errors_are_known_by_the_changes() {
    let kernel: Mutant = (MOVES, "  x = load(at);\n", "");
    let diff = |line: &str| format!("+++ b/kernels/batch.cu\n@@ -1 +1 @@\n-y\n{line}\n");
    assert!(is_changed(&kernel, &diff("+    x = load(at);")));
    assert!(!is_changed(&kernel, &diff("-    x = load(at);")));
    assert!(!is_changed(&kernel, &diff("+    x = load(there);")));
    let short: Mutant = (MOVES, "}\n", "}\n'b' goes on;");
    assert!(!is_changed(&short, &diff("+}")));
    assert!(is_changed(&short, &diff(r#"+        "}\n'b' goes on;","#)));
}

/// A run looks for some of the errors only. This finds each that no longer fits the kernel.
#[test]
fn each_error_has_one_place_in_the_kernel() {
    let source = kernel_source();
    let places = |(_, before, _): &Mutant| source.matches(before).count();
    let lost = mutants().into_iter().filter(|mutant| places(mutant) != 1);
    let lost: Vec<_> = lost.map(|(_, before, _)| before).collect();
    assert!(lost.is_empty(), "{lost:#?}");
}

#[test]
fn errors_in_the_kernel_are_found() {
    let scratch = Scratch::new();
    let machine = scratch.file("machine.o");
    // Without a compiler no error can be looked for.
    if compile_machine(SMALL, &machine).is_none() {
        return;
    }
    let mutants = chosen();
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let next = next.fetch_add(1, Ordering::Relaxed);
            let Some(&(number, (_, before, after))) = mutants.get(next) else {
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

/// The part of the test that runs in a process of its own.
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
        // The list of differences may be long.
        Err(why) => println!("{FOUND} {}", why.chars().take(200).collect::<String>()),
    }
}
