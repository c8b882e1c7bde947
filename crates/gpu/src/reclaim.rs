//! The part of a stream that outlives the stream's owner.
//!
//! # Model
//!
//! Items are counted when they are submitted. The driver is asked how far the stream has come only when this is needed:
//! an *event* is recorded where something was retired, and an idle stream has passed everything. The device counts
//! nothing, so a count that nobody needs costs nothing.
//!
//! The teams of the batch kernel report failures, and waits that take long, in the *mirror*. It lies in pinned memory,
//! so reading it costs one load.
//!
//! # After a failure
//!
//! The host has two tasks then. It opens the [gates](crate::gates) that the failed stream has still to pass. And it
//! waits for [couriers](crate::courier). While a stream has not failed, a batch is over when its couriers are back.
//! After a failure a courier may still be on its way when the batch is over. So retired memory is given back only when
//! this is settled, which it is once the stream has been drained.

use std::any::Any;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::Waker;
use std::time::Instant;

use tidegate_hal::device::{
    Blocked, Call, Calls, DeviceError, Fault, Reclaim, Reports, Stand, Work,
};
use tidegate_hal::memory::Block as _;
use tidegate_hal::tell;

use crate::attendant::{self, Attended};
use crate::block::GpuBlock;
use crate::courier::Couriers;
use crate::driver::{self, Doing, DriverError, ErrorKind, Event, Keep, Stream};
use crate::gates::Gates;
use crate::gpu::{Gpu, lock};
use crate::kernels::Kernels;
use crate::lower::{MAX_BLOCKED, Mirror, State};
use crate::owners::Shape;
use crate::position::Position;
use crate::quota::Quota;
use crate::reports::{self, Crowded, Mirrored};
use crate::share::Admitable;
use crate::stamps::Ring;

mod at_gates;

/// The part of a stream that is shared with everything that belongs to it.
pub struct StreamState {
    me: Weak<StreamState>,
    pub(crate) gpu: Arc<Gpu>,
    pub(crate) raw: Stream,
    /// The owner of the stream, if the stream was not made here.
    owner: Option<Keep>,
    /// `None` only in the drop, which may have to leave the block behind.
    state: Option<GpuBlock>,
    /// If the stream is stamped. Its kernels write to it, also in recordings, which hold this state.
    pub(crate) ring: Option<Arc<Ring>>,
    mirror: Mirrored,
    submitted: AtomicU64,
    capturing: AtomicBool,
    /// Held while the driver is asked for something, which may wait until the stream has room.
    later: Mutex<Later>,
    position: Arc<Position>,
    blocked: Mutex<Option<Blocked>>,
    pub(crate) crowded: Crowded,
    gates: Mutex<Gates>,
    /// The couriers for large puts. They are made when they are first needed; `None` if there can be none.
    couriers: OnceLock<Option<Couriers>>,
    quota: Quota,
    /// The blocks of the widest batch that was launched or recorded.
    widest: AtomicUsize,
    /// The driver did not say that the stream was over when its owner was dropped. So everything that the stream may
    /// use is kept.
    abandoned: AtomicBool,
    /// An error that destroyed the context.
    lost: OnceLock<String>,
    /// Why a part of a batch or replay could not be submitted, after other parts were.
    broken_off: OnceLock<String>,
    /// The driver's calls that the program is in. The driver blocks them while it has no room.
    calls: Calls,
}

#[derive(Default)]
struct Later {
    /// Retired things, each with the number of the item after which it was retired.
    garbage: Vec<(u64, Box<dyn Any + Send>)>,
    /// Events in order, each with the number of the item after which it was recorded.
    events: VecDeque<(u64, Event)>,
}

