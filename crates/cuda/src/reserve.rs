//! What recordings need of the driver, reserved before anybody waits.
//!
//! # Model
//!
//! The driver keeps what it needs for executable graphs in a pool. When the pool must grow, making a graph executable
//! waits until the whole device is idle, holding a lock that every other call needs; when it shrinks, destroying one
//! does (measured: with two branches of a few nodes each it grows at the 15th graph, and at every 22nd from there on;
//! with one branch of 200 nodes at the 20th). Behind a wait for a peer that can be for ever. So the pool is grown when
//! a device is opened, by graphs that are thrown away; what is alive is weighed; a recording that would not fit is
//! refused while a stream may be waiting; and what nobody uses any more is destroyed when no stream is.
//!
//! # Failure
//!
//! [`DeviceError::Busy`] for a recording beyond the reserve while another stream than the one that recorded it has
//! work. The only stream of a device is waited for first: what it has been given does not depend on what it will be given.
//! (A host that has something to do for a peer meanwhile does it later; and that wait ends when the stream is ended, as
//! the driver's own would not.) Where ranks are threads, another thread may
//! enqueue a wait between the question whether anything waits and the call that then waits for it; loading code has the
//! same gap.

use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard};

use crate::error::Doing;
use crate::gpu::Gpu;
use crate::lower::{LaunchParameter, THREADS};
use tidegate_ffi::cuda::{EventFlags, Graph, GraphExec, GraphFlags, LaunchConfig};
use tidegate_hal::device::DeviceError;
use tidegate_hal::lock;

/// What a graph with two branches is taken to need more than its nodes, in nodes: the driver keeps a way to launch each
/// branch. (It needs more than that; but as many are made as are counted.)
const BRANCH: u64 = 64;

/// How many graphs of two branches are made when a device is opened.
const MADE: usize = 128;
/// Nodes of each of these.
const NODES: usize = 4;

/// An executable graph, and what it was made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Launchable {
    pub(crate) graph: Graph,
    pub(crate) exec: GraphExec,
    pub(crate) weight: u64,
}

/// What is reserved of a device, and what of it is used.
#[derive(Debug, Default)]
pub(crate) struct Reserve(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// What fits without waiting.
    capacity: u64,
    used: u64,
    /// What nobody uses any more.
    over: Vec<Launchable>,
}

/// What a graph of so many nodes weighs.
pub(crate) fn weight(nodes: usize, branches: bool) -> u64 {
    nodes as u64 + if branches { BRANCH } else { 0 }
}

impl Reserve {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }

    /// Takes `weight` of what is reserved, or of more if it `may_grow`; whether there was enough.
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

    /// Whether there is room for a row of a recording: half of what is reserved is for recordings, which are refused
    /// where there is no room, while a row is only missed.
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
            match unsafe { self.driver.graph_instantiate(graph, GraphFlags::NONE) } {
                Ok(exec) => made.push(exec),
                // What there is must do.
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

    /// A graph of [`NODES`] nodes in two branches, not to be launched.
    fn two_branches(&self) -> tidegate_ffi::cuda::Result<Graph> {
        let driver = self.driver;
        let streams = [driver.stream_create(0)?, driver.stream_create(0)?];
        let event = driver.event_create(EventFlags::DISABLE_TIMING)?;
        let mut parameter = LaunchParameter::NONE;
        let mut arguments = [std::ptr::from_mut(&mut parameter).cast::<c_void>()];
        let config = LaunchConfig::new([1, 1, 1], [THREADS as u32, 1, 1]);
        // SAFETY: the streams and the event were just made, and are destroyed at the end; the kernel takes this
        // parameter; nothing of this is executed.
        unsafe {
            driver.stream_begin_capture(streams[0])?;
            driver.event_record(event, streams[0])?;
            driver.stream_wait_event(streams[1], event)?;
            for stream in streams.into_iter().cycle().take(NODES) {
                driver.launch_kernel_ex(self.batch, &config, stream, &mut arguments)?;
            }
            driver.event_record(event, streams[1])?;
            driver.stream_wait_event(streams[0], event)?;
            let graph = driver.stream_end_capture(streams[0])?;
            driver.event_destroy(event)?;
            for stream in streams {
                driver.stream_destroy(stream)?;
            }
            Ok(graph)
        }
    }

    /// Makes a graph executable; the graph is destroyed if that fails. If it has branches, each keeps the priority of
    /// the stream that it was recorded on.
    ///
    /// # Safety
    ///
    /// The graph is live, of this weight, and given away.
    pub(crate) unsafe fn instantiate(
        &self,
        graph: Graph,
        weight: u64,
        branches: bool,
    ) -> Result<Launchable, DeviceError> {
        // The lock is not held while streams are asked: what they have passed is dropped then, and may be a recording.
        let fits = self.reserve.take(weight, false) || {
            let quiet = self.quiet();
            self.sweep_recordings();
            self.reserve.take(weight, quiet)
        };
        let flags = if branches {
            GraphFlags::USE_NODE_PRIORITY
        } else {
            GraphFlags::NONE
        };
        let made = if fits {
            // SAFETY: the caller's promise.
            unsafe { self.driver.graph_instantiate(graph, flags) }
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

    /// Takes back what no stream uses any more: to be destroyed when nothing waits.
    pub(crate) fn bury(&self, graph: Launchable) {
        self.reserve.lock().over.push(graph);
    }

    /// Destroys what nobody uses, if nothing waits.
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
            // SAFETY: whoever buried it has seen to it that no stream uses it any more. What fails leaks.
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
        // It stays as large as it has been once.
        assert!(reserve.take(320, true));
        reserve.give_back(1000);
        assert!(reserve.take(1000, false) && !reserve.take(1, false));
    }
}
