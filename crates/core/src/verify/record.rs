//! What one rank tells the others of a recording.

use serde::{Deserialize, Serialize};
use tidegate_hal::ids::WindowId;

use crate::observe::{EpochCall, Operation};

/// The recorded steps of one rank, and how far its epochs had come before the first replay.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The stream belongs to another world than the team that verifies, and nothing else is told.
    pub(crate) elsewhere: bool,
    /// The names of the streams.
    pub(crate) streams: Vec<String>,
    /// The names of the windows.
    pub(crate) windows: Vec<(WindowId, String)>,
    /// The lines of the program that made the calls.
    pub(crate) sites: Vec<String>,
    /// What batches do: the waits and adds of each lane. Epochs that repeat each other share a batch.
    pub(crate) batches: Vec<Vec<Vec<Op>>>,
    /// The work of all streams, in the order of the calls.
    pub(crate) items: Vec<Item>,
    /// The epochs of each half before the first replay.
    pub(crate) before: Vec<Before>,
    /// The windows of halves that were lent to kernels.
    pub(crate) lent: Vec<u32>,
    /// The slots that an epoch of the recording does not put.
    pub(crate) unput: Vec<NotPut>,
}

/// One piece of work of a stream.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Item {
    /// The index of its stream.
    pub(crate) stream: u32,
    pub(crate) work: Work,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Work {
    /// A batch: its lanes begin together, and it is over when all of them are.
    Batch {
        call: EpochCall,
        /// The index of the line that made the call.
        site: u32,
        /// The index of what it does.
        batch: u32,
    },
    /// Another stream may go on from here: the hand-off with this number.
    Signal(u64),
    /// Waits for that hand-off.
    Await(u64),
}

/// A step of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Op {
    pub(crate) act: Act,
    /// The index of the window.
    pub(crate) window: u32,
    /// The rank that waits for an add, or that makes the awaited add.
    pub(crate) peer: u32,
    /// What the waiting rank awaits.
    pub(crate) awaited: Operation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Act {
    Add,
    Wait,
}

/// The epochs of one half, or of a barrier, with one peer before the first replay.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Before {
    /// The index of the window.
    pub(crate) window: u32,
    pub(crate) peer: u32,
    /// The signals that this rank has given the peer, the exposures at first included.
    pub(crate) given: Operation,
    pub(crate) count: u64,
    /// For an inbox or a barrier: how often this rank waited for the peer.
    pub(crate) waited: Option<u64>,
}

/// Slots that an epoch leaves as they were.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NotPut {
    pub(crate) window: u32,
    pub(crate) slots: Vec<String>,
    pub(crate) site: u32,
}
