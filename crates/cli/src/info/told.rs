//! What each rank tells rank 0.

use serde::{Deserialize, Serialize};

/// Where a rank is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) host: String,
    pub(crate) device: String,
    /// The processors that it may use.
    pub(crate) processors: String,
    /// The memory nodes that it may use.
    pub(crate) memory: String,
}

/// How a rank reaches another one, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Way {
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
pub(crate) struct NicTold {
    /// The provider and the engine.
    pub(crate) name: String,
    /// Why the rank has this provider and this engine.
    pub(crate) why: String,
    /// How many programs it can have armed.
    pub(crate) slots: usize,
}

/// What a rank tells.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) place: Place,
    /// The way to each rank, in runs of equal ways.
    pub(crate) ways: Vec<(Way, usize)>,
    /// Whether data for NICs goes through pinned memory. Then both ranks decide about the way.
    pub(crate) staged: bool,
    /// Its `TIDEGATE_ROUTE`.
    pub(crate) route: String,
    pub(crate) nic: Option<NicTold>,
    /// The settings that must be the same on all ranks.
    pub(crate) settings: Vec<(String, String)>,
}

/// Runs of equal elements.
pub(crate) fn runs(ways: impl IntoIterator<Item = Way>) -> Vec<(Way, usize)> {
    let mut runs: Vec<(Way, usize)> = Vec::new();
    for way in ways {
        match runs.last_mut() {
            Some((last, count)) if *last == way => *count += 1,
            _ => runs.push((way, 1)),
        }
    }
    runs
}
