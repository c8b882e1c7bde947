//! Streams.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate_hal::batch::Batch;
use tidegate_hal::device::{Call, DeviceError, Fault, Reclaim as _, Reports, Stream, StreamConfig};
use tidegate_hal::site::CallSite;
use tidegate_hal::stamps::Stamps;

use crate::driver::{Doing, ErrorKind, Event, GraphNode, Keep, Stream as RawStream};
use crate::followed::{Followed, LOOKED_AT};
use crate::gpu::Gpu;
use crate::graph::{GpuGraph, Recorded, Shape};
use crate::last::Last;
use crate::line::{Began, First, Line};
use crate::lower::operands::Advance;
use crate::lower::{LAUNCH_NEXT, LaunchParameter, THREADS};
use crate::place::Placed;
use crate::reclaim::StreamState;
use crate::reports::refused_or_broken_off;
use crate::share::Admitable as _;

/// How many things a stream holds before it asks the driver which of them it has passed.
const HELD: usize = 64;

/// A stream of a GPU.
pub struct GpuStream {
    pub(crate) shared: Arc<StreamState>,
    /// Whether each submission is followed by a synchronisation, for host-synchronised communication.
    inline: bool,
    /// Batches and graphs that were submitted, each with the number of the item after which it was used last.
    held: RefCell<Vec<(Keep, u64)>>,
    pub(crate) followed: Followed<StreamState>,
    /// The streams that this one followed when the recording began. The first batch after the recording looks at them,
    /// and no batch in it does.
    aside: RefCell<Vec<Arc<StreamState>>>,
    /// A program that looks at other streams and does nothing else. It is made when it is first needed.
    looks: RefCell<Option<Arc<Placed>>>,
    /// The things that the current recording holds.
    recording: RefCell<Option<Vec<Keep>>>,
    /// What was submitted last.
    pub(crate) last: RefCell<Last>,
    /// The number of the dealing in which the current recording began. A later dealing may have made the stream's quota
    /// smaller.
    dealing: Cell<usize>,
    /// How a replay of the current recording joins the replay before it, if they are launched together.
    began: RefCell<Began>,
    /// How far each replay of the recording advances operands. It is kept only while operands are counted.
    pub(crate) recorded: RefCell<Advance>,
    /// Keeps alive what the world gave the stream.
    _keep: Keep,
}

/// A point in the order of a stream.
pub struct GpuEvent {
    event: Event,
    stream: Arc<StreamState>,
    /// The streams that the stream followed.
    followed: Vec<Arc<StreamState>>,
    /// In a recording: the streams for whose beginnings this event stands, because no node does.
    beginnings: Vec<RawStream>,
}

impl Drop for GpuEvent {
    fn drop(&mut self) {
        if self.stream.gpu.enter().is_ok() {
            // SAFETY: the event is this value's, and whatever waits for it has been enqueued already.
            let _ = unsafe { self.stream.gpu.driver.event_destroy(self.event) };
        }
    }
}

impl GpuStream {
    pub(crate) fn new(gpu: &Arc<Gpu>, config: StreamConfig) -> Result<Self, DeviceError> {
        gpu.enter()?;
        let raw = gpu
            .driver
            .stream_create(config.priority)
            .doing("making a stream")?;
        // SAFETY: the stream was just made.
        let shared = unsafe { StreamState::new(gpu, raw, None, config.stamped) }?;
        Ok(Self::over(shared, config))
    }

    /// The driver's stream. Work that is enqueued on it directly is not counted here.
    pub fn as_raw(&self) -> RawStream {
        self.shared.raw
    }

    pub(crate) fn over(shared: Arc<StreamState>, config: StreamConfig) -> Self {
        GpuStream {
            shared,
            inline: config.inline,
            held: RefCell::default(),
            followed: Followed::default(),
            aside: RefCell::default(),
            looks: RefCell::default(),
            recording: RefCell::new(None),
            last: RefCell::default(),
            dealing: Cell::default(),
            began: RefCell::default(),
            recorded: RefCell::default(),
            _keep: config.keep,
        }
    }

    /// Keeps something until the stream has passed `mark`. During a recording, keeps it as long as the recording.
    pub(crate) fn hold(&self, keep: Keep, mark: u64) {
        if let Some(recording) = &mut *self.recording.borrow_mut() {
            if !recording.iter().any(|each| Arc::ptr_eq(each, &keep)) {
                recording.push(keep);
            }
            return;
        }
        let mut held = self.held.borrow_mut();
        if let Some((_, last)) = held.iter_mut().find(|(each, _)| Arc::ptr_eq(each, &keep)) {
            *last = mark;
            return;
        }
        if held.len() >= HELD {
            let passed = self.shared.passed();
            held.retain(|(_, last)| *last > passed);
        }
        held.push((keep, mark));
    }

