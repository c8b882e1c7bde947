//! Whether a command hangs: what the processes do that it has started, as `/proc` tells.
//!
//! How long a check takes is the machine's affair, so nothing has a time to end by. A command hangs when for
//! [`Limits::quiet`] it has printed nothing and its processes have used next to nothing of a processor. And a single test
//! may spin for ever: it fails when it has had [`Limits::own`] of a processor to itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

/// What a command may do before it counts as hanging.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// For so long it may print nothing while it uses less than [`Limits::SHARE`] of a processor.
    pub(crate) quiet: Duration,
    /// So much of a processor a single test may use, or a single process that a test has started.
    pub(crate) own: Duration,
}

impl Limits {
    /// A fiftieth of a processor: less than anything that gets on, more than ranks that wait and say so now and then.
    const SHARE: u32 = 50;

    pub(crate) const USUAL: Limits = Limits {
        quiet: Duration::from_secs(3 * 60),
        own: Duration::from_secs(10 * 60),
    };
}

/// A process of which the system counts time.
#[derive(Clone, Debug, PartialEq)]
struct Process {
    parent: u32,
    name: String,
    /// What it has used itself, and with the children that it has waited for.
    own: Duration,
    all: Duration,
}

/// Processes by their ids.
type Table = BTreeMap<u32, Process>;

/// The clock of `/proc` ticks so often a second, whatever the machine.
const TICKS: u64 = 100;

/// From the text of `/proc/PID/stat`, or of a thread's: `PID (NAME) STATE PARENT ...`, where the name may hold anything.
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

/// What this process has used, with all commands that it has waited for.
pub(crate) fn used_in_all() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    process(&stat).map_or(Duration::ZERO, |process| process.all)
}

/// All processes of the machine.
fn table() -> Table {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let id = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            Some((id, process(&stat)?))
        })
        .collect()
}

/// `root` and all below it.
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

/// The threads of a process: their names, and what each has used.
fn threads(id: u32) -> Vec<(String, Duration)> {
    let tasks = fs::read_dir(format!("/proc/{id}/task")).into_iter();
    let stats = tasks
        .flatten()
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
    stats
        .filter_map(|stat| process(&stat))
        .map(|thread| (thread.name, thread.own))
        .collect()
}

/// So much of a thread's name the system keeps.
const NAME: usize = 15;

/// Builds what is checked, or runs it, and is none of it; or runs many tests as one thread.
const TOOLS: &[&str] = &[
    "cargo",
    "rustc",
    "rustdoc",
    "clippy-driver",
    "miri",
    "rust-lld",
    "ld",
    "cc1plus",
];

/// One command, watched.
pub(crate) struct Watch {
    limits: Limits,
    /// When it was last seen to get on: it had printed something since the look before, or used enough. What it had used then.
    since: Instant,
    used: Duration,
    has_printed: bool,
    /// Tests that run for long, by what the test harness says, and what the command had used when it said so.
    slow: BTreeMap<String, Duration>,
}

impl Watch {
    pub(crate) fn new(limits: Limits) -> Self {
        Watch {
            limits,
            since: Instant::now(),
            used: Duration::ZERO,
            has_printed: false,
            slow: BTreeMap::new(),
        }
    }

    /// For how long it may do nothing.
    pub(crate) fn quiet(&self) -> Duration {
        self.limits.quiet
    }

    /// It has printed this line.
    pub(crate) fn printed(&mut self, line: &str) {
        self.has_printed = true;
        let Some(test) = line.trim_end().strip_prefix("test ") else {
            return;
        };
        if let Some(test) = test.strip_suffix(" has been running for over 60 seconds") {
            self.slow.insert(test.to_owned(), self.used);
        } else if let Some((test, _)) = test.split_once(" ... ") {
            self.slow.remove(test);
        }
    }

