//! Making recordings executable within what is reserved for them, and destroying them ([`crate::reserve`] has the rules).

use std::ffi::c_void;

use tidegate_hal::device::{DeviceError, Priority};

use crate::driver::{self, Doing, Graph, Launch};
use crate::gpu::Gpu;
use crate::lower::{LaunchParameter, THREADS};
use crate::reserve::{Launchable, MADE, NODES, weight};

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
            together: false,
        };
        // SAFETY: the streams and the event were just made, and are destroyed at the end; the kernel takes this
        // parameter; nothing of this is executed.
        unsafe {
            driver.capture_begin(streams[0])?;
            driver.event_record(event, streams[0])?;
            driver.stream_wait_event(streams[1], event)?;
            for stream in streams.into_iter().cycle().take(NODES) {
                driver.launch(self.kernels.batch, &one, stream, &mut arguments)?;
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
