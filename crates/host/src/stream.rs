//! Streams.

use std::cell::{Cell, RefCell, RefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use tidegate_hal::batch::Batch;
use tidegate_hal::device::{Call, DeviceError, Fault, Issues, Reclaim, Stream, StreamConfig};
use tidegate_hal::far::Bus;
use tidegate_hal::limits::WithLimit;
use tidegate_hal::site::CallSite;
use tidegate_hal::stamps::Stamps;
use tidegate_words::{Patience, ahead};

use crate::executor::{Executor, Item};
use crate::graph::{HostGraph, Link, Recorded, Steps};
use crate::job::Job;
use crate::queue::{Inlet, MOST, Outlet, queue};
use crate::reclaim::StreamState;
use crate::stamps::Ring;

/// A stream of the host device.
pub struct HostStream {
    shared: Arc<StreamState>,
    /// The stamps that wait for the reader, if the stream is stamped.
    stamps: Option<Arc<Ring>>,
    queue: Queue,
    recording: RefCell<Option<Recording>>,
    /// The number of the batch that was enqueued last, or 0.
    last: Cell<u64>,
    /// The patience of the owner's waits.
    own: Patience,
}

enum Queue {
    Thread {
        inlet: RefCell<Inlet<Item>>,
        kernels: RefCell<Inlet<Job>>,
        thread: Cell<Option<JoinHandle<()>>>,
    },
    Inline(RefCell<Executor>),
}

#[derive(Default)]
struct Recording {
    /// The number of the recording, which several streams may share.
    number: u64,
    steps: Steps,
}

/// A point in the order of a stream.
#[derive(Clone)]
pub struct HostEvent(EventKind);

#[derive(Clone)]
enum EventKind {
    Eager(Arc<StreamState>, u64),
    Recorded(Arc<Link>),
}

/// The patience of waits for peers, and of waits for other threads of this rank.
///
/// A sleep costs twice. The waker pays for a system call, and the sleeper comes back late, most of all if its processor
/// was halted meanwhile. A yield costs little while no other thread wants the processor, and lets that thread run
/// otherwise. So all waits yield for a while, and then sleep.
///
/// Spinning between yields looks more often. That helps if another processor works on what is awaited: on a peer's part
/// if each rank has a processor, on another thread's part if each rank has two.
fn patience(ranks: usize) -> (Patience, Patience) {
    let mine = std::thread::available_parallelism().map_or(1, usize::from);
    // A rank that is bound to some of the processors need not share those with all other ranks.
    let all = processors().filter(|all| *all > mine).unwrap_or(mine);
    let patience = |threads, cores| Patience {
        spins: if threads <= cores { 16 } else { 0 },
        // If ranks share processors, one turn of the others takes longer than a sleep costs.
        yields: if ranks <= all { 60 } else { 16 },
    };
    let own = if mine > 1 { all } else { mine };
    (patience(ranks, all), patience(2 * ranks, own))
}

/// The patience of waits for which nobody rings. It is greater, because each nap may be useless. Each look turns the
/// bus, which takes at least as long as a pause.
fn unrung(peers: Patience) -> Patience {
    Patience {
        yields: 4 * peers.yields,
        ..peers
    }
}

/// How many processors the machine has, also those that this process may not use.
fn processors() -> Option<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").ok()?;
    let counts = text.trim().split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first).map(|more| more + 1)
    });
    counts.sum()
}

/// Borrows the executor of an inline stream. That fails while the executor is at work: then a kernel, or something that
/// the kernel drops, has called its own stream.
fn not_inside<'a>(
    executor: &'a RefCell<Executor>,
    what: &'static str,
) -> Result<RefMut<'a, Executor>, DeviceError> {
    executor
        .try_borrow_mut()
        .map_err(|_| DeviceError::Inside(what))
}

/// Does work of an inline stream for a destructor that runs while this thread unwinds.
///
/// Arguments of a kernel ask whether their thread unwinds, to know whether their kernel has panicked. So the kernel
/// begins on a thread that does not. If there can be no such thread, the arguments take the kernel for one that has
/// panicked, and complete nothing, which fails the stream.
#[cold]
fn on_another_thread(works: impl FnOnce() + Send) {
    let mut works = Some(works);
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, || works.take().map(|w| w()));
        // The executor catches the panics of kernels.
        _ = thread.map(|thread| thread.join());
    });
    if let Some(works) = works {
        works();
    }
}

