//! Runs a command, and notices if it hangs (see [`crate::watch`]).
//!
//! A natural error of a messaging library is a hang. A check that hangs must end as a failed step that names what was
//! still running, and not as a job that an outer limit kills silently.

use std::fs;
use std::io::{self, IsTerminal as _, PipeReader, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::command::Cmd;
use crate::failure::{Failure, excerpt};
use crate::watch::{Limits, Watch, holders, kill_tree, table};

/// The interval between two looks whether a command has ended.
const POLL: Duration = Duration::from_millis(20);

/// Runs the command to its end. The error is its exit status, or that it hung; then it and all that it started are
/// killed.
pub(crate) fn run(command: &Cmd, dir: &Path) -> Result<(), Failure> {
    run_aloud(command, dir, Limits::USUAL)
}

/// Runs a command that installs something, which may be silent for longer.
pub(crate) fn install(command: &Cmd, dir: &Path) -> Result<(), Failure> {
    run_aloud(command, dir, Limits::INSTALL)
}

fn run_aloud(command: &Cmd, dir: &Path, limits: Limits) -> Result<(), Failure> {
    let mut screen = io::stdout();
    let mut said = Vec::new();
    let print = |more: &[u8]| {
        said.extend_from_slice(more);
        // Printing is best effort.
        drop(screen.write_all(more).and_then(|()| screen.flush()));
    };
    run_within(command, dir, limits, print).map_err(|why| Failure {
        why,
        said: excerpt(&said),
    })
}

/// Runs the commands at the same time, as many as there are processors. The output of each is printed as one piece when
/// it has ended. All are run to their ends. The error is that of the first that failed, with the output of all that
/// failed.
pub(crate) fn run_beside(commands: &[Cmd], dir: &Path) -> Result<(), Failure> {
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
            let failure = |why| Failure {
                why,
                said: excerpt(&said),
            };
            failures.extend(result.err().map(|why| (at, failure(why))));
        }
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..workers.min(commands.len()) {
            scope.spawn(work);
        }
    });
    let mut failures = failures.into_inner().expect("nobody panics");
    failures.sort_by_key(|(at, _)| *at);
    let all = failures.into_iter().map(|(_, failure)| failure);
    let together = |first: Failure, next: Failure| {
        let said = [first.said, next.said];
        let said: Vec<_> = said.into_iter().filter(|said| !said.is_empty()).collect();
        Failure {
            why: first.why,
            said: said.join("\n\n"),
        }
    };
    all.reduce(together).map_or(Ok(()), Err)
}

/// Starts it, passes its output on, and waits for its end.
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
    let pipe = fs::read_link(format!("/proc/self/fd/{}", reader.as_raw_fd())).unwrap_or_default();
    let mut said = Said {
        chunks: read(reader),
        watch: Watch::new(limits),
        hand_on,
    };
    let status = said.follow(&mut child, limits).inspect_err(|_| {
        kill_tree(child.id());
        let _ = child.wait();
    })?;
    let is_closed = said.close(limits);
    if !status.success() {
        return Err(status.to_string());
    }
    if !is_closed {
        return Err(format!(
            "it has ended, and something that it has left behind holds its output open: {}",
            holders(&pipe)
        ));
    }
    if command.chooses_tests() && said.watch.passed == Some(0) {
        return Err("no test has passed: no test has a name that it asks for".to_owned());
    }
    Ok(())
}

/// The output of a pipe, until all writers have closed it.
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

/// The output of a command, as it comes.
struct Said<F> {
    chunks: Receiver<Vec<u8>>,
    watch: Watch,
    hand_on: F,
}

