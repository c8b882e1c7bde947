//! Streams, events, and the recording of streams.

use super::error::Result;
use super::handle::{Event, Graph, GraphNode, Stream, flags};
use super::load::Driver;
use super::table::{call, call_optional};

/// `CU_STREAM_NON_BLOCKING`: no ordering with the legacy stream.
const NON_BLOCKING: u32 = 1;
/// `CU_EVENT_RECORD_EXTERNAL`: in a capture, a node that records, and not an edge.
const RECORD_EXTERNAL: u32 = 1;

flags! {
    /// What an event is for (`CUevent_flags`).
    EventFlags {
        /// Ordering and times.
        DEFAULT = 0;
        /// No times: cheaper.
        DISABLE_TIMING = 2;
    }
}

/// Whether a stream is being recorded (`CUstreamCaptureStatus`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CaptureStatus {
    /// It is not: calls are enqueued.
    None,
    /// It is: calls are recorded.
    Active,
    /// It was, but something spoilt the recording: it must be ended, and gives an error then.
    Invalidated,
    /// The driver says something newer than this crate.
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

/// What [`Driver::stream_capture_info`] says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaptureInfo {
    /// Whether the stream is being recorded. Unless it is [`Active`](CaptureStatus::Active), the rest means nothing.
    pub status: CaptureStatus,
    /// A number for this recording that the process uses only once.
    pub id: u64,
    /// The graph that is being recorded: it belongs to the recording, and must not be destroyed.
    pub graph: Graph,
    /// The nodes that what comes next on the stream would follow, in no particular order.
    pub last: Vec<GraphNode>,
}

impl Driver {
    /// A new stream in the current context, which does not wait for the legacy stream (`cuStreamCreateWithPriority`). A
    /// priority out of the [range](Self::ctx_stream_priority_range) is moved into it.
    pub fn stream_create(&self, priority: i32) -> Result<Stream> {
        let mut stream = Stream::NULL;
        // SAFETY: the function writes one handle, to one that lives.
        unsafe { call!(self.stream_create_with_priority(&mut stream.0, NON_BLOCKING, priority)) }?;
        Ok(stream)
    }

    /// Destroys the stream once its work is done; does not wait for that (`cuStreamDestroy_v2`).
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

    /// What is enqueued from now on waits for what `event` recorded last (`cuStreamWaitEvent`).
    ///
    /// # Safety
    ///
    /// `stream` and `event` are alive.
    pub unsafe fn stream_wait_event(&self, stream: Stream, event: Event) -> Result<()> {
        // SAFETY: the caller vouches for the handles; 0 are the default flags.
        unsafe { call!(self.stream_wait_event(stream.0, event.0, 0)) }
    }

    /// Begins to record: calls on the stream are not executed from now on. Calls on other streams are not restricted
    /// (`cuStreamBeginCapture_v2`, `CU_STREAM_CAPTURE_MODE_RELAXED`).
    ///
    /// # Safety
    ///
    /// `stream` is alive.
    pub unsafe fn stream_begin_capture(&self, stream: Stream) -> Result<()> {
        const RELAXED: u32 = 2;
        // SAFETY: the caller vouches for the handle.
        unsafe { call!(self.stream_begin_capture(stream.0, RELAXED)) }
    }

    /// Ends the recording, and gives what was recorded, to be destroyed by the caller (`cuStreamEndCapture`).
    ///
    /// # Errors
    ///
    /// If something spoilt the recording: [`is_capture_error`](super::CudaError::is_capture_error). It is ended
    /// nevertheless, unless it must be ended on another thread.
    ///
    /// # Safety
    ///
    /// `stream` is alive.
    pub unsafe fn stream_end_capture(&self, stream: Stream) -> Result<Graph> {
        let mut graph = Graph::NULL;
        // SAFETY: the caller vouches for the handle; one handle is written, to one that lives.
        unsafe { call!(self.stream_end_capture(stream.0, &mut graph.0)) }?;
        Ok(graph)
    }

    /// Whether and as what the stream is being recorded (`cuStreamGetCaptureInfo_v3`, or `_v2` where that is missing).
    ///
    /// # Safety
    ///
    /// `stream` is alive, and no other thread uses it meanwhile.
    pub unsafe fn stream_capture_info(&self, stream: Stream) -> Result<CaptureInfo> {
        let (mut status, mut id, mut graph) = (0, 0, Graph::NULL);
        let (mut nodes, mut edges, mut count) = (std::ptr::null(), std::ptr::null(), 0);
        self.here(self.table.stream_get_capture_info_v3.name)?;
        if let Some(function) = self.table.stream_get_capture_info_v3.call {
            // All is asked for, the edges as well: who leaves them out may be refused (`CUDA_ERROR_LOSSY_QUERY`) after
            // a launch with programmatic dependencies.
            // SAFETY: the caller vouches for the handle; every value is written to one that lives.
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
            // SAFETY: the caller vouches for the handle; every value is written to one that lives.
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
            // SAFETY: the driver said that so many nodes are there, which the next call on the stream may change: none
            // comes in between.
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
        // SAFETY: the function checks the flags, and writes one handle, to one that lives.
        unsafe { call!(self.event_create(&mut event.0, flags.0)) }?;
        Ok(event)
    }

    /// Destroys the event once it has happened; does not wait for that (`cuEventDestroy_v2`).
    ///
    /// # Safety
    ///
    /// `event` is alive and not used again.
    pub unsafe fn event_destroy(&self, event: Event) -> Result<()> {
        // SAFETY: the caller vouches for the handle, and gives it up.
        unsafe { call!(self.event_destroy(event.0)) }
    }

    /// The event happens when all that was enqueued so far is done (`cuEventRecord`).
    ///
    /// # Safety
    ///
    /// `event` and `stream` are alive.
    pub unsafe fn event_record(&self, event: Event, stream: Stream) -> Result<()> {
        // SAFETY: the caller vouches for the handles.
        unsafe { call!(self.event_record(event.0, stream.0)) }
    }

    /// As [`event_record`](Self::event_record), while `stream` is being captured: every replay records the event anew
    /// (`cuEventRecordWithFlags`).
    ///
    /// # Safety
    ///
    /// `event` and `stream` are alive, the event as long as what comes of the capture.
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

    /// The milliseconds between two events that have times (`cuEventElapsedTime`); `None` while one of them has not happened.
    ///
    /// # Safety
    ///
    /// `start` and `end` are alive.
    pub unsafe fn event_elapsed_ms(&self, start: Event, end: Event) -> Result<Option<f32>> {
        let entry = &self.table.event_elapsed_time;
        self.here(entry.name)?;
        let mut milliseconds = 0.0;
        // SAFETY: the caller vouches for the handles; one number is written, to one that lives.
        let code = unsafe { (entry.call)(&mut milliseconds, start.0, end.0) };
        Ok(self.query(entry.name, code)?.then_some(milliseconds))
    }
}
