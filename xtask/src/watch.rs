//! Finds out whether a command hangs, from the state of its processes in `/proc`.
//!
//! A check has no time limit, since its time depends on the machine. A command hangs if it prints nothing for
//! [`Limits::quiet`], and its processes use almost no processor time meanwhile. A test fails if it has used
//! [`Limits::own`] of processor time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::mem::take;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// What a command may do before it counts as hanging.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// The interval between two looks at its processes.
    pub(crate) look: Duration,
    /// How long it may print nothing while it uses less than 1 / [`Limits::SHARE`] of a processor. This is counted in
    /// looks, so that a Ctrl-Z stops the count, too.
    pub(crate) quiet: Duration,
    /// How much processor time a test may use, or a process that a test has started.
    pub(crate) own: Duration,
    /// How long a process that it leaves behind may hold its output open.
    pub(crate) leftover: Duration,
}

impl Limits {
    /// A fiftieth of a processor: less than any command that makes progress, and more than ranks that wait and report
    /// that from time to time.
    const SHARE: u32 = 50;

    /// (The longest tests are Miri's: all tests of its longest program together use less than ten minutes. The processes of
    /// a test count by themselves, so the test of errors in the kernel uses almost nothing.)
    pub(crate) const USUAL: Limits = Limits {
        look: Duration::from_secs(2),
        quiet: Duration::from_secs(3 * 60),
        own: Duration::from_secs(10 * 60),
        leftover: Duration::from_secs(60),
    };

    /// Installers download silently, and end a stalled download by themselves.
    pub(crate) const INSTALL: Limits = Limits {
        quiet: Duration::from_secs(30 * 60),
        ..Limits::USUAL
    };
}

/// A process, with its processor time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Process {
    parent: u32,
    name: String,
    /// Its own time, and with that of the children for which it has waited.
    own: Duration,
    all: Duration,
}

/// Processes by their ids.
pub(crate) type Table = BTreeMap<u32, Process>;

/// The ticks per second of the clock in `/proc`, on every machine.
const TICKS: u64 = 100;

/// Parses the text of `/proc/PID/stat`, or of a thread's: `PID (NAME) STATE PARENT ...`. The name may contain anything.
fn process(stat: &str) -> Option<Process> {
    let (begin, rest) = stat.rsplit_once(')')?;
    let fields: Vec<_> = rest.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let time = |ticks: u64| Duration::from_millis(ticks * 1000 / TICKS);
    let own = ticks(11)? + ticks(12)?;
    Some(Process {
        parent: fields.get(1)?.parse().ok()?,
        name: begin.split_once('(')?.1.to_owned(),
        own: time(own),
        all: time(own + ticks(13)? + ticks(14)?),
    })
}

/// The time of this process, with all commands for which it has waited.
pub(crate) fn used_in_all() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    process(&stat).map_or(Duration::ZERO, |process| process.all)
}

/// All processes of the machine.
pub(crate) fn table() -> Table {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let id = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            Some((id, process(&stat)?))
        })
        .collect()
}

/// `root` and all processes below it.
fn descendants(root: u32, table: &Table) -> Vec<u32> {
    let mut tree = vec![root];
    let mut at = 0;
    while at < tree.len() {
        let parent = tree[at];
        let children = table.iter().filter(|(_, process)| process.parent == parent);
        tree.extend(children.map(|(id, _)| *id));
        at += 1;
    }
    tree
}

/// Programs that build the checked code, or run it.
const TOOLS: &[&str] = &[
    "rustc",
    "rustdoc",
    "clippy-driver",
    "rust-lld",
    "ld",
    "cc1plus",
];

/// Cargo and its subcommands. The programs that they start are test programs.
fn is_cargo(id: u32, table: &Table) -> bool {
    table
        .get(&id)
        .is_some_and(|process| process.name.starts_with("cargo"))
}

/// One command, watched.
pub(crate) struct Watch {
    limits: Limits,
    /// The part of a line that it has printed so far.
    line: Vec<u8>,
    /// In how many looks it was idle, and the time that it had used before.
    idle: u32,
    used: Duration,
    has_printed: bool,
    /// The last line belongs to a report.
    in_report: bool,
    /// Cargo waits for another cargo.
    is_blocked: bool,
    /// Tests that have not ended, as far as the harness has named them, and the one that it named last.
    unended: BTreeSet<String>,
    last: String,
    /// Whether a test has ended since the last look.
    has_ended: bool,
    /// The time that each process had used when a test last ended.
    before: BTreeMap<u32, Duration>,
    /// How many tests have passed, according to the test program.
    pub(crate) passed: Option<u64>,
}

