//! Ranks that are stopped (by `SIGSTOP`, a terminal or a debugger). The other ranks wait for them, and they cannot say
//! so themselves.
//!
//! # Model
//!
//! The launcher looks at its ranks every two seconds. It looks at each rank's process, and at the processes that this
//! one has started, since the launcher's own child can be a script. It reports a process that was stopped at three
//! looks in a row, and reports when that is over. It cannot know whether a process that a rank has started is the rank
//! itself, so it does not claim that.
//!
//! # Failure
//!
//! Without `/proc`, or if the kernel does not list the children of processes there, less is seen and reported.

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};
use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// The time from one look to the next.
const LOOK: Duration = Duration::from_secs(2);
/// A rank that was stopped at this many looks in a row is reported.
const LOOKS: u32 = 3;
/// The most processes of a rank that are looked at.
const MOST: usize = 64;

/// A stopped process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stopped {
    process: Pid,
    /// Whether it is the process of the rank, and not one that this process has started.
    is_rank: bool,
    /// At how many looks in a row it was stopped.
    looks: u32,
    by: By,
}

#[derive(Clone, Copy, Debug)]
enum By {
    Signal(Signal),
    Debugger,
    Unknown,
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.by {
            By::Signal(Signal::STOP) => f.write_str("stopped by SIGSTOP"),
            By::Signal(Signal::TSTP) => f.write_str("stopped by SIGTSTP"),
            By::Signal(Signal::TTIN) => {
                f.write_str("stopped by SIGTTIN, since it reads from the terminal")
            }
            By::Signal(Signal::TTOU) => {
                f.write_str("stopped by SIGTTOU, since it writes to the terminal")
            }
            By::Signal(other) => write!(f, "stopped by signal {}", other.as_raw()),
            By::Debugger => f.write_str("stopped by a debugger"),
            By::Unknown => f.write_str("stopped"),
        }
    }
}

impl Stopped {
    /// The process, described as one of `rank`.
    pub(super) fn who(&self, rank: usize) -> String {
        if self.is_rank {
            format!("rank {rank} (process {})", self.process)
        } else {
            format!("process {}, which rank {rank} has started,", self.process)
        }
    }

    /// The consequence for the job.
    fn effect(&self) -> &'static str {
        if self.is_rank {
            "the others wait for it"
        } else {
            "if the rank needs it, the others wait"
        }
    }

    /// How to make it go on.
    fn help(&self) -> String {
        match self.by {
            By::Debugger => String::new(),
            By::Signal(_) | By::Unknown => {
                format!("; `kill -CONT {}` lets it go on", self.process)
            }
        }
    }
}

/// The results of earlier looks at the ranks of this machine.
#[derive(Debug)]
pub(super) struct StoppedRanks {
    next: Instant,
    /// The ranks that were stopped at the last look.
    stopped: BTreeMap<usize, Stopped>,
}

impl StoppedRanks {
    pub(super) fn new() -> Self {
        Self {
            next: Instant::now() + LOOK,
            stopped: BTreeMap::new(),
        }
    }

    /// When to look again.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// Looks at the running ranks, if it is time to. Returns the messages for the user.
    pub(super) fn look(
        &mut self,
        look: impl FnOnce() -> BTreeMap<usize, Option<Stopped>>,
    ) -> Vec<String> {
        if Instant::now() < self.next {
            return Vec::new();
        }
        self.next = Instant::now() + LOOK;
        let mut said = Vec::new();
        let mut before = std::mem::take(&mut self.stopped);
        for (rank, now) in look() {
            match (now, before.remove(&rank)) {
                (Some(mut now), before) => {
                    if let Some(before) = before.filter(|before| before.process == now.process) {
                        now.looks += before.looks;
                        if now.looks == LOOKS {
                            let (who, effect, help) = (now.who(rank), now.effect(), now.help());
                            said.push(format!("{who} is {now}: {effect}{help}"));
                        }
                    }
                    self.stopped.insert(rank, now);
                }
                (None, Some(before)) if before.looks >= LOOKS => {
                    said.push(format!("{} is stopped no longer", before.who(rank)));
                }
                (None, _) => {}
            }
        }
        said
    }
}

/// Looks for a stopped process among `rank` and those that it has started. `pidfd` is the rank's.
pub(super) fn look(rank: Pid, pidfd: impl AsFd) -> Option<Stopped> {
    let mut processes = vec![rank];
    let mut next = 0;
    while let Some(process) = processes.get(next).copied() {
        let by = match state(process) {
            Some('T') if process == rank => signal(pidfd).map_or(By::Unknown, By::Signal),
            Some('T') => By::Unknown,
            Some('t') => By::Debugger,
            _ => {
                processes.extend(children(process));
                processes.truncate(MOST);
                next += 1;
                continue;
            }
        };
        return Some(Stopped {
            process,
            is_rank: process == rank,
            looks: 1,
            by,
        });
    }
    None
}

/// `PID (NAME) STATE …`
fn state(process: Pid) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

fn children(process: Pid) -> Vec<Pid> {
    let path = format!("/proc/{process}/task/{process}/children");
    let listed = std::fs::read_to_string(path).unwrap_or_default();
    let numbers = listed.split_whitespace();
    numbers
        .filter_map(|number| Pid::from_raw(number.parse().ok()?))
        .collect()
}

/// The signal that stopped a child. The kernel keeps the state, so that it can be asked for again.
fn signal(pidfd: impl AsFd) -> Option<Signal> {
    let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let status = waitid(WaitId::PidFd(pidfd.as_fd()), options).ok()??;
    Signal::from_named_raw(status.stopping_signal()?)
}