    /// Notes that one kernel has just been launched, and which kind. If the stream is being captured, the kernel is one
    /// node, and all that the stream records later follows it.
    pub(crate) fn launched(&self, last: Last, first: First) {
        self.last.replace(last);
        if self.capturing() {
            let last = || self.last_nodes().unwrap_or_default();
            self.began.borrow_mut().launched(first, last);
        }
    }

    /// Notes that the next item is not a kernel of the user.
    pub(crate) fn other_follows(&self) {
        self.last.take().other_follows(self.capturing());
    }

    /// The nodes that the next recorded item would follow, if the driver tells.
    fn last_nodes(&self) -> Option<Vec<GraphNode>> {
        // SAFETY: the stream is live, and only this thread uses it while it is borrowed (streams are not shared).
        let info = unsafe { self.shared.gpu.driver.capture_last(self.shared.raw) };
        info.ok()
    }

    /// Changes the batch that was recorded last, so that nothing begins while it waits. Returns whether that was
    /// possible.
    pub(crate) fn let_nobody_come(&self) -> bool {
        let (gpu, nodes) = (&self.shared.gpu, self.last_nodes());
        let Some(&[node]) = nodes.as_deref() else {
            return false;
        };
        // SAFETY: the node is in the graph that this stream records into, and only this thread records into it (as
        // above).
        let Ok(Some(kernel)) = (unsafe { gpu.driver.graph_kernel(node) }) else {
            return false;
        };
        let arguments = kernel.arguments;
        if !gpu.is_batch(kernel.function) || arguments.is_null() {
            return false;
        }
        // SAFETY: a batch kernel has one parameter, of this type. The driver has just said where the node keeps it, and
        // nothing has changed the node since.
        let mut parameter = unsafe { (*arguments).cast::<LaunchParameter>().read_unaligned() };
        parameter.flags &= !LAUNCH_NEXT;
        let mut arguments = [std::ptr::from_mut(&mut parameter).cast::<c_void>()];
        // SAFETY: as above, and one parameter of this type is given. The node's arguments are not read here again.
        let set = unsafe { gpu.driver.graph_set_arguments(node, &mut arguments) };
        set.inspect_err(|error| {
            tidegate_hal::tell(|| tracing::debug!(%error, "a recorded batch is not changed"))
        })
        .is_ok()
    }

    /// What was recorded on this stream; `None` if that is not known.
    fn line(&self) -> Option<Line> {
        let (last, behind_kernel) = (self.last_nodes()?, self.last.borrow().is_kernel());
        let began = self.began.borrow();
        began.line(self.shared.raw, last, behind_kernel)
    }

    fn begin_recording(&self) {
        self.last.take();
        self.began.replace(Began::of(self.shared.raw));
        *self.recording.borrow_mut() = Some(Vec::new());
        self.recorded.borrow_mut().clear();
        *self.aside.borrow_mut() = self.followed.take();
    }

    /// Ends a submission: host-synchronised streams wait here.
    pub(crate) fn submitted(&self) -> Result<(), DeviceError> {
        if self.inline && !self.capturing() {
            self.shared.synchronize()?;
        }
        Ok(())
    }

    /// Makes a call of the driver that blocks while the driver has no room for it.
    pub(crate) fn during<R>(&self, call: Call, does: impl FnOnce() -> R) -> R {
        self.shared.calls().during(call, does)
    }

    /// Makes later work on the other stream follow all that has been enqueued here.
    fn let_follow(&self, other: &Self) -> Result<(), DeviceError> {
        let event = self.record()?;
        // SAFETY: both are live, and of one device.
        unsafe { (self.shared.gpu.driver).stream_wait_event(other.shared.raw, event.event) }
            .doing("waiting for an event")
    }

    fn not_capturing(&self, what: &'static str) -> Result<(), DeviceError> {
        if self.capturing() {
            Err(DeviceError::Capturing(what))
        } else {
            Ok(())
        }
    }

    /// The program that looks at other streams, and does nothing else.
    pub(crate) fn look(&self) -> Result<Arc<Placed>, DeviceError> {
        let mut looks = self.looks.borrow_mut();
        if let Some(look) = &*looks {
            return Ok(look.clone());
        }
        let look = Arc::new(Placed::look(&self.shared.gpu)?);
        Ok(looks.insert(look).clone())
    }

