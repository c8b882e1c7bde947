//! Errors.
//!
//! Calls fail with an [`Error`]. Of those that take a token by value each has a twin, as `try_post` is one of `post`, which
//! gives the token back beside the error, in a [`Rejected`].

use std::fmt;
use std::sync::Arc;

pub use tidegate_hal::batch::Awaited;
use tidegate_hal::control::ControlError;
use tidegate_hal::device::DeviceError;
use tidegate_hal::process::Forked;

/// A `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong. Its `Debug` is its `Display`: who wants the parts matches the variant, and prints those.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A wait ended without what it waited for.
    #[error(transparent)]
    Wait(Box<WaitFailed>),
    /// The window was revoked: a peer died, a limit was passed, or an epoch was dropped half-done, perhaps by a panic.
    #[error("window `{window}` is revoked: {cause}")]
    Revoked {
        /// The window.
        window: Arc<str>,
        /// Why.
        cause: Cause,
    },
    /// A kernel panicked; everything behind it on its stream was passed over.
    #[error("a kernel of rank {rank} on stream `{stream}` panicked: {message}")]
    KernelPanicked {
        /// This rank: who sees only what is printed by all cannot know.
        rank: usize,
        /// The stream.
        stream: String,
        /// The panic's message.
        message: String,
    },
    /// What carries messages to peers has failed; everything behind it on the stream was passed over.
    #[error("stream `{stream}` of rank {rank} cannot reach its peers any more: {detail}")]
    Transport {
        /// This rank.
        rank: usize,
        /// The stream.
        stream: String,
        /// What was being done, and what was said.
        detail: String,
    },
    /// The stream was told to stop, or another stream that it waited for had failed.
    #[error("stream `{0}` was aborted")]
    Aborted(String),
    /// A rank is outside of the job.
    #[error("rank {rank} does not exist: the job has {size} {}", if *.size == 1 { "rank" } else { "ranks" })]
    NoSuchRank {
        /// The rank.
        rank: usize,
        /// The size of the job.
        size: usize,
    },
    /// A rank is not a neighbour of this rank in the window, in the direction asked for.
    #[error("rank {rank} is not {role} of this rank in window `{window}`")]
    NotInGroup {
        /// The window.
        window: Arc<str>,
        /// The rank.
        rank: usize,
        /// "an origin" or "a target".
        role: &'static str,
    },
    /// A handle is of another window than the epoch's, or of another rank's part of it.
    #[error(
        "window `{window}`: the handle of outbound slot {slot} is of another window: an epoch takes what its own window's declaration has returned, on this rank"
    )]
    ForeignSlot {
        /// The window of the epoch.
        window: Arc<str>,
        /// The number that the slot has in the other window.
        slot: u32,
    },
    /// A handle was taken twice in one epoch.
    #[error("window `{window}`: outbound slot {slot}, to rank {rank}, is taken twice in one epoch")]
    SlotTaken {
        /// The window.
        window: Arc<str>,
        /// The target.
        rank: usize,
        /// The slot's number.
        slot: u32,
    },
    /// What one epoch has taken is used in another one.
    #[error(
        "window `{window}`: outbound slot {slot}, to rank {rank}, was taken in another epoch, and is used in that one alone"
    )]
    SlotExpired {
        /// The window.
        window: Arc<str>,
        /// The target.
        rank: usize,
        /// The slot's number.
        slot: u32,
    },
    /// More elements than there is room for.
    #[error("{}elements {first}..{end} do not fit in {what} of {len} elements", of_window(.window))]
    OutOfBounds {
        /// The window; none where it is about memory that is in no window.
        window: Option<Arc<str>>,
        /// What was addressed.
        what: String,
        /// The first element.
        first: usize,
        /// One past the last.
        end: usize,
        /// How many there are.
        len: usize,
    },
    /// Source and destination differ in the number of elements.
    #[error("window `{window}`: {src} elements cannot go where {dst} are expected")]
    CountMismatch {
        /// The window, or the all-reduce.
        window: Arc<str>,
        /// Elements of the source.
        src: usize,
        /// Elements of the destination.
        dst: usize,
    },
    /// One epoch uses a slot (or range) twice: two operations touch the same elements, and not both only read or
    /// accumulate alike.
    #[error(
        "window `{window}`: outbound slot {slot}, to rank {rank}, is used twice in one epoch: two operations touch its elements {first}..{end}"
    )]
    Overlap {
        /// The window.
        window: Arc<str>,
        /// The target.
        rank: usize,
        /// The slot's number.
        slot: u32,
        /// The first element of the overlap, in elements of the slot.
        first: usize,
        /// One past the last.
        end: usize,
    },
    /// A rank that is its own peer would wait for ever: what it waits for could only come behind the wait, on the same
    /// stream, or not at all, since the half of the window that would do it was dropped.
    #[error(
        "window `{window}`: this rank waits for itself, {awaited}, which could only come behind that wait, if at all"
    )]
    SelfDeadlock {
        /// The window.
        window: Arc<str>,
        /// What would be waited for in vain.
        awaited: Awaited,
    },
    /// A window (or a barrier) has had as many epochs with a peer as its counters hold, or would have more by this call. All
    /// that were enqueued are carried out. Ranks that enqueue the same epochs, in the same calls and groups, are refused at
    /// the same one.
    #[error(
        "window `{window}` can have {most} epochs, the most that its counters hold, and this call would go beyond: replay fewer times, or drop it on all ranks and open it anew"
    )]
    LastEpoch {
        /// The window.
        window: Arc<str>,
        /// How many there can be.
        most: u64,
    },
    /// Ranks disagree about a window they create together.
    #[error("window `{window}`: {detail}")]
    WindowMismatch {
        /// The window, as this rank calls it.
        window: Arc<str>,
        /// Which ranks, about what.
        detail: String,
    },
    /// A rank is short of what its part of the window takes: memory, descriptors, queues of its NIC. All ranks get this,
    /// and no window. The job goes on: the window can be opened when something was freed.
    #[error("window `{window}` was not created: rank {rank} could not create its part: {reason}")]
    NotCreated {
        /// The window.
        window: Arc<str>,
        /// Which rank; the lowest of several.
        rank: usize,
        /// What it has met, with the name of the limit.
        reason: String,
    },
    /// A window (or a barrier) of this name is still alive on some ranks. Ranks that open two of one name in different
    /// orders would take one for the other: so all get this, and no window.
    #[error(
        "window `{window}`: one of this name is still open on {}; drop it there first (both halves), \
         or give this one another name",
        listed(.ranks)
    )]
    NameTaken {
        /// The name.
        window: Arc<str>,
        /// The ranks that hold a half of the other one, or an epoch of it.
        ranks: Vec<usize>,
    },
    /// An operation that does not fit the element type or the window.
    #[error("{0}")]
    Invalid(String),
    /// The steps of a recording do not end with what they began with, in the same places.
    #[error(
        "not replayable: the step got {lent} things and gave back {returned}; {} differs \
         (a captured step gives back all that it was lent, in the same places; \
         where buffers are swapped, capture two steps)",
        named(.name, *.position)
    )]
    NotReplayable {
        /// How many regions and window halves went in.
        lent: usize,
        /// How many came out.
        returned: usize,
        /// The first place in which they differ, from 0.
        position: usize,
        /// The field there, as in `energy.inbox`, if there is one.
        name: Option<String>,
    },
    /// What is replayed is not what was recorded.
    #[error(
        "this recording was made with other regions or windows ({} differs)",
        named(.name, *.position)
    )]
    OtherGraph {
        /// The first place that differs, from 0.
        position: usize,
        /// The field there, as in `energy.inbox`, if there is one.
        name: Option<String>,
    },
    /// The call is not possible while its stream is captured.
    #[error("not possible inside a capture: {0}")]
    Capturing(&'static str),
    /// This process was made by `fork` from the one that joined the job. Nothing was done; that one goes on undisturbed.
    #[error(transparent)]
    Forked(#[from] Forked),
    /// The device refused.
    #[error(transparent)]
    Device(DeviceError),
    /// The NIC refused.
    #[error(transparent)]
    Nic(#[from] tidegate_hal::nic::NicError),
    /// The ranks are on several nodes, or a rank's route asks for a NIC, and a rank could not open its NIC. All ranks get
    /// this.
    #[error("rank {rank} could not open the NIC that the job needs: {reason}")]
    NoNic {
        /// The lowest such rank.
        rank: usize,
        /// What it has met.
        reason: String,
    },
    /// The job could not be joined.
    #[error(transparent)]
    Join(#[from] tidegate_boot::BootError),
    /// The control plane failed.
    #[error(transparent)]
    Control(ControlError),
    /// The job could not be joined by another bootstrap than the library's own: its error is inside.
    #[error(transparent)]
    Bootstrap(Box<dyn std::error::Error + Send + Sync>),
    /// An error of the program's own: see [`Error::other`].
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

/// In words, too: it is what `fn main() -> Result<()>`, `unwrap` and `expect` print.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// An error of the program's own, or of another library, for what must return this crate's: a step that
    /// [`capture`](crate::Stream::capture) runs, say.
    ///
    /// ```
    /// # use tidegate_core::Error;
    /// let number = |text: &str| text.parse::<u32>().map_err(Error::other);
    /// let error = number("many").unwrap_err();
    /// assert_eq!(error.to_string(), "invalid digit found in string");
    /// let Error::Other(inner) = error else { panic!("it is the program's") };
    /// assert!(inner.is::<std::num::ParseIntError>());
    /// ```
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Error::Other(error.into())
    }

    /// Whether it is one that goes when something is freed, on this rank.
    pub(crate) fn is_shortage(&self) -> bool {
        use tidegate_hal::nic::NicError;
        matches!(
            self,
            Error::Device(DeviceError::Exhausted { .. })
                | Error::Nic(
                    NicError::Exhausted { .. } | NicError::Memory(DeviceError::Exhausted { .. })
                )
        )
    }
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Self {
        match error {
            DeviceError::Capturing(what) => Error::Capturing(what),
            DeviceError::Forked(forked) => Error::Forked(forked),
            other => Error::Device(other),
        }
    }
}

impl From<ControlError> for Error {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::Forked(forked) => Error::Forked(forked),
            other => Error::Control(other),
        }
    }
}

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

