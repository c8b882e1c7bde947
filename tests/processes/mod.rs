//! Jobs of several processes for tests. The ranks are this test program again, each in a role.
//!
//! # How a job ends
//!
//! A rank that succeeds ends with code 0. A rank that gets an error of the library prints `error: {:?}` and ends with
//! [`FAILED`]. Anything else ends in another way. Ranks run in a folder of their own, which is empty when they begin,
//! and must be empty when they have ended.
#![allow(dead_code, reason = "each test program uses a part")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tidegate::error::WindowError;

use tidegate::host::prelude::*;
use tidegate_cli::{Job, Outcome, Output, RankOutcome, Running, Signal};

/// The exit code of a rank that got an error of the library.
pub(crate) const FAILED: i32 = 3;
/// Long enough for a loaded machine, short enough to fail within a test run.
pub(crate) const LONG: Duration = Duration::from_secs(600);

const ROLE: &str = "TIDEGATE_TEST_ROLE";

/// A running job.
pub(crate) struct Started {
    running: Running,
    ranks: usize,
    folder: PathBuf,
}

/// Starts `ranks` processes in a role. `test` is the name of the test that calls [`play`].
pub(crate) fn start(test: &str, role: &str, ranks: usize) -> Started {
    start_with(test, role, ranks, &[])
}

/// Like [`start`], with variables in the ranks' environment.
pub(crate) fn start_with(
    test: &str,
    role: &str,
    ranks: usize,
    variables: &[(&str, &str)],
) -> Started {
    static JOBS: AtomicUsize = AtomicUsize::new(0);
    let number = JOBS.fetch_add(1, Ordering::Relaxed);
    let name = format!("tidegate-test-{}-{number}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir(&folder).unwrap();
    let mut job = Job::this_program(ranks).unwrap();
    for (name, value) in variables {
        job = job.env(*name, *value);
    }
    let running = job
        .args(["--exact", test, "--nocapture", "--quiet"])
        .env(ROLE, role)
        // A file that a rank writes by itself (for a panic, for example) would be there.
        .env("TMPDIR", &folder)
        .env("RUST_BACKTRACE", "0")
        .directory(&folder)
        .output(Output::Captured)
        // Survivors must end by themselves, which is what is tested.
        .grace(LONG)
        .spawn()
        .unwrap();
    Started {
        running,
        ranks,
        folder,
    }
}

/// Runs a job to its end.
pub(crate) fn run(test: &str, role: &str, ranks: usize) -> Outcome {
    start(test, role, ranks).finish()
}

impl Started {
    /// Waits until every rank has called [`ready`].
    pub(crate) fn wait_ready(&self) {
        for rank in 0..self.ranks {
            self.take_flag(&format!("ready-{rank}"));
        }
    }

    /// Waits for a flag that a rank sets, and removes it.
    pub(crate) fn take_flag(&self, name: &str) {
        take(&self.folder.join(name));
    }

    /// Sets a flag for ranks.
    pub(crate) fn set_flag(&self, name: &str) {
        std::fs::write(self.folder.join(name), "").unwrap();
    }

    /// Kills a rank without warning.
    pub(crate) fn kill(&self, rank: usize) {
        self.signal(rank, Signal::KILL);
    }

    /// Sends a signal to a rank.
    pub(crate) fn signal(&self, rank: usize, signal: Signal) {
        self.running.signal(rank, signal).unwrap();
    }

    /// Waits for the end, and asserts that nothing is left of the job.
    pub(crate) fn finish(self) -> Outcome {
        let outcome = self.running.wait();
        let left: Vec<_> = std::fs::read_dir(&self.folder).unwrap().collect();
        assert!(left.is_empty(), "files are left: {left:?}");
        std::fs::remove_dir(&self.folder).unwrap();
        assert_nothing_left(&outcome);
        outcome
    }
}

/// Asserts that no process, shared memory or socket of the job is left.
fn assert_nothing_left(outcome: &Outcome) {
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    for rank in &outcome.ranks {
        for socket in lines(rank, "socket: ") {
            assert!(!sockets.contains(socket), "a socket is left: {socket}");
        }
    }
    let groups: Vec<_> = outcome.ranks.iter().map(|rank| rank.pid).collect();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        // Each rank leads a process group. The text is `PID (NAME) STATE PARENT GROUP ...`.
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let fields = stat
            .rsplit_once(')')
            .map_or("", |(_, rest)| rest)
            .split_whitespace();
        let group = fields.clone().nth(2).and_then(|group| group.parse().ok());
        // A zombie that its new parent has not collected yet does not run any more.
        let runs = fields.clone().next() != Some("Z");
        assert!(
            !(runs && group.is_some_and(|group| groups.contains(&group))),
            "a process is left: {stat}"
        );
    }
    // Memory for peers has no name. A named one could be left behind.
    for entry in std::fs::read_dir("/dev/shm")
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = entry.file_name();
        assert!(
            !name.to_string_lossy().contains("tidegate"),
            "shared memory is left: {name:?}"
        );
    }
}

