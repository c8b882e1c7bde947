//! Why a wait failed or a window is revoked.

use std::fmt;
use std::sync::Arc;

use tidegate_hal::batch::Awaited;

/// A wait that ended without what it waited for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "window `{window}`, epoch {epoch}: rank {waiting} waited for rank {rank}, {awaited}, in vain: {cause}"
)]
pub struct WaitFailed {
    /// The window.
    pub window: Arc<str>,
    /// The number of the epoch, from 0, counted for this peer and direction.
    pub epoch: u64,
    /// This rank, which waited.
    pub waiting: usize,
    /// The rank that was waited for.
    pub rank: usize,
    /// What it was expected to do.
    pub awaited: Awaited,
    /// Why it did not.
    pub cause: Cause,
}

/// Why a wait failed or a window is revoked.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum Cause {
    /// A rank died.
    PeerLost {
        /// Which.
        rank: usize,
        /// How that was noticed.
        reason: String,
    },
    /// A rank ended its part of the job.
    PeerLeft {
        /// Which.
        rank: usize,
    },
    /// A rank dropped a token of an open epoch of this window.
    Dropped {
        /// Which rank.
        rank: usize,
        /// Which token, and before what.
        token: String,
    },
    /// The thread of a rank that held a token of an open epoch of this window has panicked.
    Panicked {
        /// Which rank.
        rank: usize,
        /// Which token was dropped by that, and before what.
        token: String,
    },
    /// The limit that was set for the window passed.
    Limit {
        /// The rank that had waited that long.
        rank: usize,
        /// The limit.
        limit: std::time::Duration,
    },
    /// A kernel on a stream of a rank has failed: what is behind it there is not done, nor what waits for that.
    StreamFailed {
        /// Which rank.
        rank: usize,
        /// The stream's name.
        stream: String,
        /// What the kernel said: of very much, the beginning.
        reason: String,
    },
    /// What was waited for will not come, and nobody has said more: a stream of the peer failed before it came to this,
    /// or a transfer between the two ranks failed.
    PeerFailed {
        /// Which rank.
        rank: usize,
    },
    /// A call of a rank has failed, and has lost a token that others reckon with; or its stream has not taken the end of an
    /// all-reduce whose beginning it has, or what its NIC was armed for.
    NotEnqueued {
        /// Which rank.
        rank: usize,
        /// Why.
        reason: String,
    },
    /// A rank's NIC is of no more use.
    NicFailed {
        /// Whose.
        rank: usize,
        /// What it said.
        reason: String,
    },
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::PeerLost { rank, reason } => write!(f, "rank {rank} is lost ({reason})"),
            Cause::PeerLeft { rank } => write!(f, "rank {rank} has left the job"),
            Cause::Dropped { rank, token } => write!(f, "rank {rank} dropped {token}"),
            Cause::Panicked { rank, token } => {
                write!(
                    f,
                    "a thread of rank {rank} panicked, and so dropped {token}"
                )
            }
            Cause::Limit { rank, limit } => {
                write!(f, "rank {rank} had waited for the limit of {limit:?}")
            }
            Cause::StreamFailed {
                rank,
                stream,
                reason,
            } => write!(f, "stream `{stream}` of rank {rank} has failed: {reason}"),
            Cause::PeerFailed { rank } => {
                write!(
                    f,
                    "a stream of rank {rank} had failed, or a transfer to or from it"
                )
            }
            Cause::NotEnqueued { rank, reason } => {
                write!(
                    f,
                    "rank {rank} could not enqueue what others reckon with: {reason}"
                )
            }
            Cause::NicFailed { rank, reason } => {
                write!(f, "the NIC of rank {rank} has failed ({reason})")
            }
        }
    }
}
