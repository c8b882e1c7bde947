//! The description of a job: its program, its ranks, and the use of their output.

use super::bind::Bind;
use super::error::LaunchError;
use super::hosts::Hosts;
use super::nodes::Nodes;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use tidegate_testbed::Bed;

/// What happens to the output of the ranks.
///
/// # Examples
///
/// ```
/// use tidegate_cli::{Job, Output};
///
/// let outcome = Job::new("echo", 2).arg("here").output(Output::Captured).run()?;
/// assert_eq!(outcome.ranks[1].stdout, b"here\n");
/// # Ok::<(), tidegate_cli::LaunchError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// Whole lines, each with `[rank] ` in front, go to the launcher's stdout and stderr.
    #[default]
    Labelled,
    /// Whole lines without labels go to the launcher's stdout and stderr.
    Plain,
    /// The output is kept for the [`Outcome`](super::Outcome).
    Captured,
    /// The ranks write to the launcher's stdout and stderr themselves.
    Inherited,
    /// The output is discarded.
    Discarded,
}

impl Output {
    /// Whether the launcher prints it.
    pub(super) fn is_printed(self) -> bool {
        matches!(self, Output::Labelled | Output::Plain)
    }
}

/// The input of rank 0. The other ranks have none.
///
/// # Examples
///
/// ```
/// use tidegate_cli::{Input, Job};
///
/// let job = Job::new("./solver", 8).input(Input::Inherited); // rank 0 reads what this program is given
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Input {
    /// Nothing.
    #[default]
    Null,
    /// The launcher's own input.
    Inherited,
}

/// A job to be started.
///
/// ```
/// use tidegate_cli::{Job, Output};
///
/// let outcome = Job::new("/usr/bin/env", 4).output(Output::Captured).run()?;
/// assert!(outcome.success());
/// # Ok::<(), tidegate_cli::LaunchError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Job {
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
    pub(crate) ranks: usize,
    pub(crate) nodes: Option<Nodes>,
    pub(crate) bed: Option<Bed>,
    pub(crate) hosts: Option<Hosts>,
    pub(crate) bind: Bind,
    pub(crate) envs: Vec<(OsString, OsString)>,
    pub(crate) rank_envs: Vec<(usize, OsString, OsString)>,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) output: Output,
    pub(crate) input: Input,
    pub(crate) grace: Duration,
    pub(crate) forward_signals: bool,
    pub(crate) explain: bool,
    pub(crate) verbose: bool,
}