    /// Looks at the processes below `root`; why it hangs, if it does.
    pub(crate) fn look(&mut self, root: u32) -> Option<String> {
        let table = table();
        let tree = descendants(root, &table);
        let used = tree.iter().filter_map(|id| table.get(id));
        let used = used.map(|process| process.all).sum();
        if let Some(why) = self.spins(used, &tree, &table) {
            return Some(why);
        }
        // (It may seem to have used less than before: nobody may have waited for what has ended.)
        let more = used.abs_diff(self.used);
        if self.has_printed || more * Limits::SHARE >= self.limits.quiet {
            self.has_printed = false;
            self.since = Instant::now();
            self.used = used;
        }
        (self.since.elapsed() >= self.limits.quiet).then(|| {
            let quiet = self.limits.quiet;
            format!(
                "for {quiet:?} it has printed nothing and used less than 2% of a processor{}; still running: {}",
                self.tests(),
                running(&tree, &table)
            )
        })
    }

    /// A test, or a process of one, that has used too much.
    fn spins(&self, used: Duration, tree: &[u32], table: &Table) -> Option<String> {
        let most = self.limits.own;
        let is_tool = |id: u32| {
            let name = table.get(&id).map_or("", |process| &process.name);
            name.starts_with("cargo") || TOOLS.contains(&name)
        };
        let mut threads_of_tests = BTreeMap::new();
        for id in tree.iter().copied().filter(|id| !is_tool(*id)) {
            let Some(process) = table.get(&id) else {
                continue;
            };
            for (name, own) in threads(id) {
                let most = threads_of_tests.entry(name).or_insert(own);
                *most = own.max(*most);
            }
            // The command itself, and what cargo starts, is many tests.
            if id != tree[0] && process.own >= most && !is_tool(process.parent) {
                return Some(format!(
                    "this process has used {most:?} of a processor: {}",
                    command_line(id)
                ));
            }
        }
        let of = |test: &str, begun: Duration| {
            let thread: String = test.chars().take(NAME).collect();
            let own = threads_of_tests.get(&thread).copied();
            own.unwrap_or(used.saturating_sub(begun))
        };
        let (test, _) = self
            .slow
            .iter()
            .find(|(test, begun)| of(test, **begun) >= most)?;
        Some(format!("the test {test} has used {most:?} of a processor"))
    }

    fn tests(&self) -> String {
        let tests: Vec<_> = self.slow.keys().map(String::as_str).collect();
        match tests[..] {
            [] => String::new(),
            _ => format!("; tests that have not ended: {}", tests.join(", ")),
        }
    }
}

/// Kills a process and its descendants.
///
/// The tree is read from `/proc`. A process group would be simpler to kill, but a group of its own does not get the
/// terminal's Ctrl-C, and outlives whatever kills only ours.
pub(crate) fn kill_tree(root: u32) {
    let tree = descendants(root, &table());
    // The shell's own `kill`: std cannot signal a process that it did not start, and `kill` as a program is a package.
    let _ = Command::new("sh")
        .args(["-c", r#"kill -KILL "$@""#, "sh"])
        .args(tree.iter().map(u32::to_string))
        .status();
}

/// The programs at the ends of a tree, each with those of its threads that have a name of their own.
fn running(tree: &[u32], table: &Table) -> String {
    let is_leaf = |id: &&u32| !table.values().any(|process| process.parent == **id);
    let describe = |id: &u32| {
        let own = table.get(id).map_or("", |process| &process.name);
        let mut names: BTreeSet<_> = threads(*id).into_iter().map(|(name, _)| name).collect();
        names.remove(own);
        let names: Vec<_> = names.into_iter().collect();
        match names[..] {
            [] => command_line(*id),
            _ => format!("{} (threads: {})", command_line(*id), names.join(", ")),
        }
    };
    let running: BTreeSet<_> = tree.iter().filter(is_leaf).map(describe).collect();
    running.into_iter().collect::<Vec<_>>().join("; ")
}

fn command_line(id: u32) -> String {
    let words = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
    let words = String::from_utf8_lossy(&words).replace('\0', " ");
    words.trim().to_owned()
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

    #[test]
    fn a_test_is_slow_until_it_has_ended() {
        let mut watch = Watch::new(Limits::USUAL);
        watch.printed("test a::b has been running for over 60 seconds\n");
        watch.printed("test a::c has been running for over 60 seconds\n");
        watch.printed("test a::b ... ok\n");
        assert_eq!(watch.tests(), "; tests that have not ended: a::c");
    }
}
