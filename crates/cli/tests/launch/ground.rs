//! Common parts of the launcher's tests.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};
use tidegate_cli::Signal;

/// Long enough for a loaded machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// After this time, another request to end is not a part of the first.
pub(crate) const AGAIN: Duration = Duration::from_millis(1100);

/// `tidegate ARGS...` as a process of its own: this program again, in the role below.
pub(crate) fn tidegate(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "role_of_the_launcher", "--nocapture", "--quiet"]);
    command.env("TEST_CLI", args.join("\u{1}"));
    // This program may have been started by `nohup`, or by a background shell.
    let signals = [Signal::HUP, Signal::INT, Signal::TERM, Signal::USR1];
    begin_with(&mut command, signals, libc::SIG_DFL);
    command
}

/// Makes a process begin with `action` for some signals.
pub(crate) fn begin_with(
    command: &mut Command,
    signals: impl IntoIterator<Item = Signal>,
    action: libc::sighandler_t,
) {
    let signals: Vec<_> = signals.into_iter().map(Signal::as_raw).collect();
    // SAFETY: `signal` may be called between fork and exec; it neither allocates nor locks.
    unsafe {
        command.pre_exec(move || {
            for signal in &signals {
                libc::signal(*signal, action);
            }
            Ok(())
        });
    }
}

pub(crate) fn exists(pid: u32) -> bool {
    // A zombie that has not been waited for does not run any more.
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => !stat
            .rsplit(')')
            .next()
            .unwrap_or("")
            .trim_start()
            .starts_with('Z'),
        Err(_) => false,
    }
}

pub(crate) fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LONG, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
