//! Captures of streams.

use crate::capture::{Capture, Recording};
use crate::codes;
use crate::graph::Graph;
use crate::handle::Handle;
use crate::state::State;

impl State {
    /// Begins a capture.
    pub(crate) fn begin_capture(&mut self, stream: Handle) -> Result<(), i32> {
        if self.stream(stream)?.recording.is_some() {
            return Err(codes::CAPTURE_UNMATCHED);
        }
        let (graph, capture) = (self.fresh(), self.fresh() as u64);
        self.graphs.insert(graph, Graph::default());
        let begun = Capture {
            graph,
            origin: stream,
            streams: vec![stream],
            invalid: false,
        };
        self.captures.insert(capture, begun);
        self.stream(stream)?.recording = Some(Recording::new(capture, Vec::new()));
        Ok(())
    }

    /// The graph that a stream records into.
    pub(crate) fn recorded(&self, recording: &Recording) -> Result<Handle, i32> {
        let capture = self.captures.get(&recording.capture);
        let capture = capture.ok_or(codes::CAPTURE_INVALIDATED)?;
        match capture.invalid {
            true => Err(codes::CAPTURE_INVALIDATED),
            false => Ok(capture.graph),
        }
    }

    /// Whether something was done that cannot be recorded.
    pub(crate) fn is_invalid(&self, recording: &Recording) -> bool {
        self.recorded(recording).is_err()
    }

    pub(crate) fn invalidate(&mut self, capture: u64) {
        if let Some(capture) = self.captures.get_mut(&capture) {
            capture.invalid = true;
        }
    }

    /// A question how far a captured stream has come breaks the capture.
    pub(crate) fn not_captured(&mut self, stream: Handle) -> Result<(), i32> {
        let Some(recording) = &self.stream(stream)?.recording else {
            return Ok(());
        };
        let capture = recording.capture;
        self.invalidate(capture);
        Err(codes::CAPTURE_UNSUPPORTED)
    }

    /// Makes the next work on the stream follow nodes. A stream that takes no part yet joins the capture.
    pub(crate) fn join(
        &mut self,
        stream: Handle,
        capture: u64,
        nodes: Vec<Handle>,
    ) -> Result<(), i32> {
        let into = self.captures.get_mut(&capture);
        let into = into.ok_or(codes::CAPTURE_INVALIDATED)?;
        if into.invalid {
            return Err(codes::CAPTURE_INVALIDATED);
        }
        let joined = stream;
        let stream = self.stream(stream)?;
        match &mut stream.recording {
            Some(recording) if recording.capture == capture => {
                let mut last = recording.last.clone();
                last.extend(
                    nodes
                        .into_iter()
                        .filter(|node| !recording.last.contains(node)),
                );
                let grid = recording.grid && last == recording.last;
                recording.stands_at(last, grid);
            }
            Some(_) => return Err(codes::CAPTURE_ISOLATION),
            none => *none = Some(Recording::new(capture, nodes)),
        }
        let into = self.captures.get_mut(&capture);
        let streams = &mut into.expect("it is there").streams;
        if !streams.contains(&joined) {
            streams.push(joined);
        }
        Ok(())
    }

    /// Ends a capture, and returns its graph.
    pub(crate) fn end_capture(&mut self, stream: Handle) -> Result<Handle, i32> {
        let Some(recording) = self.stream(stream)?.recording.clone() else {
            return Err(codes::INVALID_VALUE);
        };
        let known = self.captures.get(&recording.capture);
        if known.is_some_and(|capture| capture.origin != stream) {
            self.invalidate(recording.capture);
            return Err(codes::CAPTURE_UNMATCHED);
        }
        let capture = self.captures.remove(&recording.capture);
        let capture = capture.ok_or(codes::CAPTURE_INVALIDATED)?;
        let mut others: Vec<Handle> = Vec::new();
        for stream in &capture.streams {
            let stream = self.streams.get_mut(stream);
            if let Some(recording) = stream.and_then(|stream| stream.recording.take()) {
                others.extend(recording.last);
            }
        }
        let graph = &self.graphs[&capture.graph];
        let all_joined = {
            let known = graph.before(&recording.last);
            others.iter().all(|node| known.contains(node))
        };
        let code = match (capture.invalid, all_joined) {
            (true, _) => codes::CAPTURE_INVALIDATED,
            (_, false) => codes::CAPTURE_UNJOINED,
            _ => return Ok(capture.graph),
        };
        self.destroy_graph(capture.graph)?;
        Err(code)
    }
}