/// Executes items until the stream is dropped.
fn work(
    executor: &mut Executor,
    (items, kernels): &mut (Outlet<Item>, Outlet<Job>),
    shared: &StreamState,
    own: Patience,
) {
    loop {
        let item = (shared.work).wait(own, || items.pop(), || executor.rests());
        // Look at the next item, but do not take it. The item is in the caches of another processor, and comes over
        // while this one is executed.
        let next = items.peek();
        if let Some(next) = next {
            ahead::fetch_value(next);
            if let (Item::Kernel, Some(kernel)) = (next, kernels.peek()) {
                ahead::fetch_value(kernel);
            }
        }
        // SAFETY: items come from the `unsafe` methods below, and their callers made the promises.
        if !unsafe { executor.execute(item, || kernels.pop(), next) } {
            break;
        }
    }
}

impl HostStream {
    pub(crate) fn new(
        config: StreamConfig,
        bus: Option<Arc<dyn Bus>>,
    ) -> Result<Self, DeviceError> {
        let (mut peers, own) = patience(config.ranks_on_node);
        if bus.is_some() {
            peers = unrung(peers);
        }
        let (inline, name) = (config.inline, config.name.clone());
        let stamps = config.stamped.then(Arc::<Ring>::default);
        let shared = Arc::new(StreamState::new(config));
        let mut executor = Executor::new(shared.clone(), (peers, own), bus, stamps.clone());
        let queue = if inline {
            Queue::Inline(RefCell::new(executor))
        } else {
            let ((inlet, items), (kernels, jobs)) = (queue(), queue());
            let mut outlets = (items, jobs);
            let feed = shared.clone();
            let thread = std::thread::Builder::new()
                // A zero byte in a thread's name would be a panic.
                .name(name.as_str().replace('\0', ""))
                .spawn(move || {
                    // Threads that wait for this stream must learn of every failure, even of a panic of the executor.
                    while let Err(panic) = catch_unwind(AssertUnwindSafe(|| {
                        work(&mut executor, &mut outlets, &feed, own);
                    })) {
                        executor.recover(panic);
                    }
                    if !feed.process.is_this() {
                        // The program has forked on this thread, and this is the child, whose one thread ends.
                        std::mem::forget((executor, outlets));
                    }
                })
                .map_err(|e| DeviceError::Exhausted {
                    what: "threads",
                    detail: WithLimit(&e).to_string(),
                })?;
            Queue::Thread {
                inlet: RefCell::new(inlet),
                kernels: RefCell::new(kernels),
                thread: Cell::new(Some(thread)),
            }
        };
        Ok(HostStream {
            shared,
            stamps,
            queue,
            recording: RefCell::new(None),
            last: Cell::new(0),
            own,
        })
    }

    /// Checks that the queue has room for `items` items.
    ///
    /// # Errors
    ///
    /// [`DeviceError::QueueFull`].
    #[inline]
    fn has_room(&self, items: usize) -> Result<(), DeviceError> {
        let Queue::Thread { inlet, .. } = &self.queue else {
            return Ok(());
        };
        let waiting = || self.mark() - self.shared.passed();
        match inlet.borrow_mut().has_room(items, waiting) {
            true => Ok(()),
            false => Err(self.full()),
        }
    }

    #[cold]
    fn full(&self) -> DeviceError {
        DeviceError::QueueFull {
            stream: self.shared.config.name.as_str().to_owned(),
            most: MOST,
        }
    }

    /// Enqueues an item, and its kernel if it is one.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Inside`], [`DeviceError::QueueFull`], [`DeviceError::Forked`]. Then nothing was counted.
    ///
    /// # Safety
    ///
    /// The item meets the conditions of the method of the hal that submits it.
    #[inline]
    unsafe fn push(&self, item: Item, kernel: Option<Job>) -> Result<(), DeviceError> {
        self.shared.process.check()?;
        // Count the item before it is executed, because an inline executor may retire things meanwhile.
        let shared = &*self.shared;
        let count = || {
            // Only the owner writes the count, or a thread for which it waits, so this reads the latest value. Release:
            // a thread that retires something acquires this count, and so comes after all that the owner did before.
            let submitted = shared.submitted.load(Ordering::Relaxed) + 1;
            shared.submitted.store(submitted, Ordering::Release);
        };
        match &self.queue {
            Queue::Inline(executor) => {
                let executor = &mut *not_inside(executor, "work")?;
                let call = item.call();
                let works = || {
                    count();
                    if let Item::Batch(_, site) | Item::Again(site) = &item {
                        shared.calls().called_at(site);
                    }
                    // SAFETY: the caller's promise.
                    let execute =
                        AssertUnwindSafe(|| unsafe { executor.execute(item, || kernel, None) });
                    let executed = shared.calls().during(call, || catch_unwind(execute));
                    if let Err(panic) = executed {
                        executor.recover(panic);
                    }
                };
                match std::thread::panicking() {
                    false => works(),
                    true => on_another_thread(works),
                }
                // The kernel may have forked, and this may be the child.
                self.shared.process.check()?;
            }
            Queue::Thread { inlet, kernels, .. } => {
                self.has_room(1)?;
                if let Some(kernel) = kernel {
                    let kernels = &mut *kernels.borrow_mut();
                    // No more of them wait than items do.
                    if !kernels.has_room(1, || self.mark() - self.shared.passed()) {
                        return Err(self.full());
                    }
                    kernels.push(kernel);
                }
                count();
                inlet.borrow_mut().push(item);
                self.shared.work.ring();
            }
        }
        Ok(())
    }

