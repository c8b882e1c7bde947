//! Why a job could not be started.

use super::bind::BindError;
use super::nodes::Nodes;
use rustix::process::Signal;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use tidegate_boot::BootError;
use tidegate_hal::limits::WithLimit;
use tidegate_testbed::BedError;

/// Why a job could not be started.
///
/// # Examples
///
/// ```
/// use tidegate_cli::{Job, LaunchError};
///
/// let error = Job::new("true", 0).run().unwrap_err();
/// assert!(matches!(error, LaunchError::Ranks { ranks: 0, .. }));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The number of ranks is 0 or too large.
    #[error("a job has between 1 and {most} ranks, not {ranks}")]
    Ranks {
        /// The number that was asked for.
        ranks: usize,
        /// The largest number that is possible.
        most: usize,
    },
    /// The number of ranks differs from that of the nodes.
    #[error("the nodes {nodes} have {} ranks, and the job {ranks}", nodes.ranks())]
    Nodes {
        /// How many ranks the job has.
        ranks: usize,
        /// The nodes, with the ranks of each.
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
    /// The bed cannot be made.
    #[error(transparent)]
    Bed(#[from] BedError),
    /// Ranks cannot be bound to processors or memory as asked for.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A variable of the environment cannot be read.
    #[error(transparent)]
    Variable(#[from] BootError),
    /// The list of hosts cannot be read.
    #[error("the list of hosts {} cannot be read: {source}", path.display())]
    NoHostsFile {
        /// The path of the list.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A line of the list of hosts names no host.
    #[error("line {line} of the list of hosts: {reason}")]
    HostsFile {
        /// Which line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// The hosts have too few slots.
    #[error(
        "the hosts have {slots} slots, and the job {ranks} ranks; `slots=N` behind a host says how many it takes"
    )]
    Slots {
        /// How many slots the hosts have.
        slots: usize,
        /// How many ranks the job has.
        ranks: usize,
    },
    /// A job on several hosts cannot have nodes or a bed on this machine.
    #[error("a job on several hosts can have neither nodes nor a bed on this one")]
    HostsAndNodes,
    /// The ranks of a host could not be started.
    #[error("host {host}: {reason}")]
    Host {
        /// The name of the host.
        host: String,
        /// Why, with the error output of ssh.
        reason: String,
        /// The exit code for this error.
        code: u8,
    },
    /// A host cannot resolve the address of rank 0.
    #[error(
        "{host} has no address here ({source}): give the address at which the others reach the first host by --address"
    )]
    Unknown {
        /// The name that was looked up.
        host: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The working directory of the ranks does not exist.
    #[error("the working directory {} cannot be used: {source}", path.display())]
    Directory {
        /// The path of the folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A signal came before all ranks were started.
    #[error("ended by signal {} before all ranks had started", .0.as_raw())]
    Interrupted(Signal),
    /// A rank could not be started.
    #[error("cannot start rank {rank} ({program:?}): {}", WithLimit(source))]
    Spawn {
        /// The rank that was to be started.
        rank: usize,
        /// The program that it was to run.
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

    /// The exit code for this error, as shells use it.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Spawn { source, .. } if source.kind() == io::ErrorKind::NotFound => 127,
            Self::Spawn { .. } => 126,
            Self::Host { code, .. } => *code,
            Self::Interrupted(signal) => u8::try_from(128 + signal.as_raw()).unwrap_or(1),
            _ => 1,
        }
    }
}
