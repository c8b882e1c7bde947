//! Why a wait failed, or why a window is revoked.

use tidegate_hal::batch::Awaited;
use tidegate_hal::site::CallSite;

use super::window_name::WindowName;

/// A wait that ended before the peer did what was awaited.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tidegate::error::Cause;
/// use tidegate::host::prelude::*;
///
/// # tidegate::doc::ranks(2, |world| {
/// # stream!(let s = world.stream()?);
/// # let peer = 1 - world.rank();
/// let mut window = SlotWindow::<u64>::new("halo").fail_after(Duration::from_millis(10));
/// # window.slot_from(peer, 0, 4);
/// # window.slot_to(peer, 0);
/// # let (inbox, _outbox) = window.open(&s)?;
/// # if world.rank() == 1 {
/// #     return world.all_gather("over", Vec::new()).map(drop); // its own post might come after the limit
/// # }
/// let inbox = inbox.post(&s)?.wait(&s)?; // nobody completes
/// let Err(Error::Wait(failed)) = s.synchronize() else { panic!("the limit has passed") };
/// let window = failed.window.expect("it was for a window");
/// assert_eq!((&*window.name, failed.epoch, failed.rank), ("halo", 0, peer));
/// assert!(matches!(failed.cause, Cause::Limit { .. }));
/// # world.all_gather("over", Vec::new())?;
/// # Ok(()) });
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{}rank {waiting}'s wait for rank {rank} ({awaited}) failed: {cause}",
    said_before(.window.as_ref(), *.epoch, *.site)
)]
pub struct WaitFailed {
    /// The window, if the wait belongs to one.
    pub window: Option<WindowName>,
    /// The number of the epoch. Each pair of ranks counts its epochs from 0, in each direction.
    pub epoch: u64,
    /// The place in the program that enqueued the wait, if it is known. (A GPU does not tell apart the waits of several
    /// calls.)
    pub site: Option<CallSite>,
    /// This rank, which was waiting.
    pub waiting: usize,
    /// The rank that was waited for.
    pub rank: usize,
    /// What the other rank was expected to do.
    pub awaited: Awaited,
    /// Why it did not do it.
    pub cause: Cause,
}

/// The beginning of the message: the window, the epoch and the place in the program.
fn said_before(window: Option<&WindowName>, epoch: u64, site: Option<CallSite>) -> String {
    let window = window.map(|window| format!("window {window}, epoch {epoch}"));
    let site = site.map(|site| format!("enqueued at {site}"));
    match (window, site) {
        (Some(window), Some(site)) => format!("{window}, {site}: "),
        (Some(one), None) | (None, Some(one)) => format!("{one}: "),
        (None, None) => String::new(),
    }
}

/// The reason why a wait failed, or why a window is revoked.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::error::Cause;
///
/// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
/// drop(outbox.start()); // this epoch is never completed
/// let error = inbox.post(s).unwrap_err();
/// assert!(matches!(error, Error::Revoked { cause: Cause::Dropped { .. }, .. }));
/// # Ok(()) });
/// ```
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// A rank died.
    #[error("rank {rank} is lost ({reason})")]
    PeerLost {
        /// The rank that died.
        rank: usize,
        /// How the loss was noticed.
        reason: String,
    },
    /// A rank ended its part of the job.
    #[error("rank {rank} has left the job")]
    PeerLeft {
        /// The rank that has left.
        rank: usize,
    },
    /// A rank dropped a token of an open epoch of this window.
    #[error("rank {rank} dropped {token}")]
    Dropped {
        /// The rank that dropped it.
        rank: usize,
        /// The token, the call that should have taken it, and the error of an operation that was refused in this epoch,
        /// if there was one.
        token: String,
    },
    /// A thread of a rank panicked while it held a token of an open epoch of this window.
    #[error("a thread of rank {rank} panicked, and so dropped {token}")]
    Panicked {
        /// The rank whose thread it was.
        rank: usize,
        /// The token that the panic dropped, and the call that should have taken it.
        token: String,
    },
    /// A wait lasted longer than the limit of its window.
    #[error("rank {rank} had waited {} for {limit:?}, the limit of the window", awaited_of(*.peer))]
    Limit {
        /// The rank that waited.
        rank: usize,
        /// The rank that it waited for, or `None` if it waited for room in its own NIC.
        peer: Option<usize>,
        /// The limit: see [`Window::fail_after`](crate::window::Window::fail_after).
        limit: std::time::Duration,
    },
    /// A kernel on a stream of a rank has failed. That stream skips its later work, and other ranks may wait for it.
    #[error("stream `{stream}` of rank {rank} has failed: {reason}")]
    StreamFailed {
        /// The rank whose stream it is.
        rank: usize,
        /// The stream's name.
        stream: String,
        /// The kernel's message. If it is long, only its beginning.
        reason: String,
    },
    /// A kernel of a rank took [`Last`](crate::window::Last) of a target, and did not complete it.
    #[error("a kernel of rank {rank} took `last` of rank {target}, and did not complete it")]
    NotCompleted {
        /// The rank whose kernel it was.
        rank: usize,
        /// The target that it was to complete.
        target: usize,
    },
    /// The peer's signal will not come, but no rank has said why. A stream of the peer failed before the signal, or a
    /// transfer between the two ranks failed.
    #[error("a stream of rank {rank} has failed, or a transfer to or from that rank")]
    PeerFailed {
        /// The peer that was waited for.
        rank: usize,
    },
    /// A call of a rank failed, so that the rank could not enqueue its part of an epoch. The window is revoked, because
    /// its peers would wait for that part.
    #[error("rank {rank} could not enqueue its part of an epoch: {reason}")]
    NotEnqueued {
        /// The rank whose call has failed.
        rank: usize,
        /// The message of that call's error.
        reason: String,
    },
    /// A rank's NIC has failed.
    #[error("the NIC of rank {rank} has failed ({reason})")]
    NicFailed {
        /// The rank whose NIC it is.
        rank: usize,
        /// The NIC's error.
        reason: String,
    },
}

impl Cause {
    /// The rank whose end, call, stream or NIC is the cause.
    pub(crate) fn rank(&self) -> usize {
        match self {
            Cause::PeerLost { rank, .. }
            | Cause::PeerLeft { rank }
            | Cause::Dropped { rank, .. }
            | Cause::Panicked { rank, .. }
            | Cause::Limit { rank, .. }
            | Cause::StreamFailed { rank, .. }
            | Cause::NotCompleted { rank, .. }
            | Cause::PeerFailed { rank }
            | Cause::NotEnqueued { rank, .. }
            | Cause::NicFailed { rank, .. } => *rank,
        }
    }
}

fn awaited_of(peer: Option<usize>) -> String {
    match peer {
        Some(peer) => format!("for rank {peer}"),
        None => "for its NIC".to_owned(),
    }
}
