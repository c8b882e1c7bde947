//! Running a command with a limit to the time it may take.
//!
//! A messaging library's natural bug is a hang. A check that hangs must end as a failed step that names what was still
//! running, not as a job that some outer limit kills without a word.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use crate::command::Cmd;

/// Runs the command to its end. The error says why it failed: its exit status, or that it did not end by `deadline`, in
/// which case it and all that it started are killed.
pub(crate) fn run(command: &Cmd, dir: &Path, deadline: Instant) -> Result<(), String> {
    wait(command, command.to_command(dir), deadline)
}

/// Runs the commands at the same time, as many as there are processors. What one says is printed when it has ended, as one
/// piece. All are run to their end; the error is that of the first that failed.
pub(crate) fn run_beside(
    commands: &[Cmd],
    dir: &Path,
    scratch: &Path,
    deadline: Instant,
) -> Result<(), String> {
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(command) = commands.get(at) else {
                return;
            };
            let said = scratch.join(format!("said-{at}"));
            let result = (|| {
                let write = |error| format!("cannot write {}: {error}", said.display());
                let output = File::create(&said).map_err(write)?;
                let mut started = command.to_command(dir);
                started
                    .stderr(output.try_clone().map_err(write)?)
                    .stdout(output);
                wait(command, started, deadline)
            })();
            let mut failures = failures.lock().expect("nobody panics");
            println!("$ {command}");
            // Best effort, as printing is.
            if let Ok(said) = fs::read(&said) {
                let _ = io::stdout().write_all(&said);
            }
            failures.extend(result.err().map(|why| (at, why)));
        }
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..workers.min(commands.len()) {
            scope.spawn(work);
        }
    });
    let failures = failures.into_inner().expect("nobody panics");
    let first = failures.into_iter().min_by_key(|(at, _)| *at);
    first.map_or(Ok(()), |(_, why)| Err(why))
}

/// Starts it, and waits for its end.
fn wait(command: &Cmd, mut started: Command, deadline: Instant) -> Result<(), String> {
    let mut child = started
        .spawn()
        .map_err(|error| format!("cannot start `{command}`: {error}"))?;
    loop {
        match child.try_wait() {
            Err(error) => return Err(format!("cannot wait for `{command}`: {error}")),
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("{status}")),
            Ok(None) if Instant::now() < deadline => sleep(Duration::from_millis(20)),
            Ok(None) => {
                let running = kill_tree(child.id());
                let _ = child.wait();
                return Err(format!("out of time; still running: {running}"));
            }
        }
    }
}

/// Kills a process and its descendants, and says which programs at the ends of that tree were running.
///
/// The tree is read from `/proc`. A process group would be simpler to kill, but a group of its own does not get the
/// terminal's Ctrl-C, and outlives whoever kills only ours.
fn kill_tree(root: u32) -> String {
    let table: Vec<(u32, u32)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| {
            Some((
                pid,
                parent(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?,
            ))
        })
        .collect();
    let tree = descendants(root, &table);
    let leaves = tree
        .iter()
        .filter(|pid| !table.iter().any(|(_, parent)| parent == *pid));
    let mut names: Vec<String> = leaves.map(|&pid| command_line(pid)).collect();
    names.sort();
    names.dedup();
    // The shell's own `kill`: std cannot signal a process that it did not start, and `kill` as a program is a package.
    let _ = Command::new("sh")
        .args(["-c", r#"kill -KILL "$@""#, "sh"])
        .args(tree.iter().map(u32::to_string))
        .status();
    names.join("; ")
}

/// The parent's id in the text of `/proc/PID/stat`: `PID (NAME) STATE PARENT ...`, where the name may hold anything.
fn parent(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

/// `root` and all below it, in a table of (process, parent).
fn descendants(root: u32, table: &[(u32, u32)]) -> Vec<u32> {
    let mut tree = vec![root];
    let mut at = 0;
    while at < tree.len() {
        let parent = tree[at];
        tree.extend(
            table
                .iter()
                .filter(|entry| entry.1 == parent)
                .map(|entry| entry.0),
        );
        at += 1;
    }
    tree
}

fn command_line(pid: u32) -> String {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&words)
        .split('\0')
        .collect::<Vec<_>>()
        .join(" ")
        .trim()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::cmd;

    #[test]
    fn reports_success_and_failure() {
        let deadline = Instant::now() + Duration::from_secs(60);
        assert_eq!(run(&cmd("true"), Path::new("."), deadline), Ok(()));
        assert_eq!(
            run(&cmd("false"), Path::new("."), deadline),
            Err("exit status: 1".to_owned())
        );
        assert!(
            run(&cmd("no-such-program-as-this"), Path::new("."), deadline)
                .unwrap_err()
                .contains("cannot start")
        );
    }

    #[test]
    fn ends_what_hangs_and_names_it() {
        let started = Instant::now();
        let hangs = cmd("sh -c").arg("sleep 61.25; true");
        // A slow machine may not have started it by then: then it has longer.
        let mut errors = [300, 3_000, 15_000].into_iter().map(|limit| {
            let deadline = Instant::now() + Duration::from_millis(limit);
            run(&hangs, Path::new("."), deadline).unwrap_err()
        });
        let named = errors.any(|error| error == "out of time; still running: sleep 61.25");
        assert!(named && started.elapsed() < Duration::from_secs(50));
    }

    #[test]
    fn several_end_each_in_its_way() {
        let scratch = std::env::temp_dir().join(format!("tidegate-beside-{}", std::process::id()));
        fs::create_dir_all(&scratch).unwrap();
        let commands = ["true", "false", "no-such-program-as-this", "true"].map(cmd);
        let deadline = Instant::now() + Duration::from_secs(60);
        let error = run_beside(&commands, Path::new("."), &scratch, deadline).unwrap_err();
        assert_eq!(error, "exit status: 1");
        let commands = ["echo one", "echo two"].map(cmd);
        assert_eq!(
            run_beside(&commands, Path::new("."), &scratch, deadline),
            Ok(())
        );
        assert_eq!(fs::read(scratch.join("said-1")).unwrap(), b"two\n");
        fs::remove_dir_all(&scratch).unwrap();
    }

    #[test]
    fn reads_the_process_table() {
        assert_eq!(parent("12 (a b) c) S 7 12 12 0 -1"), Some(7));
        assert_eq!(
            descendants(2, &[(1, 0), (2, 1), (3, 2), (4, 3), (5, 1)]),
            [2, 3, 4]
        );
    }
}