    /// Notes an item, if the stream is recording.
    fn records(&self, item: impl FnOnce() -> Recorded) -> bool {
        match &mut *self.recording.borrow_mut() {
            Some(recording) => {
                recording.steps.items.push(item());
                true
            }
            None => false,
        }
    }

    pub(crate) unsafe fn launch<N, K>(&self, kernel: K) -> Result<(), DeviceError>
    where
        N: 'static,
        K: Fn(&dyn Issues) + Send + 'static,
    {
        let mut job = Some(Job::new::<N, K>(kernel));
        if self.records(|| Recorded::Kernel(job.take().expect("it is taken once"))) {
            return Ok(());
        }
        // SAFETY: the caller's promise (`ClosureDevice::launch`).
        unsafe { self.push(Item::Kernel, job) }
    }

    fn is_inline(&self) -> bool {
        matches!(self.queue, Queue::Inline(_))
    }

    /// A call from within the work of an inline stream would come before that work is over.
    fn not_inside(&self, what: &'static str) -> Result<(), DeviceError> {
        match &self.queue {
            Queue::Inline(executor) => not_inside(executor, what).map(drop),
            Queue::Thread { .. } => Ok(()),
        }
    }

    fn not_capturing(&self, what: &'static str) -> Result<(), DeviceError> {
        if self.capturing() {
            Err(DeviceError::Capturing(what))
        } else {
            Ok(())
        }
    }
}

// SAFETY: one thread executes the items in order, and the engine runs the batches. The moves of a thread precede its
// adds, and loads that satisfy a wait acquire.
unsafe impl Stream for HostStream {
    type Reclaim = StreamState;
    type Graph = HostGraph;
    type Event = HostEvent;

    fn reclaim(&self) -> &Arc<StreamState> {
        &self.shared
    }

    fn prepare(&self, _batch: &Arc<Batch>, items: usize) -> Result<(), DeviceError> {
        self.not_inside("a batch")?;
        match self.capturing() {
            // Nothing is queued.
            true => Ok(()),
            false => self.has_room(items),
        }
    }

    unsafe fn submit(&self, batch: &Arc<Batch>, site: CallSite) -> Result<(), DeviceError> {
        if self.records(|| Recorded::Batch(batch.clone(), site)) {
            return Ok(());
        }
        let number = batch.id();
        let item = match self.last.get() == number {
            true => Item::Again(site),
            false => Item::Batch(batch.clone(), site),
        };
        // SAFETY: the caller's promise.
        unsafe { self.push(item, None) }?;
        self.last.set(number);
        Ok(())
    }

    fn stamps(&self) -> Option<Arc<dyn Stamps>> {
        (self.stamps.clone()).map(|ring| -> Arc<dyn Stamps> { ring })
    }

    fn mark(&self) -> u64 {
        self.shared.submitted.load(Ordering::Relaxed)
    }

    fn synchronize(&self) -> Result<Result<(), Fault>, DeviceError> {
        self.not_capturing("synchronisation")?;
        self.not_inside("synchronisation")?;
        let shared = &self.shared;
        shared.process.check()?;
        let wait = || shared.wait_until_passed(self.mark(), self.own);
        shared.calls().during(Call::Synchronize, wait);
        Ok(shared.fault().map_or(Ok(()), Err))
    }

