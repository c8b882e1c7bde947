//! Captures: streams whose work is recorded, and not carried out.

use crate::graph::{PLAIN, PROGRAMMATIC};
use crate::handle::Handle;

/// A recording.
pub(crate) struct Capture {
    pub(crate) graph: Handle,
    /// The stream that it began on.
    pub(crate) origin: Handle,
    /// All streams that take part.
    pub(crate) streams: Vec<Handle>,
    /// Something was done that cannot be recorded.
    pub(crate) invalid: bool,
}

/// A stream that takes part.
#[derive(Clone)]
pub(crate) struct Recording {
    pub(crate) capture: u64,
    /// The nodes that the next node follows.
    pub(crate) last: Vec<Handle>,
    /// Whether that is a single grid.
    pub(crate) grid: bool,
    /// The edges to it, for callers that ask. (The driver shows how the next node would follow.)
    pub(crate) edges: Vec<[u8; 8]>,
}

impl Recording {
    pub(crate) fn new(capture: u64, last: Vec<Handle>) -> Self {
        let mut recording = Recording {
            capture,
            last: Vec::new(),
            grid: false,
            edges: Vec::new(),
        };
        recording.stands_at(last, false);
        recording
    }

    pub(crate) fn stands_at(&mut self, last: Vec<Handle>, grid: bool) {
        self.edges = vec![[0; 8]; last.len()];
        (self.last, self.grid) = (last, grid);
    }
}

/// How an edge is shown.
pub(crate) fn shown(how: (u8, u8, u8)) -> [u8; 8] {
    debug_assert!(how == PLAIN || how == PROGRAMMATIC);
    [how.0, how.1, how.2, 0, 0, 0, 0, 0]
}