impl StreamState {
    /// # Safety
    ///
    /// The stream is live and of the GPU's context. It was made for this call, or lives as long as its `owner`.
    pub(crate) unsafe fn new(
        gpu: &Arc<Gpu>,
        raw: Stream,
        owner: Option<Keep>,
        stamped: bool,
    ) -> Result<Arc<Self>, DeviceError> {
        let sharing = tidegate_hal::memory::Sharing::Private;
        let state = GpuBlock::alloc(gpu, size_of::<State>(), sharing);
        let parts = state.and_then(|state| {
            let ring = || Ring::new(gpu, state.base().0.addr() as u64);
            let ring = stamped.then(ring).transpose()?;
            Ok((state, gpu.take_mirror()?, ring))
        });
        // From here on it is destroyed together with the parts that are made for it.
        let (state, mirror, ring) = parts.inspect_err(|_| {
            if owner.is_none() {
                // SAFETY: it was made for this, and nobody else has it.
                let _ = unsafe { gpu.driver.stream_destroy(raw) };
            }
        })?;
        let shared = Arc::new_cyclic(|me| StreamState {
            me: me.clone(),
            gpu: gpu.clone(),
            raw,
            owner,
            state: Some(state),
            ring,
            // SAFETY: the GPU has lent it to this stream alone, until the drop returns it.
            mirror: unsafe { Mirrored::new(mirror) },
            submitted: AtomicU64::new(0),
            capturing: AtomicBool::new(false),
            later: Mutex::default(),
            position: Arc::default(),
            blocked: Mutex::default(),
            crowded: Crowded::default(),
            gates: Mutex::default(),
            couriers: OnceLock::new(),
            quota: Quota::default(),
            widest: AtomicUsize::new(0),
            abandoned: AtomicBool::new(false),
            lost: OnceLock::new(),
            broken_off: OnceLock::new(),
            calls: Calls::default(),
        });
        gpu.admit(&shared)?;
        Ok(shared)
    }

    /// Where kernels of the program see that the stream has failed, and say so: `kernels/tidegate_own.cuh` has the
    /// layout of both.
    pub(crate) fn reports(&self) -> Reports {
        const {
            assert!(std::mem::offset_of!(State, stop) == 0);
            assert!(std::mem::offset_of!(State, fault) == 8);
            assert!(std::mem::offset_of!(Mirror, fault) == 8);
            assert!(std::mem::offset_of!(Mirror, blocked) == 32);
            assert!(MAX_BLOCKED == 64);
        }
        let state = self.state.as_ref().expect("it stands until the drop");
        Reports {
            stop: state.base(),
            mirror: self.mirror.base(),
        }
    }

    pub(crate) fn state_address(&self) -> u64 {
        let state = self.state.as_ref().expect("it stands until the drop");
        state.base().0.addr() as u64
    }

    /// The batch kernel for this stream.
    pub(crate) fn kernels(&self) -> &Kernels {
        match &self.ring {
            None => &self.gpu.kernels,
            Some(ring) => &ring.loaded.kernels,
        }
    }

    pub(crate) fn mirror_address(&self) -> u64 {
        // Pinned memory has one address, on the host and on devices.
        self.mirror.base().0.addr() as u64
    }

    /// The blocks of the widest batch that was launched or recorded.
    pub(crate) fn widest(&self) -> usize {
        self.widest.load(Ordering::Relaxed)
    }

    /// Notes the blocks of a batch. Only the stream's thread does.
    pub(crate) fn widens_to(&self, blocks: usize) {
        if blocks > self.widest() {
            self.widest.store(blocks, Ordering::Relaxed);
        }
    }

    /// The quota of blocks.
    pub(crate) fn quota(&self) -> Result<usize, DeviceError> {
        self.quota.get(&self.gpu, self.number())
    }

    /// Makes sure that there is room for all blocks of a kernel that waits.
    pub(crate) fn own(&self, shape: Shape) -> Result<(), DeviceError> {
        let quota = self.quota()?;
        self.gpu.own(self.number(), shape, quota)
    }