    fn record(&self) -> Result<HostEvent, DeviceError> {
        if let Some(recording) = &mut *self.recording.borrow_mut() {
            let link = Arc::new(Link::of(recording.number));
            recording.steps.items.push(Recorded::Signal(link.clone()));
            return Ok(HostEvent(EventKind::Recorded(link)));
        }
        Ok(HostEvent(EventKind::Eager(
            self.shared.clone(),
            self.mark(),
        )))
    }

    fn wait_event(&self, event: &HostEvent) -> Result<(), DeviceError> {
        match &event.0 {
            EventKind::Eager(other, mark) => {
                self.not_capturing("waiting for an event from outside of the recording")?;
                // An event that has been passed needs no wait. But its stream's failure must still be passed on.
                let done = other.passed() >= *mark && !other.failed_by(*mark);
                if !Arc::ptr_eq(other, &self.shared) && !done {
                    // SAFETY: waiting for another stream's count touches nothing but that count.
                    unsafe { self.push(Item::Await(other.clone(), *mark), None) }?;
                }
            }
            EventKind::Recorded(link) => match &mut *self.recording.borrow_mut() {
                // A replay of one recording would wait for a replay of the other, which may never happen.
                Some(recording) if recording.number == link.recording => {
                    recording.steps.items.push(Recorded::Await(link.clone(), 0));
                }
                _ => return Err(DeviceError::Capturing("the event belongs to a recording")),
            },
        }
        Ok(())
    }

    fn begin_capture(&self, others: &[&Self]) -> Result<(), DeviceError> {
        let streams = || others.iter().copied().chain([self]);
        for stream in streams() {
            stream.not_capturing("another capture")?;
        }
        // Each inline stream would have to do its whole part of a replay before the other could begin.
        if streams().filter(|stream| stream.is_inline()).count() > 1 {
            return Err(DeviceError::Capturing(
                "two inline streams in one recording",
            ));
        }
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        for stream in streams() {
            *stream.recording.borrow_mut() = Some(Recording {
                number,
                ..Recording::default()
            });
        }
        Ok(())
    }

    fn end_capture(&self, others: &[&Self]) -> Result<HostGraph, DeviceError> {
        let mut lists = Vec::with_capacity(1 + others.len());
        for stream in [self].into_iter().chain(others.iter().copied()) {
            let Some(recording) = stream.recording.borrow_mut().take() else {
                return Err(DeviceError::Capturing("nothing is being captured"));
            };
            lists.push(Arc::new(std::sync::Mutex::new(recording.steps)));
        }
        Ok(HostGraph { lists })
    }

    fn enqueued(&self) -> Result<(), DeviceError> {
        // No library can enqueue anything here by other means.
        Ok(())
    }

    fn capturing(&self) -> bool {
        self.recording.borrow().is_some()
    }

    fn prepare_replay(&self, others: &[&Self], _graph: &Arc<HostGraph>) -> Result<(), DeviceError> {
        let mut streams = others.iter().copied().chain([self]);
        streams.try_for_each(|stream| {
            stream.not_capturing("a replay")?;
            stream.not_inside("a replay")?;
            stream.has_room(1)
        })
    }

    unsafe fn replay(
        &self,
        others: &[&Self],
        graph: &Arc<HostGraph>,
        times: u64,
    ) -> Result<(), DeviceError> {
        self.prepare_replay(others, graph)?;
        // The inline stream comes last, because it blocks in its own list until the others have done theirs.
        for last in [false, true] {
            for (stream, list) in [self]
                .into_iter()
                .chain(others.iter().copied())
                .zip(&graph.lists)
            {
                if stream.is_inline() == last {
                    // SAFETY: the caller's promise.
                    unsafe { stream.push(Item::Replay(list.clone(), times), None) }?;
                }
            }
        }
        Ok(())
    }
}

impl Drop for HostStream {
    fn drop(&mut self) {
        let Queue::Thread { inlet, thread, .. } = &self.queue else {
            return;
        };
        let Some(thread) = thread.take() else { return };
        if !self.shared.process.is_this() {
            // The thread and the items in the queue belong to the parent.
            return std::mem::forget(thread);
        }
        if std::thread::panicking() {
            self.shared.abort();
        }
        let submitted = self.mark() + 1;
        self.shared.submitted.store(submitted, Ordering::Release);
        inlet.borrow_mut().push_last(Item::Stop);
        self.shared.work.ring();
        // The executor catches the panics of kernels, so its thread ends by `Item::Stop`.
        let _ = (self.shared.calls()).during(Call::Drop, || thread.join());
    }
}
