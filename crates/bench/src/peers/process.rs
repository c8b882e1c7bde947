//! A program with a limit to its time.
//!
//! Its output goes to files, so the program never waits for a reader, and the output can be read later.

use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a program that was told to end has to do so: launchers end their ranks meanwhile.
const GRACE: Duration = Duration::from_secs(5);

/// How a program ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// Whether it ended by itself, with 0.
    pub(super) well: bool,
    /// `exit code 1`, `no end after 60 s`, …
    pub(super) how: String,
    pub(super) took: Duration,
    /// Its standard output.
    pub(super) out: String,
    /// The last lines of its standard error.
    pub(super) last_words: String,
}

/// Runs a program to its end, or to that of `limit`: then it is told to end, and a little later made to. `NAME.jsonl`
/// and `NAME.log` in `logs` have its output.
pub(super) fn run(
    mut command: Command,
    limit: Duration,
    logs: &Path,
    name: &str,
) -> io::Result<Ended> {
    let (out, err) = (
        logs.join(format!("{name}.jsonl")),
        logs.join(format!("{name}.log")),
    );
    command
        .stdout(File::create(&out)?)
        .stderr(File::create(&err)?);
    let begin = Instant::now();
    let mut child = command.spawn().map_err(|error| {
        let program = command.get_program().to_string_lossy();
        io::Error::new(error.kind(), format!("{program}: {error}"))
    })?;
    let mut told = false;
    let status: ExitStatus = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        let elapsed = begin.elapsed();
        if elapsed >= limit && !told {
            told = true;
            if let Some(pid) = Pid::from_raw(child.id() as i32) {
                // It may have ended just now.
                _ = kill_process(pid, Signal::TERM);
            }
        }
        if elapsed >= limit + GRACE {
            child.kill()?;
        }
        sleep(Duration::from_millis(10));
    };
    let how = match (told, status.code()) {
        (true, _) => format!("no end after {} s", limit.as_secs_f64()),
        (_, Some(code)) => format!("exit code {code}"),
        (_, None) => status.to_string(),
    };
    let text = |path: &Path| -> io::Result<String> {
        Ok(String::from_utf8_lossy(&std::fs::read(path)?).into_owned())
    };
    let words = text(&err)?;
    let words: Vec<&str> = words
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    Ok(Ended {
        well: status.success() && !told,
        how,
        took: begin.elapsed(),
        out: text(&out)?,
        last_words: words[words.len().saturating_sub(3)..].join("; "),
    })
}