    /// Tells the stream from others.
    fn number(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// The quota that the stream has, or would get now.
    pub(crate) fn likely_quota(&self) -> usize {
        self.quota.likely(&self.gpu)
    }

    /// The couriers, if they can be given errands. They are made at the first call.
    pub(crate) fn couriers(&self) -> Option<&Couriers> {
        let couriers = self.couriers.get_or_init(|| Couriers::new(&self.gpu));
        couriers.as_ref().filter(|couriers| couriers.ready())
    }

    /// Whether no courier can still be on its way for items that the stream has passed. With `wait`, it waits for
    /// couriers if it knows that they will come back.
    fn settled(&self, wait: bool) -> bool {
        let Some(Some(couriers)) = self.couriers.get() else {
            return true;
        };
        let lost = self.lost.get().is_some();
        let failed = lost || self.mirror.fault().is_some();
        // As long as nothing has failed, the stream's own order guarantees it.
        !failed || (self.position.passed() >= self.submitted() && couriers.end(wait, lost))
    }

    pub(crate) fn submitted(&self) -> u64 {
        self.submitted.load(Ordering::Acquire)
    }

    /// Counts a submitted item, and returns its number.
    pub(crate) fn count(&self) -> u64 {
        self.submitted.fetch_add(1, Ordering::AcqRel) + 1
    }

    pub(crate) fn set_capturing(&self, capturing: bool) {
        // This is under the lock, so that no event is recorded meanwhile.
        let later = lock(&self.later);
        self.capturing.store(capturing, Ordering::Release);
        let waiting = !capturing && !later.garbage.is_empty();
        drop(later);
        if waiting {
            self.retire(Box::new(()));
        }
    }

    /// Notes an error that destroyed the context.
    pub(crate) fn note(&self, error: DriverError) -> DriverError {
        if error.kind == ErrorKind::ContextLost {
            let _ = self.lost.set(error.to_string());
        }
        error
    }

    /// Fails the stream, because a part of something was refused after other parts were submitted.
    pub(crate) fn break_off(&self, what: &str, error: &DeviceError) {
        let text = format!("{what} was submitted in part only: {error}");
        let _ = self.broken_off.set(text);
        self.abort();
    }

    /// Notes that the owner is dropped, and that the driver does not say that the stream is over.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    /// What the driver says, or that something is over because the context is lost.
    fn or_lost(&self, is_over: driver::Result<bool>) -> bool {
        is_over
            .map_err(|error| self.note(error))
            .unwrap_or_else(|_| self.lost.get().is_some())
    }

    /// Asks the driver how far the stream has come.
    fn look(&self) -> u64 {
        if self.position.passed() < self.submitted() {
            self.ask();
            self.collect();
        }
        self.position.passed()
    }

    /// Gives back what the stream has passed, and wakes the futures that wait for it.
    fn collect(&self) {
        let mut done = Vec::new();
        let mut due: Vec<Box<dyn Any + Send>> = Vec::new();
        {
            let mut later = lock(&self.later);
            let mut passed = self.position.passed();
            while let Some((mark, event)) = later.events.front().copied() {
                // SAFETY: events are destroyed only below.
                let over =
                    mark <= passed || self.or_lost(unsafe { self.gpu.driver.event_query(event) });
                if !over {
                    break;
                }
                passed = passed.max(mark);
                later.events.pop_front();
                done.push(event);
            }
            self.position.pass(passed);
            let settled = self.settled(false);
            let mut index = 0;
            while index < later.garbage.len() {
                if later.garbage[index].0 <= passed && settled {
                    due.push(later.garbage.swap_remove(index).1);
                } else {
                    index += 1;
                }
            }
        }
        for event in done {
            // SAFETY: the event was taken out of the list, and is not used any more.
            let _ = unsafe { self.gpu.driver.event_destroy(event) };
        }
        // This is outside of the lock: dropping and waking may run foreign code, which may panic.
        due.into_iter().for_each(|each| tell(|| drop(each)));
        self.position.wake();
    }

    /// The driver calls this when the stream has come to a point that a future waits for.
    unsafe extern "C" fn reached(data: *mut c_void) {
        // SAFETY: `data` is the box that `wake_at` gave away, and the driver calls this once.
        let (position, mark) = *unsafe { Box::from_raw(data.cast::<(Arc<Position>, u64)>()) };
        attendant::pass(position, mark);
    }
}

impl Attended for StreamState {
    fn ask(&self) -> bool {
        let submitted = self.submitted();
        if self.position.passed() >= submitted {
            return false;
        }
        let is_over = {
            let _later = lock(&self.later);
            if self.is_capturing() {
                return true;
            }
            let driver = self.gpu.driver;
            // SAFETY: the stream is live, and is not captured, which changes only under the lock.
            let asked = driver
                .enter()
                .and_then(|()| unsafe { driver.stream_query(self.raw) });
            self.or_lost(asked)
        };
        if is_over {
            self.position.pass(submitted);
        }
        !is_over
    }
}

impl Admitable for StreamState {
    fn is_idle(&self) -> bool {
        self.look() >= self.submitted() && self.settled(false)
    }

