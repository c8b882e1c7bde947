//! Children of this process.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, waitpid};

/// Longer than a child takes on any machine.
const LONG: Duration = Duration::from_secs(60);

/// Waits for a child. Panics if it hangs.
pub(crate) fn ended(child: i32) -> WaitStatus {
    let pid = Pid::from_raw(child).unwrap();
    let start = Instant::now();
    loop {
        if let Some((_, status)) = waitpid(Some(pid), WaitOptions::NOHANG).unwrap() {
            return status;
        }
        if start.elapsed() > LONG {
            kill_process(pid, Signal::KILL).unwrap();
            panic!("the child hangs");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
