//! Streams, events, and the recording of streams.

use super::error::Result;
use super::handle::{Event, Graph, GraphNode, Stream, flags};
use super::load::Driver;
use super::table::{call, call_optional};

/// `CU_STREAM_NON_BLOCKING`: the stream is not ordered with the legacy stream.
const NON_BLOCKING: u32 = 1;
/// `CU_EVENT_RECORD_EXTERNAL`: in a capture, recording the event becomes a node instead of an edge.
const RECORD_EXTERNAL: u32 = 1;

flags! {
    /// What an event is for (`CUevent_flags`).
    EventFlags {
        /// For ordering and for times.
        DEFAULT = 0;
        /// For ordering only, which is cheaper.
        DISABLE_TIMING = 2;
    }
}

/// Whether a stream is being recorded (`CUstreamCaptureStatus`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CaptureStatus {
    /// It is not recorded: calls are enqueued.
    None,
    /// It is recorded: calls go into a graph.
    Active,
    /// It was recorded, but a call has made the recording fail. The recording must still be ended, which then returns
    /// an error.
    Invalidated,
    /// The driver gives an answer that this crate does not know.
    Unknown(u32),
}

impl CaptureStatus {
    fn from_raw(raw: u32) -> Self {
        match raw {
            0 => CaptureStatus::None,
            1 => CaptureStatus::Active,
            2 => CaptureStatus::Invalidated,
            other => CaptureStatus::Unknown(other),
        }
    }
}

/// The answer of [`Driver::stream_capture_info`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaptureInfo {
    /// Whether the stream is being recorded. Unless it is [`Active`](CaptureStatus::Active), the other fields mean
    /// nothing.
    pub status: CaptureStatus,
    /// The number of this recording, which no other recording of the process has.
    pub id: u64,
    /// The graph that is being recorded: it belongs to the recording, and must not be destroyed.
    pub graph: Graph,
    /// The nodes that the next work of the stream will follow, in no particular order.
    pub last: Vec<GraphNode>,
}

impl Driver {
    /// A new stream in the current context, which does not wait for the legacy stream (`cuStreamCreateWithPriority`).
    /// The driver moves a priority that is outside of the [range](Self::ctx_stream_priority_range) into it.
    pub fn stream_create(&self, priority: i32) -> Result<Stream> {
        let mut stream = Stream::NULL;
        // SAFETY: the function writes one handle into a live variable.
        unsafe { call!(self.stream_create_with_priority(&mut stream.0, NON_BLOCKING, priority)) }?;
        Ok(stream)
    }

    /// Destroys the stream once its work is done, and returns before that (`cuStreamDestroy_v2`).
    ///
    /// # Safety
    ///
    /// `stream` is alive, not [`Stream::NULL`], and not used again.
    pub unsafe fn stream_destroy(&self, stream: Stream) -> Result<()> {
        // SAFETY: the caller vouches for the handle, and gives it up.
        unsafe { call!(self.stream_destroy(stream.0)) }
    }

    /// Blocks until all that was enqueued is done (`cuStreamSynchronize`).
    ///
    /// # Safety
    ///
    /// `stream` is alive.
    pub unsafe fn stream_synchronize(&self, stream: Stream) -> Result<()> {
        // SAFETY: the caller vouches for the handle.
        unsafe { call!(self.stream_synchronize(stream.0)) }
    }

    /// Whether all that was enqueued is done (`cuStreamQuery`).
    ///
    /// # Safety
    ///
    /// `stream` is alive.
    pub unsafe fn stream_query(&self, stream: Stream) -> Result<bool> {
        let entry = &self.table.stream_query;
        self.here(entry.name)?;
        // SAFETY: the caller vouches for the handle.
        let code = unsafe { (entry.call)(stream.0) };
        self.query(entry.name, code)
    }

    /// Makes all work that is enqueued from now on wait for the last recording of `event` (`cuStreamWaitEvent`).
    ///
    /// # Safety
    ///
    /// `stream` and `event` are alive.
    pub unsafe fn stream_wait_event(&self, stream: Stream, event: Event) -> Result<()> {
        // SAFETY: the caller vouches for the handles; 0 are the default flags.
        unsafe { call!(self.stream_wait_event(stream.0, event.0, 0)) }
    }

    /// Begins to record: from now on, calls on the stream are recorded instead of executed (`cuStreamBeginCapture_v2`).
    /// Calls on other streams are not restricted (`CU_STREAM_CAPTURE_MODE_RELAXED`).
    ///
    /// # Safety
    ///
    /// `stream` is alive.
    pub unsafe fn stream_begin_capture(&self, stream: Stream) -> Result<()> {
        const RELAXED: u32 = 2;
        // SAFETY: the caller vouches for the handle.
        unsafe { call!(self.stream_begin_capture(stream.0, RELAXED)) }
    }

    /// Ends the recording, and returns its graph, which the caller has to destroy (`cuStreamEndCapture`).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Capture`](tidegate_hal::device::ErrorKind), if a call has made the recording fail. The recording
    /// is ended nevertheless, unless another thread must end it.
    ///
    /// # Safety
    ///
    /// `stream` is alive.
    pub unsafe fn stream_end_capture(&self, stream: Stream) -> Result<Graph> {
        let mut graph = Graph::NULL;
        // SAFETY: the caller vouches for the handle; one handle is written into a live variable.
        unsafe { call!(self.stream_end_capture(stream.0, &mut graph.0)) }?;
        Ok(graph)
    }