impl<F: FnMut(&[u8])> Said<F> {
    /// Follows the command until it has ended. The error says how it hangs.
    fn follow(&mut self, child: &mut Child, limits: Limits) -> Result<ExitStatus, String> {
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
                return Ok(status);
            }
            if looked.elapsed() >= limits.look {
                looked = Instant::now();
                let hangs = self.watch.look(child.id(), &table());
                hangs.map_or(Ok(()), Err)?;
            }
        }
    }

    /// After the command has ended: reads the rest, and returns whether all writers have closed its output.
    fn close(&mut self, limits: Limits) -> bool {
        let ended = Instant::now();
        loop {
            let left = limits.leftover.saturating_sub(ended.elapsed());
            match self.chunks.recv_timeout(left) {
                Ok(chunk) => self.hear(&chunk),
                Err(RecvTimeoutError::Disconnected) => return true,
                Err(RecvTimeoutError::Timeout) => return false,
            }
            if left.is_zero() {
                return false;
            }
        }
    }

    fn hear(&mut self, chunk: &[u8]) {
        (self.hand_on)(chunk);
        self.watch.hear(chunk);
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
            Err("exit status: 1".to_owned().into())
        );
        let absent = run(&cmd("no-such-program-as-this"), Path::new(".")).unwrap_err();
        assert!(absent.why.contains("cannot start"));
    }

    fn within(script: &str, limits: Limits) -> (Result<(), String>, String) {
        let mut said = Vec::new();
        let keep = |more: &[u8]| said.extend_from_slice(more);
        let result = run_within(&cmd("sh -c").arg(script), Path::new("."), limits, keep);
        (result, String::from_utf8(said).unwrap())
    }

    const LIMITS: Limits = Limits {
        look: Duration::from_millis(100),
        ..Limits::USUAL
    };

    #[test]
    fn ends_what_hangs_and_names_it() {
        // A slow machine may not have started it by then, so a longer limit is tried.
        let mut errors = [300, 3_000, 15_000].into_iter().map(|quiet| {
            let quiet = Duration::from_millis(quiet);
            let limits = Limits { quiet, ..LIMITS };
            within("sleep 1000.25; true", limits).0.unwrap_err()
        });
        assert!(errors.any(|error| error.ends_with("still running: sleep 1000.25")));
    }

    #[test]
    fn what_prints_reports_of_waits_hangs() {
        let quiet = Duration::from_secs(5);
        let limits = Limits { quiet, ..LIMITS };
        let reports = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do echo 'tidegate: rank 0 waits'; sleep 3; done";
        let error = within(reports, limits).0.unwrap_err();
        assert!(error.contains("printed nothing but reports"), "{error}");
    }

    #[test]
    fn what_spins_is_ended() {
        let own = Duration::from_millis(100);
        let limits = Limits { own, ..LIMITS };
        let script = "sh -c 'while :; do :; done'; true";
        let error = within(script, limits).0.unwrap_err();
        assert!(
            error.starts_with("sh -c while :; do :; done has used 100ms"),
            "{error}"
        );
    }

    #[test]
    fn what_is_left_behind_fails() {
        let leftover = Duration::from_millis(500);
        let limits = Limits { leftover, ..LIMITS };
        for what in [
            "sleep 20.5",
            "for i in 1 2 3 4 5 6 7 8 9 10; do echo more; sleep 2; done",
        ] {
            let error = within(&format!("sh -c '{what}; true' & true"), limits);
            let error = error.0.unwrap_err();
            assert!(
                error.contains("left behind") && error.contains(what),
                "{error}"
            );
        }
    }

    #[test]
    fn a_choice_of_tests_that_finds_none_fails() {
        let name = format!("tidegate-xtask-cargo-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        // The program called `cargo` is a shell, and `test` is its script.
        std::os::unix::fs::symlink("/bin/sh", folder.join("cargo")).unwrap();
        let script = "echo \"test result: ok. $PASS passed; 0 failed\"";
        fs::write(folder.join("test"), script).unwrap();
        let run = |line, pass| {
            let cargo = cmd(line).env("PATH", &folder).env("PASS", pass);
            run_within(&cargo, &folder, LIMITS, |_| ())
        };
        let results = [
            ("cargo test -- name", "1"),
            ("cargo test", "0"),
            ("cargo test -- name", "0"),
        ];
        let results = results.map(|(line, pass)| run(line, pass).err());
        fs::remove_dir_all(&folder).unwrap();
        let [None, None, Some(error)] = results else {
            panic!("{results:?}")
        };
        assert!(error.contains("no test has passed"), "{error}");
    }

    #[test]
    fn several_end_each_in_its_way() {
        let fails = |said| cmd("sh -c").arg(format!("echo {said}; exit 1"));
        let commands = [
            cmd("true"),
            fails("one"),
            cmd("no-such-program-as-this"),
            fails("two"),
        ];
        let failure = run_beside(&commands, Path::new(".")).unwrap_err();
        assert_eq!(failure.why, "exit status: 1");
        assert_eq!(failure.said, "one\n\ntwo");
        let commands = ["echo one", "echo two"].map(cmd);
        assert_eq!(run_beside(&commands, Path::new(".")), Ok(()));
    }
}
