//! What ranks say to each other over the control plane.

use serde::{Deserialize, Serialize};
use tidegate_hal::ids::WindowId;

use crate::error::Cause;
use crate::side::Side;

#[derive(Serialize, Deserialize)]
pub(crate) enum Message {
    /// A window is of no more use.
    Revoke { window: WindowId, cause: Cause },
    /// The sender's NIC has nothing more to do with its peers' memory of a window.
    Through { window: WindowId },
    /// The sender's thread is unwinding.
    Panicked,
    /// A stream of the sender has failed, by a kernel of its own or of another rank.
    Failed { cause: Cause },
    /// The sender leaves in good order, and keeps its NIC's endpoint until this is answered, by the same or by
    /// `Prepared`, or for a while.
    Leaves,
    /// The answer: whatever fails towards the receiver from here on is taken for its departure.
    Prepared,
    /// Is the receiver there? Something that the sender's NIC sent it has failed.
    Ask { number: u64 },
    /// The answer to the question of that number.
    There { number: u64 },
    /// About long waits.
    Watch(WatchMessage),
}

#[derive(Serialize, Deserialize)]
pub(crate) enum WatchMessage {
    /// To the reporter: a wait here has passed the deadline, and `asked` rounds of questions had come here till then.
    Stuck { asked: u32 },
    /// From the reporter: tell me what you wait for. Rounds count from 1.
    Query { round: u32 },
    /// To the reporter.
    Answer { round: u32, answer: Answer },
    /// From the reporter: what came out. Short enough for a message.
    Report(String),
}

/// What a rank waits for.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// Those that have lasted longest, longest first.
    pub(crate) waits: Vec<Waiting>,
    /// How many more there are.
    pub(crate) more_waits: u64,
    /// Whether there may be others of which its devices do not say anything.
    pub(crate) unsaid: bool,
    /// What its streams are at that wait for no peer, and have not done all that was enqueued: of some,
    pub(crate) busy: Vec<(String, At)>,
    /// and how many more there are.
    pub(crate) more_busy: u64,
    /// The calls on its own streams that its program is in: those that have lasted longest, longest first.
    pub(crate) calls: Vec<Calling>,
    /// How many more there are.
    pub(crate) more_calls: u64,
    /// How many exchanges it has come to: they are matched in order, so who has come to fewer is lacking where this one is.
    pub(crate) come: u64,
    /// The collective call that its program is in.
    pub(crate) inside: Option<Inside>,
    /// The halves of windows that it has dropped: of the last ones.
    pub(crate) dropped: Vec<(WindowId, Side)>,
}

/// What a stream is at: a [`Work`](tidegate_hal::device::Work).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum At {
    /// With its name, if that is known.
    Kernel(Option<String>),
    Stream,
    Something,
}

/// A call on a stream of its own that a program is in.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Calling {
    pub(crate) stream: String,
    /// Which call, for people.
    pub(crate) call: String,
    /// Where it was made, a place in the program's source.
    pub(crate) site: Option<String>,
    /// Since when the stream has not gone on, as far as is known.
    pub(crate) millis: u64,
}

/// A collective call that a rank is in.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Inside {
    /// What it does, for people.
    pub(crate) what: String,
    pub(crate) millis: u64,
    /// Whether it waits in an exchange; between two it works.
    pub(crate) waits: bool,
}

/// One wait of one stream.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Waiting {
    pub(crate) stream: String,
    /// The window's name, and its id, if the wait belongs to one.
    pub(crate) window: String,
    pub(crate) id: Option<WindowId>,
    /// The peer's half that is waited for.
    pub(crate) side: Option<Side>,
    pub(crate) epoch: u64,
    pub(crate) peer: u32,
    pub(crate) awaited: String,
    /// Where it was enqueued.
    pub(crate) enqueued: Option<Enqueued>,
    pub(crate) millis: u64,
}

/// Where a program has enqueued a wait: a place in its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Enqueued {
    At(String),
    /// The device does not say in which of several places: the last of them.
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