    /// Makes the device look at the streams that are followed, as long as there are `more`.
    pub(crate) fn look_while(
        &self,
        more: impl Fn(&Followed<StreamState>) -> bool,
    ) -> Result<(), DeviceError> {
        while more(&self.followed) {
            let look = self.look()?;
            self.hold(look.clone(), self.shared.submitted() + 1);
            // SAFETY: the program touches only a word of its own, which it holds.
            self.following(|follow| unsafe { self.launch(&look, follow, false) })?;
            self.shared.count();
        }
        Ok(())
    }

    /// Calls `launch` with the states that a batch must look at besides its own. If the launch fails, the next batch
    /// must look at them.
    pub(crate) fn following(
        &self,
        launch: impl FnOnce([u64; LOOKED_AT]) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        if self.followed.is_empty() {
            return launch([0; LOOKED_AT]);
        }
        let before = self.followed.all();
        let mut states = [0; LOOKED_AT];
        for (state, other) in states.iter_mut().zip(self.followed.next()) {
            *state = other.state_address();
            self.hold(other, self.shared.submitted() + 1);
        }
        launch(states).inspect_err(|_| self.followed.set(before))
    }
}

// SAFETY: a stream of the driver executes in order. A batch is one kernel on it, or a few, that do what `kernels/batch.cu` says
// (`crate::submit`). Data that a wait has acquired at system scope is visible to later kernels of the stream.
unsafe impl Stream for GpuStream {
    type Reclaim = StreamState;
    type Graph = GpuGraph;
    type Event = GpuEvent;

    fn reclaim(&self) -> &Arc<StreamState> {
        &self.shared
    }

    fn most_lanes(&self) -> usize {
        self.shared.likely_quota() * (THREADS / self.shared.gpu.limits.wave)
    }

    fn widest(&self) -> usize {
        self.shared.widest()
    }

    fn reports(&self) -> Result<Reports, DeviceError> {
        // Only batches look at other streams.
        self.look_while(|followed| !followed.is_empty())?;
        Ok(self.shared.reports())
    }

    fn prepare(&self, batch: &Arc<Batch>, _items: usize) -> Result<(), DeviceError> {
        // The driver refuses nothing because its queue is full; it blocks.
        self.prepare_batch(batch)
    }

    unsafe fn submit(&self, batch: &Arc<Batch>, site: CallSite) -> Result<(), DeviceError> {
        self.shared.calls().called_at(site);
        // SAFETY: the caller's promise.
        self.during(Call::Batch, || unsafe { self.submit_batch(batch) })
    }

    fn stamps(&self) -> Option<Arc<dyn Stamps>> {
        (self.shared.ring.clone()).map(|ring| -> Arc<dyn Stamps> { ring })
    }

    fn mark(&self) -> u64 {
        self.shared.submitted()
    }

    fn fault(&self) -> Option<Fault> {
        let own = self.shared.fault();
        own.or_else(|| self.followed.find_map(|other| other.fault()))
    }

    fn followed(&self) -> Vec<Arc<StreamState>> {
        self.followed.all()
    }

    fn synchronize(&self) -> Result<Result<(), Fault>, DeviceError> {
        self.not_capturing("synchronisation")?;
        self.during(Call::Synchronize, || self.shared.synchronize())?;
        self.held.borrow_mut().clear();
        crate::stamps::compare_clocks(self.shared.ring.as_deref());
        Ok(self.fault().map_or(Ok(()), Err))
    }

    fn record(&self) -> Result<GpuEvent, DeviceError> {
        let shared = &self.shared;
        shared.gpu.enter()?;
        self.other_follows();
        let what = "recording an event";
        let event = shared.gpu.driver.event_create(false).doing(what)?;
        let event = GpuEvent {
            event,
            stream: shared.clone(),
            followed: self.followed.all(),
            beginnings: if self.capturing() {
                self.began.borrow().pending().to_vec()
            } else {
                Vec::new()
            },
        };
        // SAFETY: both are live, and of one context.
        let record = || unsafe { shared.gpu.driver.event_record(event.event, shared.raw) };
        self.during(Call::HandOff, record).doing(what)?;
        Ok(event)
    }

