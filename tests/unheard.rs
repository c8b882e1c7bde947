//! Where nobody reads what is printed, limits of windows hold all the same, and the launcher ends as it says.

use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::time::Duration;

use tidegate::Error;
use tidegate::error::Cause;
use tidegate::prelude::*;

/// In the environment of the child.
const CHILD: &str = "TIDEGATE_TEST_UNHEARD";
/// What the child's exit says.
const IN_TIME: i32 = 42;

/// Rank 0 waits for rank 1, which does not complete. A report is due before the limit.
fn wait_in_vain() -> ! {
    std::thread::spawn(|| {
        std::thread::sleep(Duration::from_secs(20));
        std::process::exit(1);
    });
    let over = Barrier::new(2);
    World::local(2, |world: World| {
        world.report_waits_after(Duration::from_millis(200));
        stream!(let s = world.stream().unwrap());
        let other = 1 - world.rank();
        let window = Window::<u8, _>::by_slot("late").fail_after(Duration::from_secs(3));
        let window = window.slot_from(other, 0, 1).slot_to(other, 0);
        let (inbox, _outbox) = window.open(&s).unwrap();
        if world.rank() == 0 {
            let mut inbox = inbox.post(&s).unwrap().wait(&s).unwrap();
            match inbox.read(&s).err() {
                Some(Error::Wait(why)) => {
                    assert!(matches!(why.cause, Cause::Limit { .. }), "{why}")
                }
                other => panic!("{other:?}"),
            }
            assert!(world.last_report().is_some());
        }
        over.wait();
    });
    std::process::exit(IN_TIME);
}

#[test]
fn a_report_that_nobody_reads_ends_no_limit() {
    if std::env::var_os(CHILD).is_some() {
        wait_in_vain();
    }
    let name = "a_report_that_nobody_reads_ends_no_limit";
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([name, "--exact", "--nocapture"]);
    assert_eq!(unheard(command.env(CHILD, "1")), Some(IN_TIME));
}

/// How a program ends whose errors nobody reads.
fn unheard(command: &mut Command) -> Option<i32> {
    let command = command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stderr.take());
    child.wait().unwrap().code()
}

#[test]
fn the_launcher_says_that_there_is_no_such_program() {
    let mut launcher = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let code = unheard(launcher.args(["run", "-n", "1", "./there/is/no/such/program"]));
    assert_eq!(code, Some(127));
}