    fn is_capturing(&self) -> bool {
        self.capturing.load(Ordering::Acquire)
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        let mark = self.submitted();
        let driver = self.gpu.driver;
        // SAFETY: the stream is live as long as this.
        let synchronize = || unsafe { driver.stream_synchronize(self.raw) };
        // HIP refuses to enter a context that is lost.
        if let Err(error) = driver.enter().and_then(|()| synchronize()) {
            let error = self.note(error);
            // After an error that destroys the context nothing runs any more, so everything counts as passed.
            if self.lost.get().is_none() {
                return Err(error).doing("synchronising a stream");
            }
        }
        self.position.pass(mark);
        self.settled(true);
        self.collect();
        Ok(())
    }
}

impl Reclaim for StreamState {
    fn retire(&self, garbage: Box<dyn Any + Send>) {
        if !self.gpu.process.is_this() {
            return std::mem::forget(garbage);
        }
        let mark = self.submitted();
        if self.position.passed() >= mark && self.settled(false) {
            return;
        }
        if self.gpu.enter().is_err() {
            // The context is gone, and the memory's contents with it. But whether to free the memory is not decided
            // here.
            std::mem::forget(garbage);
            return;
        }
        {
            let mut later = lock(&self.later);
            later.garbage.push((mark, garbage));
            let marked = later.events.back().is_some_and(|(at, _)| *at >= mark);
            if !marked && !self.is_capturing() {
                let driver = self.gpu.driver;
                let record = || {
                    let event = driver.event_create(false)?;
                    // SAFETY: both are live and of one context; the stream is not captured, which changes only under
                    // the lock.
                    unsafe { driver.event_record(event, self.raw) }.map(|()| event)
                };
                let event = self.calls.during(Call::Release, record);
                // Without an event, the memory is given back when the stream is found idle.
                if let Ok(event) = event {
                    later.events.push_back((mark, event));
                }
            }
        }
        self.collect();
    }

    fn fault(&self) -> Option<Fault> {
        reports::fault(self.lost.get(), self.broken_off.get(), self.mirror.fault())
    }

    fn abort(&self) {
        if !self.gpu.process.is_this() {
            return;
        }
        // SAFETY: the state lives as long as this.
        unsafe { self.gpu.stop(self.state_address()) };
        lock(&self.gates).end();
        self.open_gates();
    }

    fn blocked(&self) -> Option<Blocked> {
        let mut on = self.mirror.blocked();
        let mut more = self.crowded.at(self.position.passed());
        if self.gpu.gated() {
            if self.mirror.fault().is_some() {
                self.open_gates();
            } else if on.is_empty() {
                (on, more) = self.blocked_at_gate();
            }
        }
        let mut blocked = lock(&self.blocked);
        // The device does not say since when it waits, but the watch looks often enough.
        *blocked = reports::blocked(blocked.take(), on, more, Instant::now());
        blocked.clone()
    }

