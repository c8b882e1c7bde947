//! Recordings.

use std::sync::{Arc, OnceLock};

use tidegate_hal::device::DeviceError;

use crate::driver::{Doing, Graph, Keep, Result, Stream};
use crate::gpu::Gpu;
use crate::line::Line;
use crate::lower::operands::Advance;
use crate::reclaim::StreamState;
use crate::reserve::{Launchable, weight};

/// How many replays each of two graphs contains, for a recording of this weight that is replayed often. Between two
/// launches of graphs a GPU is idle for longer than many an epoch takes, so several replays are put in one graph. A
/// large recording gets fewer. The shorter graph is for the remaining replays.
fn lengths(weight: u64) -> [u64; 2] {
    [(256 / weight.max(1)).clamp(16, 64), 8]
}

/// Divides `times` replays: how often each row is launched, and how often the recording itself. `has` makes a row, or
/// returns `None`.
fn split<T>(
    times: u64,
    lengths: [u64; 2],
    mut has: impl FnMut(usize) -> Option<T>,
) -> ([Option<(T, u64)>; 2], u64) {
    let mut left = times;
    let rows = [0, 1].map(|row| {
        let count = left / lengths[row];
        let made = (count > 0).then(|| has(row)).flatten()?;
        left %= lengths[row];
        Some((made, count))
    });
    (rows, left)
}

/// Launches each row as often as [`split`] says, then the recording itself, until a launch is refused. Returns how many
/// replays were launched, and the error.
fn launch_all<T: Copy, E>(
    rows: [Option<(T, u64)>; 2],
    lengths: [u64; 2],
    (each, once): (T, u64),
    mut launch: impl FnMut(T) -> Result<(), E>,
) -> (u64, Result<(), E>) {
    let rows = rows.into_iter().zip(lengths);
    let rows = rows.filter_map(|(row, length)| row.map(|(row, count)| (row, length, count)));
    let mut taken = 0;
    for (what, length, count) in rows.chain([(each, 1, once)]) {
        for _ in 0..count {
            if let Err(error) = launch(what) {
                return (taken, Err(error));
            }
            taken += length;
        }
    }
    (taken, Ok(()))
}

/// The structure of a recording.
#[derive(Debug)]
pub(crate) struct Shape {
    /// It was made on several streams.
    pub(crate) branches: bool,
    /// What was recorded on each stream; `None` if that is not known.
    pub(crate) lines: Option<Vec<Line>>,
}

/// A recording as a graph of the driver, ready to be launched.
pub struct GpuGraph {
    gpu: Arc<Gpu>,
    once: Launchable,
    shape: Shape,
    /// How many replays each of `rows` contains.
    lengths: [u64; 2],
    /// Graphs of several replays. Each is made when it is first of use; `None` if the driver refuses.
    rows: [OnceLock<Option<Launchable>>; 2],
    /// The number of the dealing of blocks in which the recording began.
    pub(crate) dealing: usize,
    /// How far each replay advances operands, if they are counted.
    pub(crate) advance: Advance,
    /// For each stream of the recording: the other streams that its end follows, and that no batch has looked at. Work
    /// after a replay must look at them.
    pub(crate) behind: Vec<Vec<Arc<StreamState>>>,
    /// Batches, programs and functions that the graph uses.
    _keep: Vec<Keep>,
}

/// Facts about a recording.
pub(crate) struct Recorded {
    pub(crate) shape: Shape,
    pub(crate) advance: Advance,
    pub(crate) dealing: usize,
    pub(crate) behind: Vec<Vec<Arc<StreamState>>>,
    pub(crate) keep: Vec<Keep>,
}

impl GpuGraph {
    /// # Safety
    ///
    /// The graph is live, is given away, and was recorded with this shape; `stream` is live.
    pub(crate) unsafe fn new(
        gpu: &Arc<Gpu>,
        graph: Graph,
        recorded: Recorded,
        stream: Stream,
    ) -> std::result::Result<Self, DeviceError> {
        let Recorded {
            shape,
            advance,
            dealing,
            behind,
            keep,
        } = recorded;
        // SAFETY: the caller's promise.
        let nodes = unsafe { gpu.driver.graph_node_count(graph) }
            .inspect_err(|_| {
                // SAFETY: nobody else has it.
                let _ = unsafe { gpu.driver.graph_destroy(graph) };
            })
            .doing("counting nodes")?;
        let weight = weight(nodes, shape.branches);
        // SAFETY: the caller's promise.
        let once = unsafe { gpu.executable(graph, weight, shape.branches, stream) }?;
        Ok(GpuGraph {
            gpu: gpu.clone(),
            once,
            shape,
            lengths: lengths(weight),
            rows: Default::default(),
            dealing,
            advance,
            behind,
            _keep: keep,
        })
    }

