//! Recordings.

use std::sync::Arc;

use tidegate_ffi::cuda::{Graph, GraphExec, GraphFlags, Result, Stream};
use tidegate_hal::device::DeviceError;

use crate::error::Doing;
use crate::gpu::Gpu;
use crate::stream::Keep;

/// A recording: a CUDA graph, ready to be launched.
pub struct CudaGraph {
    gpu: Arc<Gpu>,
    graph: Graph,
    exec: GraphExec,
    /// Batches, programs and functions that it uses.
    _keep: Vec<Keep>,
}

impl CudaGraph {
    /// # Safety
    ///
    /// The graph is live and given away; `stream` is live.
    pub(crate) unsafe fn new(
        gpu: &Arc<Gpu>,
        graph: Graph,
        keep: Vec<Keep>,
        stream: Stream,
    ) -> std::result::Result<Self, DeviceError> {
        let what = "instantiating a graph";
        // SAFETY: the caller's promise.
        let exec = unsafe { gpu.driver.graph_instantiate(graph, GraphFlags::NONE) }
            .doing(what)
            .inspect_err(|_| {
                // SAFETY: nobody else has it.
                let _ = unsafe { gpu.driver.graph_destroy(graph) };
            })?;
        let graph = CudaGraph {
            gpu: gpu.clone(),
            graph,
            exec,
            _keep: keep,
        };
        // SAFETY: both are live.
        unsafe { gpu.driver.graph_upload(exec, stream) }.doing(what)?;
        Ok(graph)
    }

    /// Launches it, `times` times.
    ///
    /// # Safety
    ///
    /// The stream is live; for what is recorded holds, each time, what was promised when it was submitted; the graph lives until the stream has passed it.
    pub(crate) unsafe fn launch(&self, stream: Stream, times: u64) -> Result<()> {
        for _ in 0..times {
            // SAFETY: the caller's promise.
            unsafe { self.gpu.driver.graph_launch(self.exec, stream) }?;
        }
        Ok(())
    }
}

impl Drop for CudaGraph {
    fn drop(&mut self) {
        if self.gpu.enter().is_ok() {
            // SAFETY: both are this value's; the streams that it was launched on have passed it.
            let _ = unsafe { self.gpu.driver.graph_exec_destroy(self.exec) };
            // SAFETY: as above.
            let _ = unsafe { self.gpu.driver.graph_destroy(self.graph) };
        }
    }
}
