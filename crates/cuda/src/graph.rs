//! Recordings.

use std::sync::{Arc, OnceLock};

use tidegate_ffi::cuda::{Graph, GraphNode, Result, Stream};
use tidegate_hal::device::DeviceError;

use crate::error::Doing;
use crate::gpu::Gpu;
use crate::lower::operands::Advance;
use crate::reclaim::Shared;
use crate::reserve::{Launchable, weight};
use crate::stream::Keep;

/// How many times a recording that is replayed often stands in one graph, one after the other: between two launches of
/// graphs a GPU does nothing for longer than many an epoch takes (some 14 us, with these graphs). Large recordings less
/// often, by their nodes; and what is left of the times goes by a graph that is shorter.
fn lengths(nodes: usize) -> [u64; 2] {
    [(256 / nodes.max(1) as u64).clamp(16, 64), 8]
}

/// What a recording is like.
#[derive(Debug)]
pub(crate) struct Shape {
    /// It was made on several streams.
    pub(crate) branches: bool,
    /// What was recorded on each stream that recorded anything; none if that is not known.
    pub(crate) lines: Option<Vec<Line>>,
}

/// What was recorded on one stream.
#[derive(Debug)]
pub(crate) struct Line {
    /// The first node.
    pub(crate) first: GraphNode,
    /// What the stream's next one would follow.
    pub(crate) last: Vec<GraphNode>,
    /// Whether the first may begin early behind the last.
    pub(crate) early: bool,
}

/// A recording: a CUDA graph, ready to be launched.
pub struct CudaGraph {
    gpu: Arc<Gpu>,
    once: Launchable,
    shape: Shape,
    /// How many times it stands in each of `rows`.
    lengths: [u64; 2],
    /// Each made when it is first of use; none if the driver refuses.
    rows: [OnceLock<Option<Launchable>>; 2],
    /// How far each execution advances operands, where they are counted.
    pub(crate) advance: Advance,
    /// For each stream of the recording, which others its end comes behind, and no batch has looked at: who goes on
    /// after a replay must.
    pub(crate) behind: Vec<Vec<Arc<Shared>>>,
    /// Batches, programs and functions that it uses.
    _keep: Vec<Keep>,
}

impl CudaGraph {
    /// # Safety
    ///
    /// The graph is live and given away, and was recorded so; `stream` is live.
    pub(crate) unsafe fn new(
        gpu: &Arc<Gpu>,
        graph: Graph,
        shape: Shape,
        (keep, advance): (Vec<Keep>, Advance),
        behind: Vec<Vec<Arc<Shared>>>,
        stream: Stream,
    ) -> std::result::Result<Self, DeviceError> {
        // SAFETY: the caller's promise.
        let nodes = unsafe { gpu.driver.graph_node_count(graph) }.doing("counting nodes")?;
        // SAFETY: the caller's promise.
        let once = unsafe {
            gpu.executable(graph, weight(nodes, shape.branches), shape.branches, stream)
        }?;
        Ok(CudaGraph {
            gpu: gpu.clone(),
            once,
            shape,
            lengths: lengths(nodes),
            rows: Default::default(),
            advance,
            behind,
            _keep: keep,
        })
    }

    /// Launches it, `times` times.
    ///
    /// # Safety
    ///
    /// The stream is live; for what is recorded holds, each time, what was promised when it was submitted; the graph
    /// lives until the stream has passed it.
    pub(crate) unsafe fn launch(&self, stream: Stream, times: u64) -> Result<()> {
        let mut left = times;
        for (row, length) in self.rows.iter().zip(self.lengths) {
            if left < length || !self.gpu.has_rows() {
                continue;
            }
            // SAFETY: the caller's promise; the graph is live.
            if let Some(row) = unsafe { self.made(row, length, stream) } {
                for _ in 0..left / length {
                    // SAFETY: the caller's promise.
                    unsafe { self.gpu.driver.graph_launch(row.exec, stream) }?;
                }
                left %= length;
            }
        }
        for _ in 0..left {
            // SAFETY: the caller's promise.
            unsafe { self.gpu.driver.graph_launch(self.once.exec, stream) }?;
        }
        Ok(())
    }

    /// A row of so many, made at most once; none while there is no room for it, or if the driver refuses.
    ///
    /// # Safety
    ///
    /// The stream is live.
    unsafe fn made<'a>(
        &self,
        row: &'a OnceLock<Option<Launchable>>,
        length: u64,
        stream: Stream,
    ) -> Option<&'a Launchable> {
        if row.get().is_none() {
            // SAFETY: the caller's promise.
            match unsafe { self.unrolled(length, stream) } {
                // Next time, perhaps.
                Err(DeviceError::Busy(_)) => return None,
                made => _ = row.set(made.ok()),
            }
        }
        row.get()?.as_ref()
    }

    /// The recording so many times in one graph.
    ///
    /// # Safety
    ///
    /// The stream is live.
    unsafe fn unrolled(
        &self,
        times: u64,
        stream: Stream,
    ) -> std::result::Result<Launchable, DeviceError> {
        // SAFETY: the recording is live, and never changed.
        let graph = unsafe { self.gpu.unrolled(self.once.graph, &self.shape, times) }
            .doing("unrolling a graph")?;
        // SAFETY: the graph was just made; the caller promises for the stream.
        unsafe {
            let weight = times * self.once.weight;
            self.gpu
                .executable(graph, weight, self.shape.branches, stream)
        }
    }
}

impl Gpu {
    /// As [`Gpu::instantiate`], and brought to the device.
    ///
    /// # Safety
    ///
    /// As there; `stream` is live.
    unsafe fn executable(
        &self,
        graph: Graph,
        weight: u64,
        branches: bool,
        stream: Stream,
    ) -> std::result::Result<Launchable, DeviceError> {
        // SAFETY: the caller's promise.
        let made = unsafe { self.instantiate(graph, weight, branches) }?;
        // SAFETY: both are live. What is not uploaded now is when it is launched.
        let _ = unsafe { self.driver.graph_upload(made.exec, stream) };
        Ok(made)
    }
}

impl Drop for CudaGraph {
    fn drop(&mut self) {
        // The streams that it was launched on have passed it.
        let rows = self
            .rows
            .iter()
            .filter_map(|row| row.get().copied().flatten());
        for graph in rows.chain([self.once]) {
            self.gpu.bury(graph);
        }
    }
}