impl Watch {
    pub(crate) fn new(limits: Limits) -> Self {
        Watch {
            limits,
            line: Vec::new(),
            idle: 0,
            used: Duration::ZERO,
            has_printed: false,
            in_report: false,
            is_blocked: false,
            unended: BTreeSet::new(),
            last: String::new(),
            has_ended: false,
            before: BTreeMap::new(),
            passed: None,
        }
    }

    /// Handles output of the command.
    pub(crate) fn hear(&mut self, chunk: &[u8]) {
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if let Some(line) = self.line.strip_suffix(b"\n") {
                let line = String::from_utf8_lossy(line).into_owned();
                self.line.clear();
                self.printed(&line);
            }
        }
    }

    fn printed(&mut self, line: &str) {
        if let Some(test) = slow(line) {
            self.unended.insert(test.to_owned());
            return;
        }
        // With one test at a time, the harness prints a test's name before it runs. So the test's output may be on the
        // same line.
        let text = match begun(line) {
            Some((test, text)) => {
                self.last = test.to_owned();
                self.unended.insert(test.to_owned());
                text
            }
            None => line,
        };
        if ["ok", "FAILED"].contains(&text) || text.starts_with("ignored") {
            self.unended.remove(&self.last);
            self.has_ended = true;
        }
        let text = without_label(text);
        // A wait that is reported repeatedly makes no progress. The further lines of a report are indented.
        let goes_on = self.in_report && text.starts_with("  ");
        self.in_report = goes_on || text.starts_with("tidegate: ");
        if self.in_report {
            return;
        }
        self.has_printed = true;
        self.is_blocked = text.contains("Blocking") && text.contains("waiting for file lock");
        if let Some(more) = passed(text) {
            *self.passed.get_or_insert(0) += more;
            self.unended.clear();
        }
    }

    /// Looks at the processes below `root`. Returns why the command hangs, if it does.
    pub(crate) fn look(&mut self, root: u32, table: &Table) -> Option<String> {
        let tree = descendants(root, table);
        let processes = || tree.iter().filter_map(|id| Some((*id, table.get(id)?)));
        if take(&mut self.has_ended) {
            self.before = processes().map(|(id, process)| (id, process.own)).collect();
        }
        for (id, process) in processes() {
            if let Some(why) = self.spins(id, process, root, table) {
                return Some(why);
            }
        }
        let quiet = self.limits.quiet;
        let used: Duration = processes().map(|(_, process)| process.all).sum();
        // (The time may decrease if nobody has waited for a process that has ended.)
        let more = used.abs_diff(self.used);
        if take(&mut self.has_printed) || more * Limits::SHARE >= quiet {
            self.idle = 0;
            self.used = used;
        } else if !self.is_blocked {
            self.idle += 1;
        }
        (self.limits.look * self.idle >= quiet).then(|| {
            format!(
                "for {quiet:?} it has printed nothing but reports of waits, and used less than 2% of a processor{}; still running: {}",
                self.tests(),
                running(&tree, table)
            )
        })
    }

    /// Whether a process has used too much processor time.
    ///
    /// For a test program, the time since a test last ended counts. If several tests run in it at the same time, this
    /// is their common time.
    fn spins(&self, id: u32, process: &Process, root: u32, table: &Table) -> Option<String> {
        let most = self.limits.own;
        if is_cargo(id, table) || TOOLS.contains(&process.name.as_str()) {
            return None;
        }
        let has_tests = id == root || is_cargo(process.parent, table);
        let before = self.before.get(&id).filter(|_| has_tests).copied();
        let used = process.own.saturating_sub(before.unwrap_or_default());
        (used >= most).then(|| {
            let since = if before.is_some() {
                " since a test last ended"
            } else {
                ""
            };
            format!(
                "{} has used {most:?} of processor time{since}{}",
                command_line(id, table),
                self.tests()
            )
        })
    }

    fn tests(&self) -> String {
        let line = String::from_utf8_lossy(&self.line);
        let last = begun(&line).map(|(test, _)| test);
        let tests: BTreeSet<_> = self
            .unended
            .iter()
            .map(String::as_str)
            .chain(last)
            .collect();
        if tests.is_empty() {
            return String::new();
        }
        let tests: Vec<_> = tests.into_iter().collect();
        format!("; tests that have not ended: {}", tests.join(", "))
    }
}

