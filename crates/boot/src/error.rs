//! Errors of joining a job.

use std::time::Duration;
use tidegate_hal::control::ControlError;
use tidegate_hal::limits::WithLimit;
use tidegate_hal::process::Forked;

/// Why a rank could not join its job.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BootError {
    /// A variable that the others require is not set.
    #[error(
        "{name} is not set, but {because}; a starter sets RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and TIDEGATE_SECRET"
    )]
    MissingVariable {
        /// The name of the variable.
        name: &'static str,
        /// Why it is required.
        because: String,
    },
    /// A variable has an invalid value.
    #[error("{name}={value:?} is not valid: {expected}")]
    BadVariable {
        /// The name of the variable.
        name: &'static str,
        /// Its value (for a secret, only the length).
        value: String,
        /// What it should be.
        expected: String,
    },
    /// This process is in the job already.
    #[error(
        "this process is rank {rank} of its job already: it can join again when that rank has left, by dropping its world \
         (streams and windows hold clones of it)"
    )]
    Joined {
        /// The rank that has joined.
        rank: usize,
    },
    /// This process was made by `fork` from one that has joined the job.
    #[error(transparent)]
    Forked(Forked),
    /// A job of several ranks has no secret.
    #[error(
        "TIDEGATE_SECRET is not set: the ranks of a job prove to each other that they belong together with a secret \
         that only they know; give the same to all of them, for instance TIDEGATE_SECRET=$(openssl rand -hex 32), or \
         start the job with `tidegate run`"
    )]
    NoSecret,
    /// A launcher started this rank, but it has no store in which the ranks could find each other.
    #[error(
        "{launcher} started this process, and its key-value store cannot be used: {reason}; instead, give all ranks the same \
         TIDEGATE_SECRET, for instance $(openssl rand -hex 32) (and MASTER_ADDR and MASTER_PORT, where they are on several \
         hosts); TIDEGATE_LAUNCHER=none makes this process a job of its own"
    )]
    NoStore {
        /// The launcher that started this process.
        launcher: &'static str,
        /// Why the store cannot be used.
        reason: String,
    },
    /// The store of the launcher failed.
    #[error("{launcher} started this process, and its key-value store failed; {doing}: {reason}")]
    Store {
        /// The launcher that started this process.
        launcher: &'static str,
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        reason: String,
    },
    /// The store of the launcher did not answer in time. If this was the fence, some rank may not have come.
    #[error(
        "{launcher} started this process, and its key-value store did not answer for {waited:.1?}; {doing} (all processes that it \
         started have to join; TIDEGATE_RENDEZVOUS_TIMEOUT sets how long to wait)"
    )]
    StoreSilent {
        /// The launcher that started this process.
        launcher: &'static str,
        /// What was being done.
        doing: &'static str,
        /// How long this process waited, from the beginning.
        waited: Duration,
    },
    /// Not all ranks came in time.
    #[error(
        "after {waited:.1?} these ranks had not joined: {missing:?} (TIDEGATE_RENDEZVOUS_TIMEOUT sets how long to wait)"
    )]
    MissingRanks {
        /// The ranks that are missing.
        missing: Vec<usize>,
        /// How long this process waited for them.
        waited: Duration,
    },
    /// Rank 0 could not be reached, or what answered was not rank 0 of this job.
    #[error(
        "after {waited:.1?} and {attempts} attempts rank 0 of this job was not met at {address}: {last} \
         (TIDEGATE_RENDEZVOUS_TIMEOUT sets how long to try)"
    )]
    Unreachable {
        /// The address at which it was expected.
        address: String,
        /// How long this process tried.
        waited: Duration,
        /// How many attempts it made.
        attempts: u32,
        /// Why the last attempt failed.
        last: String,
    },
    /// Rank 0 proved to be the right one, and refused this rank.
    #[error("rank 0 refuses this rank: {0}")]
    Refused(String),
    /// The rendezvous failed for all ranks.
    #[error("the job cannot start: {0}")]
    Aborted(String),
    /// The operating system refused something.
    #[error("{what}: {}", WithLimit(source))]
    Io {
        /// What was being done.
        what: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

impl BootError {
    pub(crate) fn io(what: impl Into<String>, source: impl Into<std::io::Error>) -> Self {
        BootError::Io {
            what: what.into(),
            source: source.into(),
        }
    }
}

impl From<BootError> for ControlError {
    fn from(error: BootError) -> Self {
        ControlError::Rendezvous(error.to_string())
    }
}
