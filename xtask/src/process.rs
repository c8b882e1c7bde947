//! Running a command, with an eye on whether it gets on (see [`crate::watch`]).
//!
//! A messaging library's natural bug is a hang. A check that hangs must end as a failed step that says what was still
//! running, not as a job that some outer limit kills without a word.

use std::io::{self, IsTerminal as _, PipeReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::command::Cmd;
use crate::watch::{Limits, Watch, kill_tree};

/// How often a command's processes are looked at, and how often it is looked whether it has ended.
const LOOK: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(20);

/// How long a command's output is waited for when it has ended. Something that it has left behind may hold it open.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Runs the command to its end. The error says why it failed: its exit status, or that it hung, in which case it and all
/// that it started are killed.
pub(crate) fn run(command: &Cmd, dir: &Path) -> Result<(), String> {
    let mut screen = io::stdout();
    // Best effort, as printing is.
    let print = |said: &[u8]| drop(screen.write_all(said).and_then(|()| screen.flush()));
    run_within(command, dir, Limits::USUAL, print)
}

/// Runs the commands at the same time, as many as there are processors. What one says is printed when it has ended, as one
/// piece. All are run to their end; the error is that of the first that failed.
pub(crate) fn run_beside(commands: &[Cmd], dir: &Path) -> Result<(), String> {
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(command) = commands.get(at) else {
                return;
            };
            let mut said = Vec::new();
            let keep = |more: &[u8]| said.extend_from_slice(more);
            let result = run_within(command, dir, Limits::USUAL, keep);
            let mut failures = failures.lock().expect("nobody panics");
            println!("$ {command}");
            let _ = io::stdout().write_all(&said);
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

/// Starts it, hands on what it says, and waits for its end.
fn run_within(
    command: &Cmd,
    dir: &Path,
    limits: Limits,
    hand_on: impl FnMut(&[u8]),
) -> Result<(), String> {
    let start = || {
        let (reader, writer) = io::pipe()?;
        let mut command = command.to_command(dir);
        if io::stdout().is_terminal() && std::env::var_os("CARGO_TERM_COLOR").is_none() {
            // Cargo does not see the terminal.
            command.env("CARGO_TERM_COLOR", "always");
        }
        let child = command.stderr(writer.try_clone()?).stdout(writer).spawn()?;
        io::Result::Ok((child, reader))
    };
    let (mut child, reader) = start().map_err(|why| format!("cannot start `{command}`: {why}"))?;
    let said = Said {
        chunks: read(reader),
        line: Vec::new(),
        watch: Watch::new(limits),
        hand_on,
    };
    match said.follow(&mut child) {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(status.to_string()),
        Err(why) => {
            kill_tree(child.id());
            let _ = child.wait();
            Err(why)
        }
    }
}

/// What comes out of a pipe, until nobody has its other end any more.
fn read(mut pipe: PipeReader) -> Receiver<Vec<u8>> {
    let (sender, chunks) = channel();
    thread::spawn(move || {
        let mut chunk = vec![0; 1 << 16];
        while let Ok(read @ 1..) = pipe.read(&mut chunk) {
            if sender.send(chunk[..read].to_owned()).is_err() {
                return;
            }
        }
    });
    chunks
}

/// What a command says, as it comes.
struct Said<F> {
    chunks: Receiver<Vec<u8>>,
    /// The last line, which has not ended.
    line: Vec<u8>,
    watch: Watch,
    hand_on: F,
}

impl<F: FnMut(&[u8])> Said<F> {
    /// Until the command has ended; the error says how it hangs.
    fn follow(mut self, child: &mut Child) -> Result<ExitStatus, String> {
        let mut looked = Instant::now();
        loop {
            match self.chunks.recv_timeout(POLL) {
                Ok(chunk) => self.hear(&chunk),
                Err(RecvTimeoutError::Timeout) => {}
                // It has closed its output, and goes on.
                Err(RecvTimeoutError::Disconnected) => thread::sleep(POLL),
            }
            let ended = child
                .try_wait()
                .map_err(|why| format!("cannot wait for it: {why}"))?;
            if let Some(status) = ended {
                while let Ok(chunk) = self.chunks.recv_timeout(LAST_WORDS) {
                    self.hear(&chunk);
                }
                return Ok(status);
            }
            if looked.elapsed() >= LOOK.min(self.watch.quiet()) {
                looked = Instant::now();
                self.watch.look(child.id()).map_or(Ok(()), Err)?;
            }
        }
    }

    fn hear(&mut self, chunk: &[u8]) {
        (self.hand_on)(chunk);
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                self.watch.printed(&String::from_utf8_lossy(&self.line));
                self.line.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::cmd;

    #[test]
    fn reports_success_and_failure() {
        assert_eq!(run(&cmd("true"), Path::new(".")), Ok(()));
        assert_eq!(
            run(&cmd("false"), Path::new(".")),
            Err("exit status: 1".to_owned())
        );
        assert!(
            run(&cmd("no-such-program-as-this"), Path::new("."))
                .unwrap_err()
                .contains("cannot start")
        );
    }

    fn within(script: &str, limits: Limits) -> (Result<(), String>, String) {
        let mut said = Vec::new();
        let keep = |more: &[u8]| said.extend_from_slice(more);
        let result = run_within(&cmd("sh -c").arg(script), Path::new("."), limits, keep);
        (result, String::from_utf8(said).unwrap())
    }

    #[test]
    fn ends_what_hangs_and_names_it() {
        // A slow machine may not have started it by then: then it has longer.
        let mut errors = [300, 3_000, 15_000].into_iter().map(|quiet| {
            let quiet = Duration::from_millis(quiet);
            let limits = Limits {
                quiet,
                ..Limits::USUAL
            };
            within("sleep 1000.25; true", limits).0.unwrap_err()
        });
        assert!(errors.any(|error| error.ends_with("still running: sleep 1000.25")));
    }

    #[test]
    fn what_prints_or_computes_does_not_hang() {
        let quiet = Duration::from_secs(3);
        let limits = Limits {
            quiet,
            ..Limits::USUAL
        };
        let prints = "for i in 1 2 3 4 5 6; do sleep 1; echo $i; done";
        assert_eq!(
            within(prints, limits),
            (Ok(()), "1\n2\n3\n4\n5\n6\n".to_owned())
        );
        let computes = "i=0; while [ $i -lt 3000000 ]; do i=$((i+1)); done";
        assert_eq!(within(computes, limits), (Ok(()), String::new()));
    }

    #[test]
    fn a_test_that_spins_fails_by_its_name() {
        let own = Duration::from_millis(100);
        let limits = Limits {
            own,
            ..Limits::USUAL
        };
        let spins = "echo 'test a::b has been running for over 60 seconds'; while :; do :; done";
        let error = within(spins, limits).0.unwrap_err();
        assert_eq!(error, "the test a::b has used 100ms of a processor");
        // A process that a test has started.
        let error = within("sh -c 'while :; do :; done'; true", limits)
            .0
            .unwrap_err();
        assert!(
            error.contains("this process has used 100ms of a processor: sh -c"),
            "{error}"
        );
    }

    #[test]
    fn several_end_each_in_its_way() {
        let commands = ["true", "false", "no-such-program-as-this", "true"].map(cmd);
        let error = run_beside(&commands, Path::new(".")).unwrap_err();
        assert_eq!(error, "exit status: 1");
        let commands = ["echo one", "echo two"].map(cmd);
        assert_eq!(run_beside(&commands, Path::new(".")), Ok(()));
    }
}
