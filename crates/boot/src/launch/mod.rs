//! Starts the ranks of a job on this host, watches them, and leaves nothing behind.
//!
//! # Model
//!
//! A [`Job`] is a program and a number of ranks. Each rank is a process in a process group of its own, with the
//! environment that [`TcpControl::from_env`](crate::TcpControl::from_env) reads: a fresh random secret, and a port on
//! the loopback address that is taken before the first rank starts: rank 0 inherits the listening socket. One thread
//! starts the ranks, reads their output, line by line, and waits for their ends. Others print it: as long as nobody reads
//! that, and some of it is kept, nothing more is read from the ranks, and they wait as they would for any reader.
//!
//! The ranks can be spread over several [`Nodes`], in one of two ways:
//!
//! - *by name*: each node has a `TIDEGATE_NODE` of its own, and so no rank maps memory of another node. All else is one
//!   machine's: the ranks share its network.
//! - on a [`Bed`]: each node is also a network namespace, and what goes from one to another takes a wire that can be slow, lossy,
//!   or cut. Rank 0 listens at its node's address, where nobody but the nodes can come.
//!
//! # Failure
//!
//! A rank that is stopped (`SIGSTOP`) keeps the others waiting, and cannot say so: the launcher does, after about 5 s, and
//! when it goes on again. After `TIDEGATE_SILENCE_MS` the others give it up.
//!
//! A rank fails by its exit status. One that ends with 0 and has not left the job (`process::exit(0)` drops no world) is
//! noticed by the others, who fail: so the first failure is said with the ranks that had ended before it. Whether those
//! had left only the others know.
//!
//! When a rank fails, the others get [`Job::grace`] to end by themselves with errors of their own; then they get
//! `SIGTERM`, and a moment later `SIGKILL`. What has been printed waits for who reads it, who may be a pager: the reason of
//! a failure comes last. After a signal to end, what nobody has read for as long as the grace is lost. When a rank ends, what is left of its process group is killed. When the
//! launcher is killed, the kernel kills the ranks (`PR_SET_PDEATHSIG`), and a guard process their groups.

mod bed;
mod cli;
mod guard;
mod meeting;
mod monitor;
mod nodes;
mod output;
mod printer;
mod rank;
mod signals;
mod stopped;

pub use bed::{BedArgs, Cut, WireArg};
pub use cli::{Cli, RunArgs, main};
pub use nodes::Nodes;
pub use rustix::process::Signal;
pub use tidegate_testbed::{Bed, BedError};

use crate::lock;
use rustix::process::pidfd_send_signal;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use tidegate_hal::limits::WithLimit;
use tidegate_hal::process::{Forked, Process as This};

/// What becomes of what the ranks print.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// Whole lines, each with `[rank] ` in front, to the launcher's own stdout and stderr.
    #[default]
    Labelled,
    /// Whole lines without labels.
    Plain,
    /// Kept for the [`Outcome`].
    Captured,
    /// The ranks write to the launcher's stdout and stderr themselves.
    Inherited,
    /// Thrown away.
    Discarded,
}

impl Output {
    /// Whether the launcher prints it.
    fn is_printed(self) -> bool {
        matches!(self, Output::Labelled | Output::Plain)
    }
}

/// What rank 0 reads; the others read nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Input {
    /// Nothing.
    #[default]
    Null,
    /// What the launcher reads.
    Inherited,
}

