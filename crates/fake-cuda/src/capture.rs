//! Captures: streams whose work is recorded, and not done.

use crate::graph::{PLAIN, PROGRAMMATIC};
use crate::handle::Handle;

/// What is recorded.
pub(crate) struct Capture {
    pub(crate) graph: Handle,
    /// The stream that it began on.
    pub(crate) origin: Handle,
    /// That and others.
    pub(crate) streams: Vec<Handle>,
    /// Something was done that cannot be recorded.
    pub(crate) invalid: bool,
}

/// A stream that takes part.
#[derive(Clone)]
pub(crate) struct Recording {
    pub(crate) capture: u64,
    /// What the next node follows.
    pub(crate) last: Vec<Handle>,
    /// That is one grid.
    pub(crate) grid: bool,
    /// The edges to it, for who asks. (The driver shows how the next one would follow.)
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
