//! The driver's memory for recordings, reserved before any stream waits.
//!
//! # Model
//!
//! The driver keeps its memory for executable graphs in a pool. When the pool must grow, making a graph executable
//! waits until the whole device is idle, and holds a lock that every other call needs. When the pool shrinks,
//! destroying a graph does the same. (Measured: with two branches of a few nodes each, the pool grows at the 15th
//! graph, and then at every 22nd; with one branch of 200 nodes, at the 20th.) Behind a wait for a peer, this can take
//! for ever. So
//!
//! - the pool is grown when a device is opened, by graphs that are thrown away;
//! - the weight of all live graphs is counted;
//! - a recording that does not fit is refused while a stream may be waiting;
//! - a graph that nobody uses any more is destroyed when no stream waits.
//!
//! # Failure
//!
//! [`DeviceError::Busy`] for a recording beyond the reserve, while a stream has work that did not record it. If the
//! device has only one stream, that stream is waited for first, because its earlier work does not depend on its later
//! work. (A host that has to do something for a peer meanwhile does it later. This wait ends when the stream is ended;
//! the driver's own wait would not.)
//!
//! Where ranks are threads, there is a gap: another thread may enqueue a wait between the check that nothing waits and
//! the driver's call, which then waits for it. Loading code has the same gap.

use std::sync::{Mutex, MutexGuard};

use crate::driver::{Graph, GraphExec};

use tidegate_hal::lock;

/// How many nodes a second branch counts as. The driver keeps something for the launch of each branch. (It needs more
/// than this number says; but when graphs are made in advance, they are counted with the same number.)
const BRANCH: u64 = 64;

/// How many graphs of two branches are made when a device is opened.
pub(crate) const MADE: usize = 128;
/// The nodes of each of these graphs.
pub(crate) const NODES: usize = 4;

/// An executable graph, and the graph that it was made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Launchable {
    pub(crate) graph: Graph,
    pub(crate) exec: GraphExec,
    pub(crate) weight: u64,
}

/// The reserve of a device, and how much is used.
#[derive(Debug, Default)]
pub(crate) struct Reserve(Mutex<State>);

#[derive(Debug, Default)]
pub(crate) struct State {
    /// The weight that fits without waiting.
    pub(crate) capacity: u64,
    used: u64,
    /// Graphs that nobody uses any more.
    pub(crate) over: Vec<Launchable>,
}

/// The weight of a graph with `nodes` nodes.
pub(crate) fn weight(nodes: usize, branches: bool) -> u64 {
    nodes as u64 + if branches { BRANCH } else { 0 }
}

impl Reserve {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }

    /// Takes `weight` from the reserve, which grows if `may_grow` and there is too little. Returns whether there was
    /// enough.
    pub(crate) fn take(&self, weight: u64, may_grow: bool) -> bool {
        let mut state = self.lock();
        let used = state.used + weight;
        if used > state.capacity && !may_grow {
            return false;
        }
        state.used = used;
        state.capacity = state.capacity.max(used);
        true
    }

    /// Whether there is room for a row of a recording. Half of the reserve is kept for recordings: without room a
    /// recording is refused, while a missing row only costs time.
    pub(crate) fn has_for_rows(&self, weight: u64) -> bool {
        let state = self.lock();
        state.used + weight <= state.capacity / 2
    }

    pub(crate) fn give_back(&self, weight: u64) {
        self.lock().used -= weight;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_alive_is_weighed() {
        let reserve = Reserve::default();
        reserve.lock().capacity = 10 * weight(NODES, true);
        assert!(reserve.has_for_rows(340) && !reserve.has_for_rows(341));
        assert!(reserve.take(weight(600, false), false));
        assert!(!reserve.take(weight(17, true), false), "680 are reserved");
        assert!(reserve.take(weight(80, false), false));
        assert!(!reserve.take(1, false));
        reserve.give_back(1);
        assert!(!reserve.has_for_rows(1));
        assert!(reserve.take(1, false));
        // The reserve stays as large as it once was.
        assert!(reserve.take(320, true));
        reserve.give_back(1000);
        assert!(reserve.take(1000, false) && !reserve.take(1, false));
    }
}