/// The test that takes long, according to the harness. (It reports this only if several tests run at a time.)
fn slow(line: &str) -> Option<&str> {
    let test = line.strip_prefix("test ")?;
    test.strip_suffix(" has been running for over 60 seconds")
}

/// The test that a line of the harness names, and the rest of the line.
fn begun(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("test ")?.split_once(" ... ")
}

/// The line of a rank, without the launcher's label: `[3] ...`.
fn without_label(line: &str) -> &str {
    let labelled = line
        .strip_prefix('[')
        .and_then(|line| line.split_once("] "));
    let is_rank = |rank: &str| rank.bytes().all(|byte| byte.is_ascii_digit());
    match labelled {
        Some((rank, text)) if is_rank(rank) => text,
        _ => line,
    }
}

/// How many tests of a program have passed, from the line that ends it: `test result: ok. 3 passed; 0 failed; ...`.
fn passed(line: &str) -> Option<u64> {
    let counts = line.strip_prefix("test result: ")?.split_once(". ")?.1;
    counts.split_once(" passed")?.0.parse().ok()
}

/// Kills a process and its descendants.
///
/// The tree is read from `/proc`. A process group would be simpler to kill. But a group of its own does not get the
/// terminal's Ctrl-C, and survives if only our group is killed.
pub(crate) fn kill_tree(root: u32) {
    let tree = descendants(root, &table());
    // This is the shell's own `kill`: std cannot signal a process that it did not start, and the program `kill` is a
    // package.
    let _ = Command::new("sh")
        .args(["-c", r#"kill -KILL "$@""#, "sh"])
        .args(tree.iter().map(u32::to_string))
        .status();
}

/// The processes that hold this file open, except for this one.
pub(crate) fn holders(file: &Path) -> String {
    let table = table();
    let ids = table.keys().copied().filter(|id| *id != std::process::id());
    let holds = |id: &u32| {
        let open = fs::read_dir(format!("/proc/{id}/fd")).into_iter();
        let mut open = open.flatten().flatten();
        open.any(|open| fs::read_link(open.path()).is_ok_and(|open| open == file))
    };
    let lines: Vec<_> = ids
        .filter(holds)
        .map(|id| command_line(id, &table))
        .collect();
    lines.join("; ")
}

/// The programs at the leaves of a tree, each with its threads that have names of their own.
fn running(tree: &[u32], table: &Table) -> String {
    let is_leaf = |id: &&u32| !table.values().any(|process| process.parent == **id);
    let describe = |id: &u32| {
        let own = table.get(id).map_or("", |process| &process.name);
        let tasks = fs::read_dir(format!("/proc/{id}/task")).into_iter();
        let names = tasks
            .flatten()
            .flatten()
            .filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
        let names: BTreeSet<_> = names.map(|name| name.trim_end().to_owned()).collect();
        let names: Vec<_> = names.into_iter().filter(|name| name != own).collect();
        match names[..] {
            [] => command_line(*id, table),
            _ => format!(
                "{} (threads: {})",
                command_line(*id, table),
                names.join(", ")
            ),
        }
    };
    let running: BTreeSet<_> = tree.iter().filter(is_leaf).map(describe).collect();
    running.into_iter().collect::<Vec<_>>().join("; ")
}

/// The command line of a process, or its name if it has ended.
fn command_line(id: u32, table: &Table) -> String {
    let words = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
    let words = String::from_utf8_lossy(&words).replace('\0', " ");
    match (words.trim(), table.get(&id)) {
        ("", Some(process)) => process.name.clone(),
        (words, _) => words.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_process_table() {
        let stat = "12 (a b) c) S 7 12 12 0 -1 4194304 1 2 3 4 150 50 700 100 20 0 1 0 1";
        let read = Process {
            parent: 7,
            name: "a b) c".to_owned(),
            own: Duration::from_secs(2),
            all: Duration::from_secs(10),
        };
        assert_eq!(process(stat), Some(read.clone()));
        let table = [(1, 0), (2, 1), (3, 2), (4, 3), (5, 1)];
        let below = |(id, parent)| {
            let read = read.clone();
            (id, Process { parent, ..read })
        };
        assert_eq!(descendants(2, &table.map(below).into()), [2, 3, 4]);
    }

    /// No process has this id.
    const ROOT: u32 = u32::MAX - 10;

    /// Each is the parent of the next, with the seconds that it has used.
    fn made_up(processes: &[(&str, u64)]) -> Table {
        let process = |(id, (name, seconds)): (u32, &(&str, u64))| {
            let (parent, name, own) = (id - 1, name.to_string(), Duration::from_secs(*seconds));
            let all = own;
            (
                id,
                Process {
                    parent,
                    name,
                    own,
                    all,
                },
            )
        };
        (ROOT..).zip(processes).map(process).collect()
    }

    /// After how many of a hundred looks it hangs, if it prints the text before each look.
    fn hangs_after(text: &str) -> Option<u32> {
        let mut watch = Watch::new(Limits::USUAL);
        let table = made_up(&[("cargo", 0), ("jobs", 0)]);
        (1..=100).find(|_| {
            watch.hear(text.as_bytes());
            watch.look(ROOT, &table).is_some()
        })
    }

    #[test]
    fn what_says_nothing_new_hangs() {
        let slow = "test a::b has been running for over 60 seconds\n";
        let report =
            "tidegate: some waits last\n  rank 0: rank 1, its post\n  no cycle: a rank is late\n";
        let labelled = "[3] tidegate: some waits last\n[3]   rank 0: rank 1, its post\n";
        let of_one_thread = format!("test a::b ... {labelled}");
        for text in ["", slow, report, labelled, &of_one_thread] {
            assert_eq!(hangs_after(text), Some(90), "{text}");
        }
        let blocked = "    Blocking waiting for file lock on build directory\n";
        for text in ["a line\n", "  an indented line\n", blocked] {
            assert_eq!(hangs_after(text), None, "{text}");
        }
    }

    #[test]
    fn a_cargo_that_waits_for_another_does_not_hang() {
        let mut watch = Watch::new(Limits::USUAL);
        watch
            .hear(b"\x1b[1m\x1b[36m    Blocking\x1b[0m waiting for file lock on build directory\n");
        let mut look = || watch.look(ROOT, &made_up(&[("cargo", 0)]));
        assert!((0..1000).all(|_| look().is_none()));
        watch.hear(b"   Compiling tidegate\n");
        let mut look = || watch.look(ROOT, &made_up(&[("cargo", 0)]));
        assert!((0..100).any(|_| look().is_some()));
    }

    #[test]
    fn what_computes_does_not_hang() {
        let mut watch = Watch::new(Limits::USUAL);
        // A tenth of a processor, for an hour.
        let mut looks = (0..1800).map(|at| made_up(&[("cargo", 0), ("rustc", at / 5)]));
        assert!(looks.all(|table| watch.look(ROOT, &table).is_none()));
    }

    #[test]
    fn a_test_that_spins_fails_by_its_name() {
        let mut watch = Watch::new(Limits::USUAL);
        let mut look = |text: &str, seconds| {
            watch.hear(text.as_bytes());
            watch.look(
                ROOT,
                &made_up(&[("cargo", 0), ("host", seconds), ("stream", 0)]),
            )
        };
        // Many tests together have used more than one may.
        assert_eq!(look("test a ... ", 500), None);
        assert_eq!(look("ok\ntest b ... tidegate: rank 0 waits\n", 700), None);
        assert_eq!(
            look("ok\ntest c has been running for over 60 seconds\n", 900),
            None
        );
        assert_eq!(look("test d ... ", 1499), None);
        let why = "host has used 600s of processor time since a test last ended; tests that have not ended: c, d";
        assert_eq!(look("", 1500).as_deref(), Some(why));
    }

    #[test]
    fn a_process_of_a_test_has_a_limit_of_its_own_and_a_compiler_has_none() {
        let mut watch = Watch::new(Limits::USUAL);
        let mut look = |name, seconds| {
            watch.hear(b"test a ... ok\n");
            watch.look(
                ROOT,
                &made_up(&[("cargo", 0), ("jobs", 0), (name, seconds)]),
            )
        };
        assert_eq!(look("rustc", 1000), None);
        assert_eq!(look("ring", 599), None);
        let why = look("ring", 600).unwrap();
        assert!(
            why.starts_with("ring has used 600s of processor time"),
            "{why}"
        );
    }

    #[test]
    fn passed_tests_are_counted() {
        let mut watch = Watch::new(Limits::USUAL);
        watch.hear(b"running 0 tests\n");
        assert_eq!(watch.passed, None);
        watch.hear(b"test result: ok. 0 passed; 0 failed; 1 ignored; 0 measured\n");
        assert_eq!(watch.passed, Some(0));
        watch.hear(b"test result: FAILED. 12 passed; 1 failed; 0 ignored\n");
        assert_eq!(watch.passed, Some(12));
    }
}