    /// Whether the stream is being recorded, and into which graph (`cuStreamGetCaptureInfo_v3`, or `_v2` if that is
    /// missing).
    ///
    /// # Safety
    ///
    /// `stream` is alive, and no other thread uses it meanwhile.
    pub unsafe fn stream_capture_info(&self, stream: Stream) -> Result<CaptureInfo> {
        let (mut status, mut id, mut graph) = (0, 0, Graph::NULL);
        let (mut nodes, mut edges, mut count) = (std::ptr::null(), std::ptr::null(), 0);
        self.here(self.table.stream_get_capture_info_v3.name)?;
        if let Some(function) = self.table.stream_get_capture_info_v3.call {
            // The call asks for the edges, too. Without them, the driver may refuse it after a launch with programmatic
            // dependencies (`CUDA_ERROR_LOSSY_QUERY`).
            // SAFETY: the caller vouches for the handle; every value is written to a live variable.
            let code = unsafe {
                function(
                    stream.0,
                    &mut status,
                    &mut id,
                    &mut graph.0,
                    &mut nodes,
                    &mut edges,
                    &mut count,
                )
            };
            self.check(self.table.stream_get_capture_info_v3.name, code)?;
        } else {
            // SAFETY: the caller vouches for the handle; every value is written to a live variable.
            unsafe {
                call!(self.stream_get_capture_info(
                    stream.0,
                    &mut status,
                    &mut id,
                    &mut graph.0,
                    &mut nodes,
                    &mut count,
                ))
            }?;
        }
        let status = CaptureStatus::from_raw(status);
        let last = if status == CaptureStatus::Active && count > 0 && !nodes.is_null() {
            // SAFETY: the driver said that there are so many nodes. Only the next call on the stream may change that,
            // and none comes in between.
            let nodes = unsafe { std::slice::from_raw_parts(nodes, count) };
            nodes.iter().map(|node| GraphNode(*node)).collect()
        } else {
            Vec::new()
        };
        Ok(CaptureInfo {
            status,
            id,
            graph,
            last,
        })
    }

    /// A new event in the current context (`cuEventCreate`).
    pub fn event_create(&self, flags: EventFlags) -> Result<Event> {
        let mut event = Event::NULL;
        // SAFETY: the function checks the flags, and writes one handle into a live variable.
        unsafe { call!(self.event_create(&mut event.0, flags.0)) }?;
        Ok(event)
    }

    /// Destroys the event once it has happened, and returns before that (`cuEventDestroy_v2`).
    ///
    /// # Safety
    ///
    /// `event` is alive and not used again.
    pub unsafe fn event_destroy(&self, event: Event) -> Result<()> {
        // SAFETY: the caller vouches for the handle, and gives it up.
        unsafe { call!(self.event_destroy(event.0)) }
    }

    /// Records the event: it happens when all work that is enqueued so far is done (`cuEventRecord`).
    ///
    /// # Safety
    ///
    /// `event` and `stream` are alive.
    pub unsafe fn event_record(&self, event: Event, stream: Stream) -> Result<()> {
        // SAFETY: the caller vouches for the handles.
        unsafe { call!(self.event_record(event.0, stream.0)) }
    }

    /// As [`event_record`](Self::event_record), for a stream that is being captured: every replay records the event
    /// anew (`cuEventRecordWithFlags`).
    ///
    /// # Safety
    ///
    /// `event` and `stream` are alive. The event lives as long as the graphs that the capture leads to.
    pub unsafe fn event_record_external(&self, event: Event, stream: Stream) -> Result<()> {
        // SAFETY: the caller vouches for the handles.
        unsafe { call_optional!(self.event_record_with_flags(event.0, stream.0, RECORD_EXTERNAL)) }
    }

    /// Whether the event has happened, or was never recorded (`cuEventQuery`).
    ///
    /// # Safety
    ///
    /// `event` is alive.
    pub unsafe fn event_query(&self, event: Event) -> Result<bool> {
        let entry = &self.table.event_query;
        self.here(entry.name)?;
        // SAFETY: the caller vouches for the handle.
        let code = unsafe { (entry.call)(event.0) };
        self.query(entry.name, code)
    }

    /// The milliseconds between two events with times (`cuEventElapsedTime`); `None` if one of them has not happened
    /// yet.
    ///
    /// # Safety
    ///
    /// `start` and `end` are alive.
    pub unsafe fn event_elapsed_ms(&self, start: Event, end: Event) -> Result<Option<f32>> {
        let entry = &self.table.event_elapsed_time;
        self.here(entry.name)?;
        let mut milliseconds = 0.0;
        // SAFETY: the caller vouches for the handles; one number is written into a live variable.
        let code = unsafe { (entry.call)(&mut milliseconds, start.0, end.0) };
        Ok(self.query(entry.name, code)?.then_some(milliseconds))
    }
}