/// The lines that a rank printed with `prefix`, without it.
pub(crate) fn lines<'a>(rank: &'a RankOutcome, prefix: &'a str) -> impl Iterator<Item = &'a str> {
    let text = std::str::from_utf8(&rank.stdout).expect("ranks print UTF-8");
    text.lines()
        .filter_map(move |line| line.strip_prefix(prefix))
}

/// The error that a rank ended with.
pub(crate) fn error(rank: &RankOutcome) -> &str {
    assert_eq!(rank.status.code(), Some(FAILED), "{rank:?}");
    lines(rank, "error: ").next().expect("an error is printed")
}

/// Asserts that all ranks succeeded, except for those of `except`.
pub(crate) fn assert_success(outcome: &Outcome, except: &[usize]) {
    for (number, rank) in outcome.ranks.iter().enumerate() {
        assert!(
            except.contains(&number) || rank.status.success(),
            "rank {number}: {rank:?}"
        );
    }
}

/// How long after the end of rank `first` the last other rank ended.
pub(crate) fn longest_survival(outcome: &Outcome, first: usize) -> Duration {
    let end = outcome.ranks[first].after;
    let last = outcome.ranks.iter().map(|rank| rank.after).max().unwrap();
    last.saturating_sub(end)
}

/// The name of the error, for tests that need it.
fn kind(error: &Error) -> &'static str {
    match error {
        Error::Wait(_) => "wait",
        Error::Revoked { .. } => "revoked",
        Error::Open(WindowError::Disagreement { .. }) => "window mismatch",
        Error::Control(_) => "control",
        Error::Join(_) => "join",
        _ => "another",
    }
}

/// In a process that was started as a rank: plays its role, and does not return. Otherwise, in a normal test run,
/// returns at once.
pub(crate) fn play(roles: impl FnOnce(&str, World) -> Result<()>) {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let result = World::init().and_then(|world: World| {
        print_sockets();
        roles(&role, world)
    });
    std::process::exit(match result {
        Ok(()) => 0,
        Err(error) => {
            println!("kind: {}", kind(&error));
            println!("error: {error}");
            FAILED
        }
    });
}

/// Tells the test that this rank has come to the point that the test interrupts.
pub(crate) fn ready(world: &World) {
    set_flag(&format!("ready-{}", world.rank()));
}

/// In a rank: sets a flag for the test.
pub(crate) fn set_flag(name: &str) {
    std::fs::write(name, "").unwrap();
}

/// In a rank: waits for a flag that the test sets, and removes it.
pub(crate) fn take_flag(name: &str) {
    take(Path::new(name));
}

fn take(flag: &Path) {
    let start = Instant::now();
    while !flag.exists() {
        assert!(start.elapsed() < LONG, "{flag:?} was never set");
        std::thread::sleep(Duration::from_millis(1));
    }
    std::fs::remove_file(flag).unwrap();
}

/// Prints the names of the abstract sockets that this process holds.
fn print_sockets() {
    let inodes: Vec<_> = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .flatten()
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .filter_map(|link| {
            let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            Some(inode.to_owned())
        })
        .collect();
    // `Num RefCount Protocol Flags Type St Inode Path`
    for line in std::fs::read_to_string("/proc/net/unix").unwrap().lines() {
        let fields: Vec<_> = line.split_whitespace().collect();
        if let [.., inode, name] = fields[..]
            && name.starts_with('@')
            && inodes.iter().any(|own| own == inode)
        {
            println!("socket: {name}");
        }
    }
}