/// An empty list with room for so many elements, of which no more are to be added: where a program or another rank chooses
/// how many they are, a shortage of memory is an error, and not the end of the process.
pub(crate) fn reserved<T>(len: usize) -> Result<Vec<T>> {
    let mut list = Vec::new();
    match list.try_reserve_exact(len) {
        Ok(()) => Ok(list),
        Err(_) => Err(no_memory::<T>(len)),
    }
}

/// Adds to a list of which nobody knows how long it will be.
pub(crate) fn push<T>(list: &mut Vec<T>, entry: T) -> Result<()> {
    if list.try_reserve(1).is_err() {
        return Err(no_memory::<T>(list.len() + 1));
    }
    list.push(entry);
    Ok(())
}

/// What is said where a list of so many elements has no room.
#[cold]
fn no_memory<T>(len: usize) -> Error {
    let detail = format!("a list of {len} entries of {} bytes", size_of::<T>());
    Error::Device(DeviceError::Exhausted {
        what: "memory",
        detail,
    })
}

/// An error, and the value that the call had taken: what the calls fail with whose names begin with `try_`. (It is no
/// `std::error::Error`: it can hold what is at home on a stream, and that cannot leave the function that `?` leaves. So
/// where the value is not wanted, call the twin without `try_`.)
pub struct Rejected<T> {
    /// What went wrong.
    pub error: Error,
    /// What the call was given, as it was.
    pub value: T,
}

