//! Ends the programs that ranks have started, if the launcher cannot because it was killed.
//!
//! # Model
//!
//! If the launcher ends, the kernel kills the ranks, but not their children (such as a program that a shell script
//! starts). The guard is a small shell with a pipe to the launcher. The launcher tells it which process groups live.
//! When the pipe ends, the launcher has ended, and the guard kills the groups.
//!
//! # Failure
//!
//! On a host without `/bin/sh` there is no guard, and nothing else changes.

use rustix::process::Pid;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

const SCRIPT: &str = r#"
live=" "
while read -r what group; do
    case $what in
        +) live="$live$group " ;;
        -) live="${live%% $group *} ${live#* $group }" ;;
    esac
done
for group in $live; do kill -KILL "-$group"; done
"#;

pub(super) struct Guard(Child);

impl Guard {
    pub(super) fn start() -> Option<Self> {
        let started = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "tidegate-guard"])
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        match started {
            Ok(child) => Some(Self(child)),
            Err(error) => {
                tracing::debug!(%error, "no guard: children of ranks may outlive a launcher that is killed");
                None
            }
        }
    }

    fn tell(&mut self, what: char, group: Pid) {
        if let Some(pipe) = &mut self.0.stdin {
            let _ = pipe.write_all(format!("{what} {group}\n").as_bytes());
        }
    }

    /// Notes that a group lives.
    pub(super) fn watch(&mut self, group: Pid) {
        self.tell('+', group);
    }

    /// Notes that a group has ended. Call it before another process can get its number.
    pub(super) fn forget(&mut self, group: Pid) {
        self.tell('-', group);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // It is killed while its pipe is open. Otherwise it would take this end of the launcher for a sudden one.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