    /// Launches `times` replays, or as many of them as the driver takes. Returns how many, and the error.
    ///
    /// # Safety
    ///
    /// The stream is live. Each replay keeps the promises that were made when the recorded work was submitted. The
    /// graph lives until the stream has passed it.
    pub(crate) unsafe fn launch(&self, stream: Stream, times: u64) -> (u64, Result<()>) {
        let (rows, once) = split(times, self.lengths, |row| {
            // SAFETY: the caller's promise; the graph is live.
            unsafe { self.row(row, stream) }
        });
        launch_all(rows, self.lengths, (&self.once, once), |graph| {
            // SAFETY: the caller's promise.
            unsafe { self.gpu.driver.graph_launch(graph.exec, stream) }
        })
    }

    /// A row. It is made at most once; `None` while there is no room for it, or if the driver refuses.
    ///
    /// # Safety
    ///
    /// The stream is live.
    unsafe fn row(&self, number: usize, stream: Stream) -> Option<&Launchable> {
        let (row, times) = (&self.rows[number], self.lengths[number]);
        if row.get().is_none() {
            // This is checked before anything is made, because every replay may ask again.
            if !self.gpu.reserve.has_for_rows(times * self.once.weight) {
                return None;
            }
            // SAFETY: the caller's promise.
            match unsafe { self.unrolled(times, stream) } {
                // There may be room next time.
                Err(DeviceError::Busy(_)) => return None,
                made => _ = row.set(made.ok()),
            }
        }
        row.get()?.as_ref()
    }

    /// A graph of `times` replays of the recording.
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
    /// Like [`Gpu::instantiate`], and also uploads the graph to the device.
    ///
    /// # Safety
    ///
    /// As for [`Gpu::instantiate`]; `stream` is live.
    unsafe fn executable(
        &self,
        graph: Graph,
        weight: u64,
        branches: bool,
        stream: Stream,
    ) -> std::result::Result<Launchable, DeviceError> {
        // SAFETY: the caller's promise.
        let made = unsafe { self.instantiate(graph, weight, branches) }?;
        // SAFETY: both are live. If the upload fails, the launch uploads the graph.
        let _ = unsafe { self.driver.graph_upload(made.exec, stream) };
        Ok(made)
    }
}

impl Drop for GpuGraph {
    fn drop(&mut self) {
        if !self.gpu.process.is_this() {
            return;
        }
        // The streams on which the graphs were launched have passed them.
        let rows = self
            .rows
            .iter()
            .filter_map(|row| row.get().copied().flatten());
        for graph in rows.chain([self.once]) {
            self.gpu.bury(graph);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_times_are_launched_by_whichever_rows_there_are() {
        assert_eq!(lengths(1), [64, 8]);
        assert_eq!(lengths(8), [32, 8]);
        assert_eq!([lengths(0), lengths(68)], [[64, 8], [16, 8]]);
        for lengths in [[64, 8], [16, 8]] {
            for has in [[true, true], [true, false], [false, true], [false, false]] {
                for times in 0..300 {
                    let (rows, once) = split(times, lengths, |row| has[row].then_some(row));
                    let launched = rows.iter().flatten();
                    let launched: u64 = launched.map(|(row, count)| lengths[*row] * count).sum();
                    assert_eq!(launched + once, times, "{lengths:?} {has:?}");
                    // The shorter row is made only if it is needed.
                    assert!(once < 8 || !has[1], "{once}");
                    assert!(rows[0].is_some() || times < lengths[0] || !has[0]);
                }
            }
        }
    }
    #[test]
    fn what_is_launched_before_a_refusal_is_counted_in_times() {
        let (lengths, made) = ([64, 8], [Some(0), Some(1)]);
        let (rows, once) = split(64 * 2 + 8 * 3 + 5, lengths, |row| made[row]);
        let each = [64, 64, 8, 8, 8, 1, 1, 1, 1, 1];
        for refused in 0..=each.len() {
            let mut launches = 0;
            let (taken, all) = launch_all(rows, lengths, (2, once), |what| {
                let length = [64, 8, 1][what];
                assert_eq!(each.get(launches), Some(&length));
                if launches == refused {
                    return Err(());
                }
                launches += 1;
                Ok(())
            });
            assert_eq!(taken, each[..refused].iter().sum::<u64>());
            assert_eq!(all.is_ok(), refused == each.len());
        }
    }
}