impl<T> Rejected<T> {
    pub(crate) fn new(error: impl Into<Error>, value: T) -> Self {
        Rejected {
            error: error.into(),
            value,
        }
    }

    /// The error; the value is dropped.
    pub fn into_error(self) -> Error {
        self.error
    }

    /// Applies a function to the value.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Rejected<U> {
        Rejected {
            error: self.error,
            value: f(self.value),
        }
    }
}

/// The error, in words.
impl<T> fmt::Debug for Rejected<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.error, f)
    }
}

impl<T> fmt::Display for Rejected<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

/// "window `w`: ", if there is one.
fn of_window(window: &Option<Arc<str>>) -> String {
    let named = |window: &Arc<str>| format!("window `{window}`: ");
    window.as_ref().map_or_else(String::new, named)
}

/// "`energy.inbox` (place 3)", or "place 3".
fn named(name: &Option<String>, position: usize) -> String {
    match name {
        Some(name) => format!("`{name}` (place {position})"),
        None => format!("place {position}"),
    }
}

/// Ranks that are listed at most.
const LISTED: usize = 8;

/// "rank 3", "ranks 1, 3 and 9 more".
pub(crate) fn listed(ranks: &[usize]) -> String {
    let first: Vec<_> = ranks.iter().take(LISTED).map(usize::to_string).collect();
    let first = first.join(", ");
    match ranks.len() {
        1 => format!("rank {first}"),
        LISTED.. if ranks.len() > LISTED => {
            format!("ranks {first} and {} more", ranks.len() - LISTED)
        }
        _ => format!("ranks {first}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_ranks_some_are_listed() {
        assert_eq!(listed(&[3]), "rank 3");
        assert_eq!(
            listed(&(0..8).collect::<Vec<_>>()),
            "ranks 0, 1, 2, 3, 4, 5, 6, 7"
        );
        assert!(listed(&(0..11).collect::<Vec<_>>()).ends_with("6, 7 and 3 more"));
    }
}
