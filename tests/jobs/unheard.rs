//! If nobody reads the output, or if the subscriber to events panics (as the one of `tracing-subscriber` does then),
//! limits of windows still hold, and the loss of a rank is still noticed.

use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate::error::Cause;
use tidegate::host::prelude::*;

use crate::common::panics::Panics;

/// The variable that marks the child.
const CHILD: &str = "TIDEGATE_TEST_UNHEARD";
/// The child's exit code on success.
const IN_TIME: i32 = 42;

/// Rank 0 waits for rank 1, which does not complete. A report is due before the limit.
fn wait_in_vain() -> ! {
    std::thread::spawn(|| {
        std::thread::sleep(Duration::from_secs(60));
        std::process::exit(1);
    });
    let over = Barrier::new(2);
    World::local(2, |world: World| {
        world.report_waits_after(Duration::from_millis(200));
        stream!(let s = world.stream().unwrap());
        let other = 1 - world.rank();
        let mut window = SlotWindow::<u8>::new("late").fail_after(Duration::from_secs(3));
        window.slot_from(other, 0, 1);
        window.slot_to(other, 0);
        let (inbox, _outbox) = window.open(&s).unwrap();
        if world.rank() == 0 {
            let mut inbox = inbox.post(&s).unwrap().wait(&s).unwrap();
            match inbox.read(&s).err() {
                Some(Error::Wait(why)) => {
                    assert!(matches!(why.cause, Cause::Limit { .. }), "{why}")
                }
                other => panic!("{other:?}"),
            }
            // The report is made on another thread than the limit, and may come after it. If it never comes, the test
            // ends above.
            while world.last_report().is_none() {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        over.wait();
    });
    std::process::exit(IN_TIME);
}

/// Rank 0 waits for rank 1, which panics.
fn wait_for_the_lost() -> ! {
    std::thread::spawn(|| {
        std::thread::sleep(Duration::from_secs(60));
        std::process::exit(1);
    });
    let lost = AtomicBool::new(false);
    let opened = Barrier::new(2);
    let ranks = std::panic::AssertUnwindSafe(|| {
        World::local(2, |world: World| {
            stream!(let s = world.stream().unwrap());
            let other = 1 - world.rank();
            let mut window = SlotWindow::<u8>::new("lost");
            window.slot_from(other, 0, 1);
            window.slot_to(other, 0);
            let (inbox, _outbox) = window.open(&s).unwrap();
            opened.wait();
            assert_eq!(world.rank(), 0, "rank 1 panics");
            // The news is met here, or by the wait.
            let waited = inbox.post(&s);
            let waited = waited.and_then(|exposed| exposed.wait(&s));
            let cause = match waited.and_then(|mut inbox| inbox.read(&s).map(drop)) {
                Err(Error::Revoked { cause, .. }) => cause,
                Err(Error::Wait(why)) => why.cause,
                other => panic!("{other:?}"),
            };
            assert!(matches!(cause, Cause::PeerLost { rank: 1, .. }), "{cause}");
            lost.store(true, Ordering::Relaxed);
        })
    });
    std::panic::catch_unwind(ranks).unwrap_err();
    std::process::exit(if lost.into_inner() { IN_TIME } else { 1 });
}

/// Runs a test of this file again, as a process whose error output nobody reads.
fn again(name: &str) {
    assert_eq!(unheard(&mut child(name)), Some(IN_TIME));
}

/// This program again, for one of its tests.
fn child(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let name = format!("unheard::{name}");
    command.args([&name, "--exact", "--nocapture"]);
    command.env(CHILD, "1");
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

#[test]
fn a_report_that_nobody_reads_ends_no_limit() {
    match std::env::var_os(CHILD) {
        None => again("a_report_that_nobody_reads_ends_no_limit"),
        Some(_) => wait_in_vain(),
    }
}

/// The pipe is open and full, and nobody reads it.
#[test]
fn a_report_that_cannot_be_printed_yet_ends_no_limit() {
    if std::env::var_os(CHILD).is_none() {
        let mut command = child("a_report_that_cannot_be_printed_yet_ends_no_limit");
        let mut child = command.spawn().unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(IN_TIME));
        return drop(child.stderr);
    }
    std::thread::spawn(|| {
        loop {
            eprintln!("nobody reads this");
        }
    });
    wait_in_vain();
}

#[test]
fn a_subscriber_that_panics_ends_no_limit() {
    if std::env::var_os(CHILD).is_none() {
        return again("a_subscriber_that_panics_ends_no_limit");
    }
    tracing::subscriber::set_global_default(Panics).unwrap();
    wait_in_vain();
}

#[test]
fn a_loss_that_a_subscriber_panics_over_is_heard_of() {
    if std::env::var_os(CHILD).is_none() {
        return again("a_loss_that_a_subscriber_panics_over_is_heard_of");
    }
    tracing::subscriber::set_global_default(Panics).unwrap();
    wait_for_the_lost();
}

/// How a program ends if nobody reads its error output.
fn unheard(command: &mut Command) -> Option<i32> {
    let command = command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stderr.take());
    child.wait().unwrap().code()
}
