//! How far a stream has come, what it waits for, and why it has failed.

use std::any::Any;
use std::task::Waker;

use super::calls::Calls;
use crate::batch::Tag;
use crate::site::CallSite;

/// Why a stream stopped doing work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A wait ended before its count was reached.
    Wait {
        /// What was waited for.
        tag: Tag,
        /// The number of the epoch (from 0) whose count was not reached.
        epoch: u64,
        /// Where the wait was enqueued, if the device knows.
        site: Option<CallSite>,
    },
    /// A number that a kernel has written is too great: how many elements this rank sends to a peer, for instance.
    Count {
        /// Whose number it is, and for whom.
        tag: Tag,
        /// The number.
        count: u64,
    },
    /// The transport to peers has failed, or only a part of a batch could be submitted, so that some words are not
    /// added to. The text says which.
    Transport(String),
    /// A kernel panicked; the text is its message.
    Kernel(String),
    /// The stream was dropped while its thread was unwinding, or told to stop.
    Aborted,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Wait { tag, epoch, .. } => {
                let Tag { peer, awaited, .. } = tag;
                write!(
                    f,
                    "rank {peer} has not signalled {awaited} of epoch {epoch}"
                )
            }
            Fault::Count { tag, count } => {
                write!(
                    f,
                    "the count for rank {} is {count}, which is too great",
                    tag.peer
                )
            }
            Fault::Transport(detail) => f.write_str(detail),
            Fault::Kernel(message) => write!(f, "a kernel panicked: {message}"),
            Fault::Aborted => f.write_str("the stream was told to stop"),
        }
    }
}

/// A wait that a stream is in at the moment, for the wait-for graph.
#[derive(Clone, Debug)]
pub struct Blocked {
    /// The waits of the current batch that are not over, each with the number of its epoch.
    pub on: Vec<(Tag, u64)>,
    /// Whether the batch may have more waits than these, because the device cannot tell all of them at a time.
    pub more: bool,
    /// Where the batch was enqueued, if the device knows. (One batch may be submitted from several places.)
    pub site: Option<CallSite>,
    /// Since when the stream waits.
    pub since: std::time::Instant,
}

/// What occupies a stream that has not passed all of its work, for the wait-for graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// A kernel of the user runs. Its name, if the device knows it.
    Kernel(Option<&'static str>),
    /// It waits for another stream of this process.
    Stream,
    /// The device cannot tell. A kernel or a move may run, or the stream may wait for another stream of this process.
    /// Or it may have finished, and nobody has looked since.
    Something,
}

/// The state of a stream at one look, for the wait-for graph.
#[derive(Clone, Debug)]
pub enum Stand {
    /// It has passed all work that was submitted.
    Through,
    /// It waits for peers.
    Waits(Blocked),
    /// It waits for no peer, and has not passed all of its work, as far as is known.
    Works(Work),
}

/// The part of a stream that outlives its owner. It knows how far the stream has come, and frees what the stream has
/// passed.
pub trait Reclaim: Send + Sync + 'static {
    /// Drops `garbage` when everything submitted so far has been passed, which may be at once.
    fn retire(&self, garbage: Box<dyn Any + Send>);

    /// The first fault, if there is one. It costs one load while there is none.
    fn fault(&self) -> Option<Fault>;

    /// Fails the stream's current wait, and all later ones.
    fn abort(&self);

    /// The stream's current wait, if it has lasted longer than an instant.
    fn blocked(&self) -> Option<Blocked>;

    /// Like [`Reclaim::blocked`], without a copy, for callers that look often.
    fn look_at_blocked(&self, look: &mut dyn FnMut(&Blocked)) {
        if let Some(blocked) = self.blocked() {
            look(&blocked);
        }
    }

    /// The state of the stream. It is one call because the stream goes on meanwhile. If its wait and its work were two
    /// calls, a stream that goes from work to a wait in between would be in neither. The call waits for nobody, because
    /// its callers must not be held up.
    fn stand(&self) -> Stand;

    /// The calls on the stream that are in progress. Methods of [`Stream`](crate::device::Stream) that may block record themselves here.
    fn calls(&self) -> &Calls;

    /// A number that changes when the stream makes progress, as far as that is known without asking the device. The
    /// call waits for nobody.
    fn progress(&self) -> u64;

    /// The number of work items passed so far.
    fn passed(&self) -> u64;

    /// Asks for a wake-up of a future when `passed() >= mark`, and returns whether that is so already. If the future
    /// asks again, its new waker replaces the old one. `future` is a number that no other future of the process has.
    fn wake_at(&self, mark: u64, future: u64, waker: &Waker) -> bool;

    /// Drops the waker of a future that needs no wake-up any more.
    fn forget_waker(&self, future: u64);
}