    fn wait_event(&self, event: &GpuEvent) -> Result<(), DeviceError> {
        let shared = &self.shared;
        if Arc::ptr_eq(&event.stream, shared) {
            return Ok(());
        }
        if event.stream.gpu.limits.vendor != shared.gpu.limits.vendor {
            return Err(DeviceError::BadHandle(
                "the event is of another vendor's stream".into(),
            ));
        }
        if self.capturing() != event.stream.is_capturing() {
            return Err(DeviceError::Capturing(
                "one of the two streams is in a recording that the other has no part in",
            ));
        }
        shared.gpu.enter()?;
        // The last work of the other stream may wait for a peer.
        self.other_follows();
        // SAFETY: both are live, and of one device.
        let wait = || unsafe { shared.gpu.driver.stream_wait_event(shared.raw, event.event) };
        let waited = self.during(Call::HandOff, wait);
        shared.count();
        waited.doing("waiting for an event")?;
        let others = event.followed.iter().chain([&event.stream]);
        self.followed.add(shared, others);
        if self.capturing() {
            self.began.borrow_mut().follows(&event.beginnings);
        }
        Ok(())
    }

    fn begin_capture(&self, others: &[&Self]) -> Result<(), DeviceError> {
        let what = "beginning a capture";
        for stream in others.iter().copied().chain([self]) {
            stream.not_capturing("another capture")?;
        }
        let driver = self.shared.gpu.driver;
        self.shared.gpu.enter()?;
        self.shared.set_capturing(true);
        // The capture mode is relaxed, because the library allocates, and looks at events of other streams, during a
        // capture.
        // SAFETY: the stream is live.
        let begun = unsafe { driver.capture_begin(self.shared.raw) };
        begun
            .doing(what)
            .inspect_err(|_| self.shared.set_capturing(false))?;
        self.dealing
            .set(self.shared.gpu.dealing.load(Ordering::Acquire));
        self.begin_recording();
        let fork = (!others.is_empty()).then(|| self.record()).transpose();
        let forked = fork.and_then(|fork| {
            for other in others {
                let fork = fork.as_ref().expect("there are others");
                // This comes first, so that nobody asks the driver how far a captured stream has come.
                other.shared.set_capturing(true);
                other.begin_recording();
                // SAFETY: both are live, and of one device.
                unsafe { driver.stream_wait_event(other.shared.raw, fork.event) }.doing(what)?;
            }
            Ok(())
        });
        forked.inspect_err(|_| drop(self.end_capture(others)))
    }

    fn end_capture(&self, others: &[&Self]) -> Result<GpuGraph, DeviceError> {
        if !self.capturing() {
            return Err(DeviceError::Capturing("nothing is being captured"));
        }
        let gpu = &self.shared.gpu;
        gpu.enter()?;
        let lines = [self].into_iter().chain(others.iter().copied());
        let lines: Option<Vec<_>> = lines.map(|stream| stream.line()).collect();
        let shape = Shape {
            branches: !others.is_empty(),
            lines,
        };
        let joined = others.iter().try_for_each(|other| other.let_follow(self));
        // SAFETY: the stream is live, and being captured.
        let end = || unsafe { gpu.driver.capture_end(self.shared.raw) };
        let graph = end().inspect_err(|_| {
            // While the driver captures, it executes nothing that is enqueued. (Usually the capture has ended by now.)
            if let Ok(graph) = end() {
                // SAFETY: the graph was just made, and is nobody else's.
                let _ = unsafe { gpu.driver.graph_destroy(graph) };
            }
        });
        let (mut keep, mut advance): (Vec<Keep>, Advance) = Default::default();
        let mut behind = Vec::with_capacity(1 + others.len());
        for stream in [self].into_iter().chain(others.iter().copied()) {
            stream.last.take();
            // There is none if the capture could not begin: then everything is as it was before.
            if let Some(recording) = stream.recording.borrow_mut().take() {
                behind.push(stream.followed.take());
                keep.extend(recording);
                advance.append(&mut stream.recorded.borrow_mut());
                // The recording names the state of this stream, on whichever stream it is replayed.
                keep.push(stream.shared.clone());
                stream.followed.set(stream.aside.take());
            }
            stream.shared.set_capturing(false);
        }
        match graph {
            Ok(graph) if joined.is_err() => {
                // SAFETY: the graph was just made, and is nobody else's.
                let _ = unsafe { gpu.driver.graph_destroy(graph) };
                Err(joined.expect_err("it is an error"))
            }
            // SAFETY: the graph was just made, and is nobody else's.
            Ok(graph) => unsafe {
                let recorded = Recorded {
                    shape,
                    advance,
                    dealing: self.dealing.get(),
                    behind,
                    keep,
                };
                GpuGraph::new(gpu, graph, recorded, self.shared.raw)
            },
            Err(error) if error.kind == ErrorKind::Capture => {
                Err(DeviceError::Capturing("the capture was broken"))
            }
            Err(error) => Err(error).doing("ending a capture"),
        }
    }

