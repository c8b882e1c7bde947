//! What each rank tells rank 0.

use serde::{Deserialize, Serialize};

/// Where a rank is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    pub(super) host: String,
    pub(super) device: String,
    /// The processors that it may use.
    pub(super) processors: String,
    /// The memory nodes that it may use.
    pub(super) memory: String,
}

/// How a rank reaches another one, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Way {
    /// It maps the memory of a rank of its node.
    Mapped,
    /// By NIC: the other is on another node.
    OtherNode,
    /// By NIC: its `TIDEGATE_ROUTE` asks for that.
    Asked,
    /// By NIC: the other's `TIDEGATE_ROUTE` asks for that.
    AskedByPeer,
    /// By NIC: the other is on its node, but its memory cannot be mapped.
    Unmappable,
    /// Not at all: the other is on another node, and `TIDEGATE_ROUTE` allows no NIC.
    Refused,
}

/// The NIC of a rank.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct NicTold {
    /// The provider and the engine.
    pub(super) name: String,
    /// Why the rank has this provider and this engine.
    pub(super) why: String,
    /// How many programs it can have armed.
    pub(super) slots: usize,
}

/// What a rank tells.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Told {
    pub(super) place: Place,
    /// The way to each rank, in runs of equal ways.
    pub(super) ways: Vec<(Way, usize)>,
    /// Whether data for NICs goes through pinned memory. Then both ranks decide about the way.
    pub(super) staged: bool,
    /// Its `TIDEGATE_ROUTE`.
    pub(super) route: String,
    pub(super) nic: Option<NicTold>,
    /// The settings that must be the same on all ranks.
    pub(super) settings: Vec<(String, String)>,
}

/// Runs of equal elements.
pub(super) fn runs(ways: impl IntoIterator<Item = Way>) -> Vec<(Way, usize)> {
    let mut runs: Vec<(Way, usize)> = Vec::new();
    for way in ways {
        match runs.last_mut() {
            Some((last, count)) if *last == way => *count += 1,
            _ => runs.push((way, 1)),
        }
    }
    runs
}
