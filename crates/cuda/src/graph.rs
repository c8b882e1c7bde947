//! Recordings.

use std::sync::{Arc, OnceLock};

use tidegate_ffi::cuda::{Graph, GraphExec, GraphFlags, Result, Stream};
use tidegate_hal::device::DeviceError;

use crate::error::Doing;
use crate::gpu::Gpu;
use crate::lower::operands::Advance;
use crate::stream::Keep;

/// How many times a recording that is replayed often stands in one graph, one after the other: launching a graph costs more than what lies between two
/// kernels of one.
const OFTEN: u64 = 16;

/// A recording: a CUDA graph, ready to be launched.
pub struct CudaGraph {
    gpu: Arc<Gpu>,
    once: Launchable,
    /// [`OFTEN`] times, made when it is first of use.
    often: OnceLock<Option<Launchable>>,
    /// How far each execution advances operands, where they are counted.
    pub(crate) advance: Advance,
    /// Batches, programs and functions that it uses.
    _keep: Vec<Keep>,
}

#[derive(Clone, Copy)]
struct Launchable {
    graph: Graph,
    exec: GraphExec,
}

impl CudaGraph {
    /// # Safety
    ///
    /// The graph is live and given away; `stream` is live.
    pub(crate) unsafe fn new(
        gpu: &Arc<Gpu>,
        graph: Graph,
        (keep, advance): (Vec<Keep>, Advance),
        stream: Stream,
    ) -> std::result::Result<Self, DeviceError> {
        // SAFETY: the caller's promise.
        let once = unsafe { Launchable::new(gpu, graph, stream) }.doing("instantiating a graph")?;
        Ok(CudaGraph {
            gpu: gpu.clone(),
            once,
            often: OnceLock::new(),
            advance,
            _keep: keep,
        })
    }

    /// Launches it, `times` times.
    ///
    /// # Safety
    ///
    /// The stream is live; for what is recorded holds, each time, what was promised when it was submitted; the graph lives until the stream has passed it.
    pub(crate) unsafe fn launch(&self, stream: Stream, times: u64) -> Result<()> {
        let often = if times >= OFTEN {
            // SAFETY: the caller's promise; the graph is live.
            *self
                .often
                .get_or_init(|| unsafe { self.unrolled(stream) }.ok())
        } else {
            None
        };
        let (many, rest) = match often {
            Some(_) => (times / OFTEN, times % OFTEN),
            None => (0, times),
        };
        for _ in 0..many {
            let often = often.expect("it is there if there are many");
            // SAFETY: the caller's promise.
            unsafe { self.gpu.driver.graph_launch(often.exec, stream) }?;
        }
        for _ in 0..rest {
            // SAFETY: the caller's promise.
            unsafe { self.gpu.driver.graph_launch(self.once.exec, stream) }?;
        }
        Ok(())
    }

    /// The recording [`OFTEN`] times in one graph.
    ///
    /// # Safety
    ///
    /// The stream is live.
    unsafe fn unrolled(&self, stream: Stream) -> Result<Launchable> {
        let driver = self.gpu.driver;
        let graph = driver.graph_create()?;
        let mut last = None;
        for _ in 0..OFTEN {
            // SAFETY: both graphs are live; the child is copied.
            match unsafe { driver.graph_add_child(graph, last.as_slice(), self.once.graph) } {
                Ok(node) => last = Some(node),
                Err(error) => {
                    // SAFETY: it was just made.
                    let _ = unsafe { driver.graph_destroy(graph) };
                    return Err(error);
                }
            }
        }
        // SAFETY: the graph was just made; the caller promises for the stream.
        unsafe { Launchable::new(&self.gpu, graph, stream) }
    }
}

impl Launchable {
    /// # Safety
    ///
    /// The graph is live and given away; `stream` is live.
    unsafe fn new(gpu: &Gpu, graph: Graph, stream: Stream) -> Result<Self> {
        // SAFETY: the caller's promise.
        let exec =
            unsafe { gpu.driver.graph_instantiate(graph, GraphFlags::NONE) }.inspect_err(|_| {
                // SAFETY: nobody else has it.
                let _ = unsafe { gpu.driver.graph_destroy(graph) };
            })?;
        // SAFETY: both are live. What is not uploaded now is when it is launched.
        let _ = unsafe { gpu.driver.graph_upload(exec, stream) };
        Ok(Launchable { graph, exec })
    }
}

impl Drop for CudaGraph {
    fn drop(&mut self) {
        if self.gpu.enter().is_ok() {
            let often = self.often.get().copied().flatten();
            for Launchable { graph, exec } in [self.once].into_iter().chain(often) {
                // SAFETY: both are this value's; the streams that it was launched on have passed it.
                let _ = unsafe { self.gpu.driver.graph_exec_destroy(exec) };
                // SAFETY: as above.
                let _ = unsafe { self.gpu.driver.graph_destroy(graph) };
            }
        }
    }
}