/// Why a job could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The number of ranks is 0 or too large.
    #[error("a job has between 1 and {most} ranks, not {ranks}")]
    Ranks {
        /// What was asked for.
        ranks: usize,
        /// What is possible.
        most: usize,
    },
    /// The ranks are not those of the nodes.
    #[error("the nodes {nodes} have {} ranks, and the job {ranks}", nodes.ranks())]
    Nodes {
        /// How many ranks the job has.
        ranks: usize,
        /// The nodes.
        nodes: Nodes,
    },
    /// There are more nodes than the bed has.
    #[error("the job has {nodes} nodes, and its bed {bed}")]
    SmallBed {
        /// How many nodes the job has.
        nodes: usize,
        /// How many the bed has.
        bed: usize,
    },
    /// There is no bed.
    #[error(transparent)]
    Bed(#[from] BedError),
    /// A rank could not be started.
    #[error("cannot start rank {rank} ({program:?}): {}", WithLimit(source))]
    Spawn {
        /// Which rank.
        rank: usize,
        /// The program.
        program: OsString,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The operating system refused something.
    #[error("{what}: {}", WithLimit(source))]
    Io {
        /// What was being done.
        what: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl LaunchError {
    pub(crate) fn io(what: &'static str, source: impl Into<io::Error>) -> Self {
        Self::Io {
            what,
            source: source.into(),
        }
    }
}

/// A job to be started.
///
/// ```no_run
/// use tidegate_boot::launch::{Job, Output};
/// let outcome = Job::new("/usr/bin/env", 4).output(Output::Captured).run()?;
/// assert!(outcome.success());
/// # Ok::<(), tidegate_boot::launch::LaunchError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Job {
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
    pub(crate) ranks: usize,
    pub(crate) nodes: Option<Nodes>,
    pub(crate) bed: Option<Bed>,
    pub(crate) envs: Vec<(OsString, OsString)>,
    pub(crate) rank_envs: Vec<(usize, OsString, OsString)>,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) output: Output,
    pub(crate) input: Input,
    pub(crate) grace: Duration,
    pub(crate) forward_signals: bool,
    pub(crate) explain: bool,
}

impl Job {
    /// `ranks` processes of `program`.
    pub fn new(program: impl Into<OsString>, ranks: usize) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            ranks,
            nodes: None,
            bed: None,
            envs: Vec::new(),
            rank_envs: Vec::new(),
            directory: None,
            output: Output::default(),
            input: Input::default(),
            grace: Duration::from_secs(5),
            forward_signals: false,
            explain: false,
        }
    }

    /// This very program again, for those that start themselves as their ranks.
    ///
    /// # Errors
    ///
    /// If the system does not say where this program is.
    pub fn this_program(ranks: usize) -> Result<Self, LaunchError> {
        let program = std::env::current_exe()
            .map_err(|error| LaunchError::io("finding this program", error))?;
        Ok(Self::new(program, ranks))
    }

    /// Spreads the ranks over nodes; they are all on one if not said. There have to be as many as the nodes have.
    #[must_use]
    pub fn nodes(mut self, nodes: Nodes) -> Self {
        self.nodes = Some(nodes);
        self
    }

    /// Lets each node be one of a bed: its ranks run in a network namespace of their own, and meet at the address of node 0.
    /// Without [`Job::nodes`] all are on node 0.
    #[must_use]
    pub fn bed(mut self, bed: &Bed) -> Self {
        self.bed = Some(bed.clone());
        self
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets a variable for all ranks; those that make the job are set last and cannot be overridden.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.envs.push((name.into(), value.into()));
        self
    }

    /// Sets a variable for all ranks, unless this process has it already.
    #[must_use]
    pub fn default_env(self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        let name = name.into();
        if std::env::var_os(&name).is_some() {
            self
        } else {
            self.env(name, value)
        }
    }

    /// Sets a variable for one rank.
    #[must_use]
    pub fn rank_env(
        mut self,
        rank: usize,
        name: impl Into<OsString>,
        value: impl Into<OsString>,
    ) -> Self {
        self.rank_envs.push((rank, name.into(), value.into()));
        self
    }

    /// Starts the ranks in this directory.
    #[must_use]
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// What becomes of the output; [`Output::Labelled`] if not said.
    #[must_use]
    pub fn output(mut self, output: Output) -> Self {
        self.output = output;
        self
    }

    /// What rank 0 reads; nothing if not said.
    #[must_use]
    pub fn input(mut self, input: Input) -> Self {
        self.input = input;
        self
    }

    /// How long the other ranks may take to end by themselves after one has failed, and how long all may take
    /// after a forwarded signal that asks them to end; 5 s if not said. For as long what they have printed waits then for
    /// somebody who reads it.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Passes SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 of this process on to the ranks, instead of
    /// what they did here before. Those that this process ignores stay ignored, here and in the ranks. Off if not said: a
    /// library does not take a program's signals.
    #[must_use]
    pub fn forward_signals(mut self, forward: bool) -> Self {
        self.forward_signals = forward;
        self
    }

    /// Says on stderr what is done to the ranks, and why.
    #[must_use]
    pub fn explain(mut self, explain: bool) -> Self {
        self.explain = explain;
        self
    }

    /// Starts the ranks. If this process ignores SIGCHLD, that gets its default action: the kernel would throw away how the
    /// ranks end.
    ///
    /// # Errors
    ///
    /// If one of them cannot be started; then none is left running.
    pub fn spawn(self) -> Result<Running, LaunchError> {
        monitor::start(self)
    }

    /// Starts the ranks and waits for them.
    ///
    /// # Errors
    ///
    /// As [`Job::spawn`]. That ranks fail is no error but an [`Outcome`].
    pub fn run(self) -> Result<Outcome, LaunchError> {
        Ok(self.spawn()?.wait())
    }
}

