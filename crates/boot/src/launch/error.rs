//! Why a job could not be started.

use super::nodes::Nodes;
use std::ffi::OsString;
use std::io;
use tidegate_hal::limits::WithLimit;
use tidegate_testbed::BedError;

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
