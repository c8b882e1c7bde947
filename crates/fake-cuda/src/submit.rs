//! Submits work to streams.

use crate::codes;
use crate::graph::{Exec, Node, PLAIN, PROGRAMMATIC};
use crate::handle::Handle;
use crate::settings::Settings;
use crate::state::{CHANGED, Locked, State};
use crate::work::{Number, What};

/// How many places the queue of a stream has. When all are taken, a call that enqueues waits until one is free, as with
/// a real driver. Calls of other threads go on meanwhile.
const PLACES: usize = 1024;

impl Locked {
    /// Waits until there is a place in the queue of a stream that is not captured.
    fn place(mut self, stream: Handle) -> Result<Self, i32> {
        loop {
            let State { works, streams, .. } = &mut *self;
            let stream = streams.get_mut(&stream).ok_or(codes::INVALID_HANDLE)?;
            let is_over = |work: &Number| works.is_over(*work);
            while stream.queued.front().is_some_and(is_over) {
                stream.queued.pop_front();
            }
            let first = stream.queued.front().copied();
            match first.filter(|_| stream.queued.len() >= PLACES && stream.recording.is_none()) {
                Some(first) => self = self.until(|state| state.works.is_over(first))?,
                None => return Ok(self),
            }
        }
    }

    /// Enqueues work on a stream, when there is a place for it, or records it. `early` says that it may begin when a
    /// grid before it allows it.
    pub(crate) fn enqueue(self, stream: Handle, what: What, early: bool) -> Result<Self, i32> {
        let mut state = self.place(stream)?;
        State::enqueue(&mut state, stream, what, early)?;
        Ok(state)
    }

    /// Enqueues an executable graph, when there is a place for it.
    pub(crate) fn launch(self, exec: Handle, stream: Handle) -> Result<Self, i32> {
        let mut state = self.place(stream)?;
        State::launch(&mut state, exec, stream)?;
        Ok(state)
    }
}

impl State {
    /// The work that the stream's next work follows. Work that is over is forgotten.
    fn last(&mut self, stream: Handle) -> Result<Vec<Number>, i32> {
        let mut last = std::mem::take(&mut self.stream(stream)?.last);
        last.retain(|number| !self.works.is_over(*number));
        self.stream(stream)?.last.clone_from(&last);
        Ok(last)
    }

    /// Adds work.
    fn add(&mut self, what: What, after: &[Number], early: &[Number]) -> Number {
        let number = self.works.add(what, after, early);
        CHANGED.notify_all();
        number
    }

    /// Like [`Locked::enqueue`], when there is a place.
    fn enqueue(&mut self, stream: Handle, what: What, early: bool) -> Result<(), i32> {
        let grid = matches!(what, What::Grid(_));
        if let Some(recording) = self.stream(stream)?.recording.clone() {
            let graph = self.recorded(&recording)?;
            let how = match early && recording.grid && recording.last.len() == 1 {
                true => PROGRAMMATIC,
                false => PLAIN,
            };
            let from = recording.last.iter();
            let edges: Vec<_> = from.map(|from| (*from, how)).collect();
            let node = self.add_node(graph, Node::Work(what), &edges)?;
            let recording = self.stream(stream)?.recording.as_mut();
            recording.expect("it is").stands_at(vec![node], grid);
            return Ok(());
        }
        if grid && Settings::get().idle {
            return Ok(());
        }
        let last = self.last(stream)?;
        let early = early && self.stream(stream)?.grid && last.len() == 1;
        let number = match early {
            true => self.add(what, &[], &last),
            false => self.add(what, &last, &[]),
        };
        let stream = self.stream(stream)?;
        (stream.last, stream.grid) = (vec![number], grid);
        stream.queued.push_back(number);
        Ok(())
    }

    /// Makes an event stand for the stream's work so far. `external` says that it is a time of its own even in a
    /// recording.
    pub(crate) fn record(
        &mut self,
        event: Handle,
        stream: Handle,
        external: bool,
    ) -> Result<(), i32> {
        self.event(event)?;
        if let Some(recording) = self.stream(stream)?.recording.clone() {
            if external {
                return self.enqueue(stream, What::Stamp(event), false);
            }
            self.recorded(&recording)?;
            let event = self.event(event)?;
            (event.work, event.nodes) = (None, Some((recording.capture, recording.last)));
            return Ok(());
        }
        let last = self.last(stream)?;
        let number = self.add(What::Stamp(event), &last, &[]);
        let event = self.event(event)?;
        (event.work, event.nodes, event.time) = (Some(number), None, None);
        let stamps = std::mem::take(&mut self.stream(stream)?.stamps);
        let mut stamps: Vec<_> = stamps
            .into_iter()
            .filter(|stamp| !self.works.is_over(*stamp))
            .collect();
        stamps.push(number);
        self.stream(stream)?.stamps = stamps;
        Ok(())
    }

    /// Makes the next work on the stream follow the event.
    pub(crate) fn follow(&mut self, stream: Handle, event: Handle) -> Result<(), i32> {
        let (work, nodes) = {
            let event = self.event(event)?;
            (event.work, event.nodes.clone())
        };
        if let Some((capture, nodes)) = nodes {
            return self.join(stream, capture, nodes);
        }
        if let Some(recording) = self.stream(stream)?.recording.clone() {
            // Work outside a capture cannot be followed inside.
            self.invalidate(recording.capture);
            return Err(codes::CAPTURE_ISOLATION);
        }
        let mut last = self.last(stream)?;
        if let Some(work) = work.filter(|work| !self.works.is_over(*work)) {
            last.push(work);
            let stream = self.stream(stream)?;
            (stream.last, stream.grid) = (last, false);
        }
        Ok(())
    }

    /// Like [`Locked::launch`], when there is a place.
    fn launch(&mut self, exec: Handle, stream: Handle) -> Result<(), i32> {
        if self.stream(stream)?.recording.is_some() {
            return Err(codes::NOT_SUPPORTED);
        }
        let mut begin = self.last(stream)?;
        let Exec { plan, last } = self.execs.get(&exec).ok_or(codes::INVALID_HANDLE)?;
        let plan = plan.clone();
        begin.extend(last.filter(|last| !self.works.is_over(*last)));
        let mut numbers: Vec<Number> = Vec::with_capacity(plan.len());
        let mut ends: Vec<bool> = vec![true; plan.len()];
        for step in plan.iter() {
            let of = |steps: &[usize]| steps.iter().map(|step| numbers[*step]).collect::<Vec<_>>();
            let (mut after, early) = (of(&step.after), of(&step.early));
            if after.is_empty() && early.is_empty() {
                after.clone_from(&begin);
            }
            for before in step.after.iter().chain(&step.early) {
                ends[*before] = false;
            }
            let number = self.works.add(step.what.clone(), &after, &early);
            if let What::Stamp(event) = step.what
                && let Some(event) = self.events.get_mut(&event)
            {
                (event.work, event.time) = (Some(number), None);
            }
            numbers.push(number);
        }
        let ends = numbers.iter().zip(ends);
        let ends: Vec<_> = ends
            .filter_map(|(number, end)| end.then_some(*number))
            .collect();
        let ends = if plan.is_empty() { begin } else { ends };
        let end = self.add(What::Nothing, &ends, &[]);
        self.execs.get_mut(&exec).expect("it is there").last = Some(end);
        let stream = self.stream(stream)?;
        (stream.last, stream.grid) = (vec![end], false);
        stream.queued.push_back(end);
        Ok(())
    }
}
