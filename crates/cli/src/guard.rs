//! Ends what the ranks have started when the launcher can not: because it was killed itself.
//!
//! # Model
//!
//! The kernel kills the ranks when the launcher ends, but not their children (a program started by a shell script, say).
//! The guard is a small shell with a pipe to the launcher. It is told which process groups live; the end
//! of the pipe means that the launcher is no more, and it kills them.
//!
//! # Failure
//!
//! On a host without `/bin/sh` there is no guard, and nothing else is different.

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

    /// A group lives.
    pub(super) fn watch(&mut self, group: Pid) {
        self.tell('+', group);
    }

    /// A group has ended. To be said before its number can belong to somebody else.
    pub(super) fn forget(&mut self, group: Pid) {
        self.tell('-', group);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Killed while its pipe is open: it must not take this end of the launcher for a sudden one.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
