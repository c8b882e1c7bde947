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

use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard};

use crate::driver::{self, Doing, Graph, GraphExec, Launch};
use crate::gpu::Gpu;
use crate::lower::{LaunchParameter, THREADS};

use tidegate_hal::device::{DeviceError, Priority};
use tidegate_hal::lock;

/// How many nodes a second branch counts as. The driver keeps something for the launch of each branch. (It needs more
/// than this number says; but when graphs are made in advance, they are counted with the same number.)
const BRANCH: u64 = 64;

/// How many graphs of two branches are made when a device is opened.
const MADE: usize = 128;
/// The nodes of each of these graphs.
const NODES: usize = 4;

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
struct State {
    /// The weight that fits without waiting.
    capacity: u64,
    used: u64,
    /// Graphs that nobody uses any more.
    over: Vec<Launchable>,
}

/// The weight of a graph with `nodes` nodes.
pub(crate) fn weight(nodes: usize, branches: bool) -> u64 {
    nodes as u64 + if branches { BRANCH } else { 0 }
}

impl Reserve {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }

    /// Takes `weight` from the reserve, which grows if `may_grow` and there is too little. Returns whether there was
    /// enough.
    fn take(&self, weight: u64, may_grow: bool) -> bool {
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

    fn give_back(&self, weight: u64) {
        self.lock().used -= weight;
    }
}

impl Gpu {
    /// Grows the driver's pool. As far as this library knows, nothing waits on the device yet.
    pub(crate) fn reserve_recordings(&self) -> Result<(), DeviceError> {
        let what = "reserving for recordings";
        let graph = self.two_branches().doing(what)?;
        let mut made = Vec::new();
        for _ in 0..MADE {
            // SAFETY: the graph was just made.
            match unsafe { self.driver.graph_instantiate(graph, false) } {
                Ok(exec) => made.push(exec),
                // The reserve stays as large as it is now.
                Err(_) => break,
            }
        }
        self.reserve.lock().capacity = made.len() as u64 * weight(NODES, true);
        for exec in made {
            // SAFETY: it was just made.
            unsafe { self.driver.graph_exec_destroy(exec) }.doing(what)?;
        }
        // SAFETY: nobody else has it.
        unsafe { self.driver.graph_destroy(graph) }.doing(what)
    }

    /// A graph of [`NODES`] nodes in two branches, which is never launched.
    fn two_branches(&self) -> driver::Result<Graph> {
        let driver = self.driver;
        let streams = [
            driver.stream_create(Priority::Normal)?,
            driver.stream_create(Priority::Normal)?,
        ];
        let event = driver.event_create(false)?;
        let mut parameter = LaunchParameter::NONE;
        let mut arguments = [std::ptr::from_mut(&mut parameter).cast::<c_void>()];
        let one = Launch {
            blocks: [1, 1, 1],
            threads: [THREADS as u32, 1, 1],
            shared: 0,
            early: false,
        };
        // SAFETY: the streams and the event were just made, and are destroyed at the end; the kernel takes this
        // parameter; nothing of this is executed.
        unsafe {
            driver.capture_begin(streams[0])?;
            driver.event_record(event, streams[0])?;
            driver.stream_wait_event(streams[1], event)?;
            for stream in streams.into_iter().cycle().take(NODES) {
                driver.launch(self.batch, &one, stream, &mut arguments)?;
            }
            driver.event_record(event, streams[1])?;
            driver.stream_wait_event(streams[0], event)?;
            let graph = driver.capture_end(streams[0])?;
            driver.event_destroy(event)?;
            for stream in streams {
                driver.stream_destroy(stream)?;
            }
            Ok(graph)
        }
    }

    /// Makes a graph executable. The graph is destroyed if that fails. If the graph has branches, each keeps the
    /// priority of the stream on which it was recorded.
    ///
    /// # Safety
    ///
    /// The graph is live, has this weight, and is given away.
    pub(crate) unsafe fn instantiate(
        &self,
        graph: Graph,
        weight: u64,
        branches: bool,
    ) -> Result<Launchable, DeviceError> {
        // The lock is not held while streams are asked: this drops what they have passed, which may be a recording.
        let fits = self.reserve.take(weight, false) || {
            let quiet = self.quiet();
            self.sweep_recordings();
            self.reserve.take(weight, quiet)
        };
        let made = if fits {
            // SAFETY: the caller's promise.
            unsafe { self.driver.graph_instantiate(graph, branches) }
                .doing("instantiating a graph")
                .inspect_err(|_| self.reserve.give_back(weight))
        } else {
            Err(DeviceError::Busy("recording more than was reserved"))
        };
        made.map(|exec| Launchable {
            graph,
            exec,
            weight,
        })
        .inspect_err(|_| {
            // SAFETY: nobody else has it.
            let _ = unsafe { self.driver.graph_destroy(graph) };
        })
    }

    /// Takes a graph that no stream uses any more. It is destroyed when nothing waits.
    pub(crate) fn bury(&self, graph: Launchable) {
        self.reserve.lock().over.push(graph);
    }

    /// Destroys graphs that nobody uses, if nothing waits.
    pub(crate) fn sweep_recordings(&self) {
        if self.reserve.lock().over.is_empty() || !self.is_idle() || self.enter().is_err() {
            return;
        }
        let over = std::mem::take(&mut self.reserve.lock().over);
        for Launchable {
            graph,
            exec,
            weight,
        } in over
        {
            // SAFETY: the caller of `bury` has made sure that no stream uses it any more. If a call fails, it leaks.
            let _ = unsafe { self.driver.graph_exec_destroy(exec) };
            // SAFETY: as above.
            let _ = unsafe { self.driver.graph_destroy(graph) };
            self.reserve.give_back(weight);
        }
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
