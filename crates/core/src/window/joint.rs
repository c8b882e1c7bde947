//! What the ranks of a collective agree on.

use serde::{Deserialize, Serialize};
use tidegate_hal::batch::Op;

use crate::element::{LAYOUT_START, mix};

/// What the ranks must say alike to open a collective together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Joint {
    pub(crate) kind: JointKind,
    /// The number of elements, or the hash of the numbers if each rank has another.
    pub(crate) len: Result<usize, u64>,
    /// The operation, if it reduces.
    pub(crate) op: Option<Op>,
    /// The program's choice of algorithms.
    pub(crate) choice: [usize; 8],
}

/// The kinds of collectives that have a window with data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum JointKind {
    Broadcast {
        root: usize,
    },
    Reduce {
        root: usize,
    },
    AllReduce,
    Gather {
        root: usize,
    },
    Scatter {
        root: usize,
    },
    AllGather,
    ReduceScatter,
    AllToAll,
    /// With blocks of rows of so many bytes. Each block has as many as a kernel says, up to the length.
    Counted {
        row: usize,
    },
    Scan {
        exclusive: bool,
    },
}

impl JointKind {
    /// The same, with another number for the root.
    pub(crate) fn with_root(self, number: impl FnOnce(usize) -> usize) -> Self {
        match self {
            JointKind::Broadcast { root } => JointKind::Broadcast { root: number(root) },
            JointKind::Reduce { root } => JointKind::Reduce { root: number(root) },
            JointKind::Gather { root } => JointKind::Gather { root: number(root) },
            JointKind::Scatter { root } => JointKind::Scatter { root: number(root) },
            other => other,
        }
    }

    /// Whether each rank puts and reduces in a round, and does nothing else. (In a scan, ranks pass data on. To the root
    /// of a reduce, long data comes by the word, since those who only put have no use for a landing of that size.)
    pub(crate) fn reduces_everywhere(self) -> bool {
        matches!(self, JointKind::AllReduce | JointKind::ReduceScatter)
    }

    /// Whether ranks read long data from the memory of others, where they can. In a gather, that would only move work to
    /// the root, which has the most.
    pub(crate) fn pulls(self) -> bool {
        match self {
            JointKind::Broadcast { .. }
            | JointKind::Scatter { .. }
            | JointKind::AllGather
            | JointKind::AllToAll => true,
            JointKind::Gather { .. }
            | JointKind::Reduce { .. }
            | JointKind::AllReduce
            | JointKind::ReduceScatter
            | JointKind::Counted { .. }
            | JointKind::Scan { .. } => false,
        }
    }
}

/// The hash of numbers of elements.
pub(crate) fn hash_of(counts: &[usize]) -> u64 {
    let counts = counts.iter().map(|count| *count as u64);
    counts.fold(LAYOUT_START, mix)
}

/// As in "an all-reduce of 4 elements, and a broadcast of 4 elements from rank 1".
impl std::fmt::Display for Joint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (what, more) = match self.kind {
            JointKind::Broadcast { root } => ("a broadcast", format!(" from rank {root}")),
            JointKind::Reduce { root } => ("a reduce", format!(" to rank {root}")),
            JointKind::AllReduce => ("an all-reduce", String::new()),
            JointKind::Gather { root } => ("a gather", format!(" to rank {root}")),
            JointKind::Scatter { root } => ("a scatter", format!(" from rank {root}")),
            JointKind::AllGather => ("an all-gather", String::new()),
            JointKind::ReduceScatter => ("a reduce-scatter", String::new()),
            JointKind::AllToAll => ("an all-to-all", String::new()),
            JointKind::Counted { .. } => ("a counted all-to-all", String::new()),
            JointKind::Scan { exclusive: false } => ("a scan", String::new()),
            JointKind::Scan { exclusive: true } => ("an exclusive scan", String::new()),
        };
        if let (JointKind::Counted { row }, Ok(block)) = (self.kind, self.len) {
            let most = block / row.max(1);
            return write!(f, "{what} of up to {most} rows of {row} bytes");
        }
        match self.len {
            Ok(1) => write!(f, "{what} of 1 element{more}")?,
            Ok(len) => write!(f, "{what} of {len} elements{more}")?,
            Err(hash) => write!(f, "{what} of several lengths (hash {hash:x}){more}")?,
        }
        if let Some(op) = self.op {
            write!(f, " by `Op::{op:?}`")?;
        }
        let [short, at_once, pair, piece, few, scan, along, by_node] = self.choice;
        let [at_once, by_node] = [at_once != 0, by_node != 0];
        write!(
            f,
            " (short: {short}, at once: {at_once}, pair: {pair}, piece: {piece}, few: {few}, scan: {scan}, \
             along: {along}, by node: {by_node})"
        )
    }
}