impl Job {
    /// `ranks` processes of `program`.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate_cli::Job;
    ///
    /// assert!(Job::new("true", 4).run()?.success());
    /// # Ok::<(), tidegate_cli::LaunchError>(())
    /// ```
    pub fn new(program: impl Into<OsString>, ranks: usize) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            ranks,
            nodes: None,
            bed: None,
            hosts: None,
            bind: Bind::None,
            envs: Vec::new(),
            rank_envs: Vec::new(),
            directory: None,
            output: Output::default(),
            input: Input::default(),
            grace: Duration::from_secs(5),
            forward_signals: false,
            explain: false,
            verbose: false,
        }
    }

    /// Starts this program again, for programs that start themselves as their ranks.
    ///
    /// # Errors
    ///
    /// If the system does not tell the path of this program.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate_cli::Job;
    ///
    /// let job = Job::this_program(4)?.arg("--rank"); // so that the ranks know that they are ranks
    /// # Ok::<(), tidegate_cli::LaunchError>(())
    /// ```
    pub fn this_program(ranks: usize) -> Result<Self, LaunchError> {
        let program = std::env::current_exe()
            .map_err(|error| LaunchError::io("finding this program", error))?;
        Ok(Self::new(program, ranks))
    }

    /// Spreads the ranks over nodes. The default is one node. The nodes must have as many ranks as the job.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate_cli::{Job, Nodes};
    ///
    /// let outcome = Job::new("true", 4).nodes(Nodes::split(2, 2)).run()?;
    /// # assert!(outcome.success());
    /// # Ok::<(), tidegate_cli::LaunchError>(())
    /// ```
    #[must_use]
    pub fn nodes(mut self, nodes: Nodes) -> Self {
        self.nodes = Some(nodes);
        self
    }

    /// Makes each node one of a bed: its ranks run in a network namespace of their own, and meet at the address of node
    /// 0. Without [`Job::nodes`], all ranks are on node 0.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use tidegate_cli::{Bed, Job, Nodes};
    ///
    /// let bed = Bed::builder(2).delay(Duration::from_millis(1)).build()?; // takes the right to make namespaces
    /// let outcome = Job::new("./solver", 2).nodes(Nodes::split(2, 1)).bed(&bed).run()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn bed(mut self, bed: &Bed) -> Self {
        self.bed = Some(bed.clone());
        self
    }

    /// Makes the ranks run on these hosts, in blocks: the first host is filled first. The program, the working
    /// directory and `tidegate` must have the same paths there as here. The hosts get only tidegate's variables of this
    /// process's environment (and `RUST_LOG`, `RUST_BACKTRACE`); [`Job::env`] sets others.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate_cli::{Hosts, Job};
    ///
    /// let hosts: Hosts = "node1 slots=4\nnode2 slots=4".parse()?;
    /// let job = Job::new("/opt/solver", 8).hosts(hosts);
    /// # Ok::<(), tidegate_cli::LaunchError>(())
    /// ```
    #[must_use]
    pub fn hosts(mut self, hosts: Hosts) -> Self {
        self.hosts = Some(hosts);
        self
    }

    /// Binds each rank to a part of its machine. The default is no binding.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate_cli::{Bind, Job};
    ///
    /// let job = Job::new("./solver", 8).bind(Bind::Core);
    /// ```
    #[must_use]
    pub fn bind(mut self, bind: Bind) -> Self {
        self.bind = bind;
        self
    }

    /// Adds an argument.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate_cli::{Job, Output};
    ///
    /// let job = Job::new("echo", 1).arg("one").arg("two").output(Output::Captured);
    /// assert_eq!(job.run()?.ranks[0].stdout, b"one two\n");
    /// # Ok::<(), tidegate_cli::LaunchError>(())
    /// ```
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate_cli::{Job, Output};
    ///
    /// let job = Job::new("echo", 1).args(["one", "two"]).output(Output::Captured);
    /// assert_eq!(job.run()?.ranks[0].stdout, b"one two\n");
    /// # Ok::<(), tidegate_cli::LaunchError>(())
    /// ```
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets a variable for all ranks. The variables that make the job are set last, and cannot be overridden, except
    /// for `TIDEGATE_ADDRESS` and `TIDEGATE_DEVICE`.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate_cli::Job;
    ///
    /// let job = Job::new("./solver", 8).env("RUST_LOG", "tidegate=debug");
    /// ```
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.envs.push((name.into(), value.into()));
        self
    }

    /// Sets a variable for all ranks, unless this process has it already. Then the ranks get this process's value, on
    /// other hosts, too.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate_cli::Job;
    ///
    /// let job = Job::new("./solver", 8).default_env("OMP_NUM_THREADS", "1");
    /// ```
    #[must_use]
    pub fn default_env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        let name = name.into();
        match std::env::var_os(&name) {
            // The job's own variables take precedence.
            Some(own) => self.envs.insert(0, (name, own)),
            None => self.envs.push((name, value.into())),
        }
        self
    }

    /// Sets a variable for one rank.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate_cli::Job;
    ///
    /// let job = Job::new("./solver", 8).rank_env(3, "RUST_LOG", "trace");
    /// ```
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
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate_cli::{Job, Output};
    ///
    /// let job = Job::new("pwd", 1).directory("/").output(Output::Captured);
    /// assert_eq!(job.run()?.ranks[0].stdout, b"/\n");
    /// # Ok::<(), tidegate_cli::LaunchError>(())
    /// ```
    #[must_use]
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Checks that the directory exists, since the error of a program that cannot be started there does not say so.
    pub(crate) fn check_directory(&self) -> Result<(), LaunchError> {
        let Some(directory) = &self.directory else {
            return Ok(());
        };
        let source = match std::fs::metadata(directory) {
            Ok(found) if found.is_dir() => return Ok(()),
            Ok(_) => std::io::ErrorKind::NotADirectory.into(),
            Err(source) => source,
        };
        let path = directory.clone();
        Err(LaunchError::Directory { path, source })
    }

    /// Says what happens to the output. The default is [`Output::Labelled`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate_cli::{Job, Output};
    ///
    /// let outcome = Job::new("echo", 2).arg("nobody reads this").output(Output::Discarded).run()?;
    /// # assert!(outcome.success());
    /// # Ok::<(), tidegate_cli::LaunchError>(())
    /// ```
    #[must_use]
    pub fn output(mut self, output: Output) -> Self {
        self.output = output;
        self
    }

    /// Sets the input of rank 0. The default is none.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate_cli::{Input, Job};
    ///
    /// let job = Job::new("./solver", 8).input(Input::Null);
    /// ```
    #[must_use]
    pub fn input(mut self, input: Input) -> Self {
        self.input = input;
        self
    }

    /// How long the other ranks may take to end by themselves after one has failed, and how long all may take after a
    /// forwarded signal that asks them to end. The default is 5 s. Output that nobody reads is then kept for as long.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate_cli::Job;
    ///
    /// let job = Job::new("./solver", 8).grace(Duration::from_secs(60)); // time to save what there is
    /// ```
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Passes SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 of this process on to the ranks, instead of their actions
    /// here. If one of the first three comes again, a second or more after the first, the ranks are killed. Signals
    /// that this process ignores stay ignored, here and in the ranks. After the job the actions are those from before.
    ///
    /// A program that listens to these signals by signal-hook or by an executor that uses it, such as tokio's, begins
    /// to listen before its first such job. Otherwise such a signal ends the program after the job, before its listener
    /// runs.
    ///
    /// The default is off, since a library should not take a program's signals.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate_cli::Job;
    ///
    /// let job = Job::new("./solver", 8).forward_signals(true); // Ctrl-C reaches the ranks
    /// ```
    #[must_use]
    pub fn forward_signals(mut self, forward: bool) -> Self {
        self.forward_signals = forward;
        self
    }

    /// Reports on stderr what is done to the ranks, and why.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate_cli::Job;
    ///
    /// let job = Job::new("./solver", 8).explain(true);
    /// ```
    #[must_use]
    pub fn explain(mut self, explain: bool) -> Self {
        self.explain = explain;
        self
    }

    /// Also reports on stderr to what each rank is bound. Needs [`Job::explain`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate_cli::{Bind, Job};
    ///
    /// let job = Job::new("./solver", 8).bind(Bind::Core).explain(true).verbose(true);
    /// ```
    #[must_use]
    pub fn verbose(mut self, verbose: bool) -> Self {
        self.verbose = verbose;
        self
    }
}