/// A rank's process, as long as it may be signalled.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// `None` once its end has been collected.
    pub(crate) pidfd: Option<Arc<OwnedFd>>,
}

/// A handle on a running job that can be cloned and given to other threads.
#[derive(Clone, Debug)]
pub struct Remote {
    pub(crate) processes: Arc<Mutex<Vec<Process>>>,
    pub(crate) stop: Arc<OwnedFd>,
}

impl Remote {
    /// The process of a rank; `None` if there is no such rank.
    pub fn pid(&self, rank: usize) -> Option<u32> {
        lock(&self.processes).get(rank).map(|process| process.pid)
    }

    /// Sends a signal to the process of one rank (not to its children). Never hits another process that has
    /// got the same number.
    ///
    /// # Errors
    ///
    /// If there is no such rank, or it has ended.
    pub fn signal(&self, rank: usize, signal: Signal) -> io::Result<()> {
        let processes = lock(&self.processes);
        match processes
            .get(rank)
            .and_then(|process| process.pidfd.as_ref())
        {
            Some(pidfd) => Ok(pidfd_send_signal(pidfd, signal)?),
            None => Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("rank {rank} is not running"),
            )),
        }
    }

    /// Kills all ranks now.
    pub fn kill(&self) {
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
    }
}

/// A job that was started. Dropping it kills the ranks (not in a child that was forked since).
#[derive(Debug)]
pub struct Running {
    pub(crate) process: This,
    pub(crate) remote: Remote,
    pub(crate) monitor: Option<JoinHandle<Outcome>>,
}

impl Running {
    /// A handle for other threads.
    pub fn remote(&self) -> Remote {
        self.remote.clone()
    }

    /// The process of a rank; `None` if there is no such rank.
    pub fn pid(&self, rank: usize) -> Option<u32> {
        self.remote.pid(rank)
    }

    /// As [`Remote::signal`].
    ///
    /// # Errors
    ///
    /// As [`Remote::signal`].
    pub fn signal(&self, rank: usize, signal: Signal) -> io::Result<()> {
        self.remote.signal(rank, signal)
    }

    /// Waits until all ranks have ended.
    ///
    /// # Panics
    ///
    /// If the thread that watches the ranks has panicked, or this is a child of the process that has started them.
    pub fn wait(mut self) -> Outcome {
        assert!(self.process.is_this(), "{Forked}");
        match self.monitor.take().map(JoinHandle::join) {
            Some(Ok(outcome)) => outcome,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => unreachable!("the monitor is only taken here and on drop"),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(monitor) = self.monitor.take() {
            if !self.process.is_this() {
                return std::mem::forget(monitor);
            }
            self.remote.kill();
            let _ = monitor.join();
        }
    }
}

/// How one rank ended.
#[derive(Clone)]
#[non_exhaustive]
pub struct RankOutcome {
    /// Its process number.
    pub pid: u32,
    /// How it ended.
    pub status: ExitStatus,
    /// What it wrote to stdout, if that was captured.
    pub stdout: Vec<u8>,
    /// What it wrote to stderr, if that was captured.
    pub stderr: Vec<u8>,
    /// When it ended, since the start of the job.
    pub after: Duration,
}

impl std::fmt::Debug for RankOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RankOutcome")
            .field("pid", &self.pid)
            .field("status", &self.status)
            .field("stdout", &String::from_utf8_lossy(&self.stdout))
            .field("stderr", &String::from_utf8_lossy(&self.stderr))
            .field("after", &self.after)
            .finish()
    }
}

/// How a job ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// Each rank.
    pub ranks: Vec<RankOutcome>,
    /// The rank that failed first.
    pub first_failure: Option<usize>,
    /// Nobody has read all that was printed: who prints more waits for a reader.
    pub(crate) is_unread: bool,
    /// Some of what was printed is lost.
    pub(crate) is_lost: bool,
}

impl Outcome {
    /// Whether all ranks ended with status 0.
    pub fn success(&self) -> bool {
        self.first_failure.is_none()
    }

    /// The exit code of the job: that of the rank that failed first, 128 and the number for a signal.
    pub fn exit_code(&self) -> u8 {
        let failed = self.first_failure.and_then(|rank| self.ranks.get(rank));
        failed.map_or(0, |rank| code_of(rank.status))
    }
}

pub(crate) fn code_of(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
