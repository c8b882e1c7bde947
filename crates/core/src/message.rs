//! The messages that ranks send each other over the control plane.

use serde::{Deserialize, Serialize};
use tidegate_hal::ids::WindowId;

use crate::error::Cause;
use crate::half_kind::HalfKind;
use crate::replays::Runs;

#[derive(Serialize, Deserialize)]
pub(crate) enum Message {
    /// The window is revoked.
    Revoke { window: WindowId, cause: Cause },
    /// The sender's NIC will no longer access its peers' memory of this window.
    Through { window: WindowId },
    /// The sender's thread is unwinding.
    Panicked,
    /// A stream of the sender has failed, through a kernel of its own or of another rank.
    Failed { cause: Cause },
    /// The sender leaves in good order. It keeps its NIC's endpoint until this is answered, by `Leaves` or by
    /// `Prepared`, or for a limited time.
    Leaves,
    /// The answer to `Leaves`: from now on a failure towards the receiver counts as its departure.
    Prepared,
    /// Asks whether the receiver is alive, because an operation of the sender's NIC towards it has failed.
    Ask { number: u64 },
    /// The answer to the question with that number.
    There { number: u64 },
    /// About long waits.
    Watch(WatchMessage),
}

#[derive(Serialize, Deserialize)]
pub(crate) enum WatchMessage {
    /// To the reporter: a wait of the sender has passed the deadline. `asked` is the number of rounds of questions that
    /// had arrived here before.
    Stuck { asked: u32 },
    /// From the reporter: asks what the receiver waits for. Rounds count from 1.
    Query { round: u32 },
    /// To the reporter.
    Answer { round: u32, answer: Answer },
    /// From the reporter: the text of the report, short enough for a message.
    Report(String),
}

/// What a rank waits for, and what it does.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// Its longest waits, the longest first.
    pub(crate) waits: Vec<Waiting>,
    /// How many more waits there are.
    pub(crate) more_waits: u64,
    /// Whether there may be more waits that its devices do not tell.
    pub(crate) unsaid: bool,
    /// What some of its streams do that have work left but wait for no peer.
    pub(crate) busy: Vec<(String, At)>,
    /// How many more such streams there are.
    pub(crate) more_busy: u64,
    /// The calls in which the program waits for its own streams: those that have lasted longest, the longest first.
    pub(crate) calls: Vec<Calling>,
    /// How many more there are.
    pub(crate) more_calls: u64,
    /// How many exchanges the rank has come to, for each team, and for each team that it makes. Exchanges are matched
    /// in order, so a rank that has come to fewer is missing in the exchange where this one waits.
    pub(crate) come: Vec<(u64, u64)>,
    /// The collective calls that the program is in.
    pub(crate) inside: Vec<Inside>,
    /// Whether the program has returned, though its rank is still in the job.
    pub(crate) returned: bool,
    /// The halves of windows that the program dropped last.
    pub(crate) dropped: Vec<(WindowId, HalfKind)>,
    /// The proved recordings that it has replayed.
    pub(crate) replays: Runs,
}

/// What a stream does: a [`Work`](tidegate_hal::device::Work).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum At {
    /// A kernel, with its name if it is known.
    Kernel(Option<String>),
    Stream,
    Something,
}

/// A call in which a program waits for a stream of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Calling {
    pub(crate) stream: String,
    /// The name of the call, for people.
    pub(crate) call: String,
    /// The place in the program's source.
    pub(crate) site: Option<String>,
    /// For how long the stream has made no progress, as far as is known.
    pub(crate) millis: u64,
}

/// A collective call that a rank is in.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Inside {
    /// What it does, for people.
    pub(crate) what: String,
    pub(crate) millis: u64,
    /// Whether the rank waits in an exchange. Between two exchanges it works.
    pub(crate) waits: bool,
    /// Names the team, or the team that is being made: see [`Answer::come`].
    pub(crate) gathering: u64,
    /// The ranks that come to the call, in ascending order; `None` if these are all ranks.
    pub(crate) members: Option<Vec<usize>>,
}

/// One wait of one stream.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Waiting {
    pub(crate) stream: String,
    /// The window's name and id, if the wait belongs to a window.
    pub(crate) window: String,
    pub(crate) id: Option<WindowId>,
    /// The half of the peer's window that is waited for.
    pub(crate) half: Option<HalfKind>,
    pub(crate) epoch: u64,
    pub(crate) peer: u32,
    pub(crate) awaited: String,
    /// Where the wait was enqueued.
    pub(crate) enqueued: Option<Enqueued>,
    pub(crate) millis: u64,
}

/// The place in a program's source that enqueued a wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Enqueued {
    At(String),
    /// The last of several places: the device does not tell which of them it is.
    LastAt(String),
}

impl Enqueued {
    pub(crate) fn place(&mut self) -> &mut String {
        match self {
            Enqueued::At(place) | Enqueued::LastAt(place) => place,
        }
    }
}

impl Message {
    pub(crate) fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("plain data can be encoded")
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        postcard::from_bytes(bytes).ok()
    }
}