    fn capturing(&self) -> bool {
        self.shared.is_capturing()
    }

    fn enqueued(&self) -> Result<(), DeviceError> {
        self.other_follows();
        self.began.borrow_mut().enqueued();
        self.shared.count();
        self.submitted()
    }

    fn prepare_replay(&self, others: &[&Self], graph: &Arc<GpuGraph>) -> Result<(), DeviceError> {
        for stream in others.iter().copied().chain([self]) {
            stream.not_capturing("a replay")?;
        }
        let gpu = &self.shared.gpu;
        gpu.enter()?;
        for stream in others.iter().copied().chain([self]) {
            if !stream.followed.is_empty() {
                stream.look()?;
            }
        }
        if graph.dealing != gpu.dealing.load(Ordering::Acquire) {
            return Err(DeviceError::Exhausted {
                what: "blocks that may wait on the device",
                detail: "other processes have come to the device since this was recorded, and its blocks would be too many now: record it again".into(),
            });
        }
        Ok(())
    }

    unsafe fn replay(
        &self,
        others: &[&Self],
        graph: &Arc<GpuGraph>,
        times: u64,
    ) -> Result<(), DeviceError> {
        if times == 0 {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        self.during(Call::Replay, || unsafe {
            self.submit_replay(others, graph, times)
        })
    }
}

impl GpuStream {
    /// # Safety
    ///
    /// As [`Stream::replay`].
    unsafe fn submit_replay(
        &self,
        others: &[&Self],
        graph: &Arc<GpuGraph>,
        times: u64,
    ) -> Result<(), DeviceError> {
        self.prepare_replay(others, graph)?;
        let shared = &self.shared;
        // The recorded batches look at the streams that were followed at the time of recording, not at those that were
        // followed since.
        for stream in others.iter().copied().chain([self]) {
            stream.look_while(|followed| !followed.is_empty())?;
        }
        self.other_follows();
        // The graph is launched on one stream, so the other streams let it go first and wait for it. (This is only an
        // order: the failure of one stream is not passed to another.)
        for other in others {
            other.other_follows();
            other.let_follow(self)?;
        }
        // As for a batch: if the launch fails, a part may have been launched, and counts too.
        self.hold(graph.clone(), shared.submitted() + 1);
        // SAFETY: the caller's promise; the graph is held until the stream has passed it.
        let (taken, launched) = unsafe { graph.launch(shared.raw, times) };
        shared.count();
        let mut all = launched
            .map_err(|error| shared.note(error))
            .doing("replaying a graph");
        let streams = || [self].into_iter().chain(others.iter().copied());
        let mut unordered = false;
        if taken > 0 {
            if shared.gpu.gated() {
                shared.gpu.operands().advance(&graph.advance, taken);
            }
            // All of them come after what was launched, even if a part was refused.
            for other in others {
                let follows = self.let_follow(other);
                unordered |= follows.is_err();
                all = all.and(follows);
                other.shared.count();
            }
            for (stream, behind) in streams().zip(&graph.behind) {
                stream.followed.add(&stream.shared, behind);
            }
        }
        // Each stream owns a part of the graph.
        refused_or_broken_off(taken > 0, all, |error| {
            streams().for_each(|stream| stream.shared.break_off("a replay", error));
            if unordered {
                // A stream that does not come after the graph would free memory that is still in use.
                let _ = shared.synchronize();
            }
        })?;
        self.submitted()
    }
}

impl Drop for GpuStream {
    fn drop(&mut self) {
        if !self.shared.gpu.process.is_this() {
            // The device works for the parent process.
            return std::mem::forget((self.held.take(), self.shared.clone()));
        }
        if std::thread::panicking() {
            self.shared.abort();
        }
        if self.capturing() {
            drop(self.end_capture(&[]));
        }
        // Waits until the remaining work has been executed.
        if (self.during(Call::Drop, || self.shared.synchronize())).is_ok() {
            self.held.borrow_mut().clear();
            self.shared.gpu.sweep_recordings();
            self.shared.gpu.sweep_registers();
            self.shared.gpu.sweep_memory();
        } else {
            // The driver did not say that the stream is over, so these things may still be in use.
            std::mem::forget(self.held.take());
            self.shared.abandon();
        }
    }
}