    fn stand(&self) -> Stand {
        // This uses the last known position, and does not ask the driver. While a launch of any stream waits for room,
        // the driver may keep other calls waiting; but this caller enforces the limits that end such waits. (At a gate,
        // a word is read: on a stream where nothing waits, and without any lock that a launch needs.)
        let passed = self.position.passed();
        let is_through = passed >= self.submitted();
        // This comes after reading the position. A stream that is at no visible wait, and had not passed everything, is
        // working or has just come to a wait. (A wait may be visible before its batch counts as submitted. Recorded
        // items count as submitted, too, and are not passed; but work in front of the recording may still run.)
        match self.blocked() {
            Some(blocked) => Stand::Waits(blocked),
            None if is_through => Stand::Through,
            None => Stand::Works(Work::Something),
        }
    }

    fn calls(&self) -> &Calls {
        &self.calls
    }

    fn progress(&self) -> u64 {
        // This is the last known position, as in `stand`.
        self.position.passed()
    }

    fn passed(&self) -> u64 {
        self.look()
    }

    fn wake_at(&self, mark: u64, future: u64, waker: &Waker) -> bool {
        // In a forked child no stream is awaited. The caller gets the error when it goes on.
        if !self.gpu.process.is_this() {
            return true;
        }
        if self.look() >= mark {
            return true;
        }
        // If the future already had a waker in the list, the driver has been asked, and has not come to the point yet.
        if self.position.replace(mark, future, waker) {
            return false;
        }
        attendant::attend(self.me.clone(), &self.position);
        let data = Box::into_raw(Box::new((self.position.clone(), self.submitted())));
        // SAFETY: the stream is live; the function takes the box that it is given, and is called once.
        let asked = unsafe {
            self.gpu
                .driver
                .stream_call(self.raw, Self::reached, data.cast())
        };
        if let Err(error) = asked {
            self.note(error);
            // SAFETY: the driver did not take the box.
            drop(unsafe { Box::from_raw(data) });
            // It is better to wake the future too early, so that it asks again, than never.
            return self.lost.get().is_some() || self.synchronize().is_err() || self.look() >= mark;
        }
        false
    }

    fn forget_waker(&self, future: u64) {
        // In a child, the lock may be held by a thread that does not exist there.
        if self.gpu.process.is_this() {
            self.position.forget(future);
        }
    }
}

impl Drop for StreamState {
    fn drop(&mut self) {
        if !self.gpu.process.is_this() {
            std::mem::forget((self.state.take(), self.owner.take(), self.couriers.take()));
            return;
        }
        if self.abandoned.load(Ordering::Relaxed) {
            // The driver does not say that kernels and couriers of the stream are over, and they use these blocks.
            std::mem::forget(std::mem::take(&mut lock(&self.later).garbage));
            std::mem::forget((self.state.take(), self.owner.take(), self.couriers.take()));
            std::mem::forget(self.ring.take());
            return;
        }
        self.quota.give_back(&self.gpu);
        self.gpu.disown(self.number());
        if self.gpu.enter().is_err() {
            return;
        }
        // The owner has waited until everything was passed, and nobody can have submitted more.
        self.position.pass(self.submitted());
        if self.settled(true) {
            self.collect();
        } else {
            // The driver does not say that a courier is over, so it may be on its way for ever.
            std::mem::forget(std::mem::take(&mut lock(&self.later).garbage));
        }
        if self.owner.is_none() {
            // SAFETY: the stream was made for this, and nobody else uses it.
            let _ = unsafe { self.gpu.driver.stream_destroy(self.raw) };
        }
        self.gpu.return_mirror(self.mirror.raw());
    }
}
