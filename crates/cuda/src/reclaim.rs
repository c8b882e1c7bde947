//! The part of a stream that outlives its owner.
//!
//! # Model
//!
//! Items are counted when they are submitted. How far the stream has come is asked of the driver when somebody wants to
//! know: an *event* is recorded where something was retired, and an idle stream has passed everything. Nothing is
//! counted on the device, so nothing is paid for what nobody asks.
//!
//! What a team of the batch kernel says of a failure, and of waits that take long, lies in the *mirror*, in pinned
//! memory; looking there costs a load.
//!
//! # After a failure
//!
//! Two things are left to the host. [Gates](crate::gates) that a failed stream has still to pass are opened. And the
//! stream's order says nothing of [couriers](crate::courier) any more: while it is in good order, a batch is over when
//! its couriers are back; after a failure one may still be on its way. So what was retired is given back only when that
//! is settled, which it is once the stream has been drained.

use std::any::Any;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::Waker;
use std::time::Instant;

use tidegate_ffi::cuda::{CudaError, Event, EventFlags, Stream};
use tidegate_hal::batch::Tag;
use tidegate_hal::device::{Blocked, Call, Calls, DeviceError, Fault, Reclaim, Stand, Work};
use tidegate_hal::memory::Block as _;
use tidegate_hal::tell;

use crate::block::CudaBlock;
use crate::courier::Couriers;
use crate::error::Doing;
use crate::gates::{Bar, Bars, Gates};
use crate::gpu::{Gpu, lock};
use crate::lower::{MAX_BLOCKED, Mirror, RawFault, State};
use crate::reports::{self, Crowded};
use crate::stream::Keep;

/// Streams' parts that the driver's own thread must not drop; whoever waits or makes a stream next does.
static LEFT: Mutex<Vec<Arc<Shared>>> = Mutex::new(Vec::new());

fn drop_left() {
    // Outside of the lock.
    let left = std::mem::take(&mut *lock(&LEFT));
    drop(left);
}

/// What a stream shares with those who hold things of it.
pub struct Shared {
    me: Weak<Shared>,
    pub(crate) gpu: Arc<Gpu>,
    pub(crate) raw: Stream,
    /// What owns the stream, if it was not made here.
    owner: Option<Keep>,
    /// Until the drop, which may have to leave it.
    state: Option<CudaBlock>,
    mirror: NonNull<Mirror>,
    submitted: AtomicU64,
    passed: AtomicU64,
    capturing: AtomicBool,
    /// Held while the driver is asked for something, which may wait for room on the stream.
    later: Mutex<Later>,
    /// Never held while the driver is called: the driver's own thread takes it, and may be what gives it room.
    /// The mark, the future, and how it is woken.
    wakers: Mutex<Vec<(u64, u64, Waker)>>,
    blocked: Mutex<Option<Blocked>>,
    pub(crate) crowded: Crowded,
    gates: Mutex<Gates>,
    /// Those of large puts, once they were needed, if there are any.
    couriers: OnceLock<Option<Couriers>>,
    /// The quota of blocks that may wait, once it was needed; 0 before.
    quota: AtomicUsize,
    /// In which dealing of the device's it was granted.
    dealing: AtomicUsize,
    /// Whether the driver did not say that the stream is over when its owner went: what it may use still is kept.
    abandoned: AtomicBool,
    /// An error that the context did not survive.
    lost: OnceLock<String>,
    /// Why a part of a batch, or of a replay, could not be submitted behind others that were.
    broken_off: OnceLock<String>,
    /// In which calls the program is: the driver blocks them where it has no room.
    calls: Calls,
}

// SAFETY: the mirror is pinned memory that this has to itself, with the kernels of its stream; fields of it are
// accessed atomically.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

#[derive(Default)]
struct Later {
    /// What was retired, and after which item.
    garbage: Vec<(u64, Box<dyn Any + Send>)>,
    /// Events that were recorded after so many items, in order.
    events: VecDeque<(u64, Event)>,
}

impl Shared {
    /// # Safety
    ///
    /// The stream is live, of the GPU's context, and made for this, or alive as long as its `owner`.
    pub(crate) unsafe fn new(
        gpu: &Arc<Gpu>,
        raw: Stream,
        owner: Option<Keep>,
    ) -> Result<Arc<Self>, DeviceError> {
        let sharing = tidegate_hal::memory::Sharing::Private;
        let state = CudaBlock::alloc(gpu, size_of::<State>(), sharing);
        let parts = state.and_then(|state| Ok((state, gpu.take_mirror()?)));
        // From here on it is destroyed with what is made of it.
        let (state, mirror) = parts.inspect_err(|_| {
            if owner.is_none() {
                // SAFETY: it was made for this, and nobody else has it.
                let _ = unsafe { gpu.driver.stream_destroy(raw) };
            }
        })?;
        let shared = Arc::new_cyclic(|me| Shared {
            me: me.clone(),
            gpu: gpu.clone(),
            raw,
            owner,
            state: Some(state),
            mirror,
            submitted: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            capturing: AtomicBool::new(false),
            later: Mutex::default(),
            wakers: Mutex::default(),
            blocked: Mutex::default(),
            crowded: Crowded::default(),
            gates: Mutex::default(),
            couriers: OnceLock::new(),
            quota: AtomicUsize::new(0),
            dealing: AtomicUsize::new(0),
            abandoned: AtomicBool::new(false),
            lost: OnceLock::new(),
            broken_off: OnceLock::new(),
            calls: Calls::default(),
        });
        drop_left();
        gpu.admit(&shared)?;
        Ok(shared)
    }

    pub(crate) fn state_address(&self) -> u64 {
        let state = self.state.as_ref().expect("it stands until the drop");
        state.base().0.addr() as u64
    }

    pub(crate) fn mirror_address(&self) -> u64 {
        // Pinned memory has one address, on the host and on devices.
        self.mirror.as_ptr().addr() as u64
    }

    /// The quota of blocks, taken at the first call; again, when other processes have come and it has become less.
    pub(crate) fn quota(&self) -> Result<usize, DeviceError> {
        let (held, dealing) = (
            self.quota.load(Ordering::Relaxed),
            self.dealing.load(Ordering::Relaxed),
        );
        if held != 0 && dealing == self.gpu.dealing.load(Ordering::Acquire) {
            return Ok(held);
        }
        // One thread at a time submits to a stream. What it had goes back, also if it gets nothing for it.
        self.quota.store(0, Ordering::Relaxed);
        let (granted, dealing) = self.gpu.grant((held, dealing))?;
        self.dealing.store(dealing, Ordering::Relaxed);
        self.quota.store(granted, Ordering::Relaxed);
        Ok(granted)
    }

    /// The quota that it has, or would be given now.
    pub(crate) fn likely_quota(&self) -> usize {
        let dealing = self.dealing.load(Ordering::Relaxed);
        match self.quota.load(Ordering::Relaxed) {
            held @ 1.. if dealing == self.gpu.dealing.load(Ordering::Acquire) => held,
            _ => self.gpu.would_grant(),
        }
    }

    /// The couriers, made at the first call, if they can be given something to do.
    pub(crate) fn couriers(&self) -> Option<&Couriers> {
        let couriers = self.couriers.get_or_init(|| Couriers::new(&self.gpu));
        couriers.as_ref().filter(|couriers| couriers.ready())
    }

    /// Whether no courier can be on its way any more with what the stream has passed. `wait`: it is waited for, if it
    /// can be said.
    fn settled(&self, wait: bool) -> bool {
        let Some(Some(couriers)) = self.couriers.get() else {
            return true;
        };
        let failed = self.lost.get().is_some() || self.raw_fault().is_some();
        // As long as nothing has failed, the stream's own order says it.
        !failed || (self.passed.load(Ordering::Acquire) >= self.submitted() && couriers.end(wait))
    }

    /// Notes a gate, and gives it its number; `None` if the stream was ended, and gets no more.
    pub(crate) fn add_gate(&self, bars: Bars) -> Option<u32> {
        let mut gates = lock(&self.gates);
        gates.come_to(self.gate());
        gates.add(bars)
    }

    /// Where the stream writes the number of the gate that it has come to.
    pub(crate) fn gate_address(&self) -> u64 {
        self.mirror_address() + std::mem::offset_of!(Mirror, gate) as u64
    }

    /// The number of the gate that the stream has come to.
    fn gate(&self) -> u32 {
        // SAFETY: only the address is taken.
        self.mirrored(unsafe { &raw mut (*self.mirror.as_ptr()).gate })
    }

    /// Looks at the bars that are still closed, of the gate that the stream has come to and of those (`all`) that it
    /// has still to come to. Whether there may be more behind the gate that it has come to.
    fn closed_bars(&self, all: bool, mut look: impl FnMut(&Bar)) -> bool {
        let (bars, more) = {
            let mut gates = lock(&self.gates);
            let number = self.gate();
            gates.come_to(number);
            let bars: Vec<_> = if all {
                gates.bars().copied().collect()
            } else {
                gates.at(number).to_vec()
            };
            (bars, gates.more_behind(number))
        };
        // The driver is asked now, and may take its time: no lock is held that others need to enqueue. (A gate that the
        // stream passes meanwhile is open by its word, which never goes back.)
        for bar in &bars {
            let Some(_held) = self.gpu.operands.hold(bar.word, bar.piece) else {
                continue;
            };
            // SAFETY: the word's memory is the same still, and is held.
            let value = unsafe { self.gpu.look_at(bar.word) };
            if value.is_some_and(|value| !bar.is_open(value)) {
                look(bar);
            }
        }
        more
    }

    /// Opens the gates that the stream has still to pass: it has failed, or is to end.
    fn open_gates(&self) {
        self.closed_bars(true, |bar| {
            // SAFETY: as for looking at it.
            unsafe { self.gpu.poison(bar.word) };
        });
    }

    /// What the stream waits for at a gate, and whether there may be more.
    fn blocked_at_gate(&self) -> (Vec<(Tag, u64)>, bool) {
        let mut on = Vec::new();
        let more = self.closed_bars(false, |bar| on.push((bar.tag, bar.epoch)));
        (on, more)
    }

    pub(crate) fn submitted(&self) -> u64 {
        self.submitted.load(Ordering::Acquire)
    }

    /// Counts an item that was submitted.
    pub(crate) fn count(&self) -> u64 {
        self.submitted.fetch_add(1, Ordering::AcqRel) + 1
    }

    pub(crate) fn is_capturing(&self) -> bool {
        self.capturing.load(Ordering::Acquire)
    }

    pub(crate) fn set_capturing(&self, capturing: bool) {
        // Under the lock, so that nobody records an event meanwhile.
        let later = lock(&self.later);
        self.capturing.store(capturing, Ordering::Release);
        let waiting = !capturing && !later.garbage.is_empty();
        drop(later);
        if waiting {
            self.retire(Box::new(()));
        }
    }

    /// Notes an error that the context does not survive.
    pub(crate) fn note(&self, error: CudaError) -> CudaError {
        if error.is_context_lost() {
            let _ = self.lost.set(error.to_string());
        }
        error
    }

    /// Fails the stream: a part of something was refused, and those before it were not.
    pub(crate) fn break_off(&self, what: &str, error: &DeviceError) {
        let text = format!("{what} was submitted in part only: {error}");
        let _ = self.broken_off.set(text);
        self.abort();
    }

    /// The owner goes, and the driver does not say that the stream is over.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    /// Whether everything submitted has been passed, and no courier is on its way.
    pub(crate) fn is_idle(&self) -> bool {
        self.look() >= self.submitted() && self.settled(false)
    }

    /// Blocks until everything submitted has been passed.
    pub(crate) fn synchronize(&self) -> Result<(), DeviceError> {
        let mark = self.submitted();
        self.gpu.enter()?;
        // SAFETY: the stream is live as long as this.
        if let Err(error) = unsafe { self.gpu.driver.stream_synchronize(self.raw) } {
            let error = self.note(error);
            // After such an error nothing runs any more: all is passed.
            if self.lost.get().is_none() {
                return Err(error).doing("synchronising a stream");
            }
        }
        self.passed.fetch_max(mark, Ordering::AcqRel);
        self.settled(true);
        self.collect();
        Ok(())
    }

    fn pass(&self, mark: u64) {
        self.passed.fetch_max(mark, Ordering::AcqRel);
        self.settled(false);
        self.collect();
    }

    /// Asks the driver how far the stream has come.
    fn look(&self) -> u64 {
        let submitted = self.submitted();
        let passed = self.passed.load(Ordering::Acquire);
        if passed >= submitted || self.gpu.enter().is_err() {
            return passed;
        }
        let later = lock(&self.later);
        if self.is_capturing() {
            return passed;
        }
        // SAFETY: the stream is live, and not captured: that changes under the lock only.
        match unsafe { self.gpu.driver.stream_query(self.raw) } {
            Ok(false) => {}
            Ok(true) => {
                drop(later);
                self.pass(submitted);
                return self.passed.load(Ordering::Acquire);
            }
            Err(error) => {
                drop(later);
                self.note(error);
                if self.lost.get().is_some() {
                    self.pass(submitted);
                }
                return self.passed.load(Ordering::Acquire);
            }
        }
        drop(later);
        self.collect();
        self.passed.load(Ordering::Acquire)
    }

    /// Gives back what the stream has passed, and wakes who waits for it.
    fn collect(&self) {
        let mut done = Vec::new();
        let mut due: Vec<Box<dyn Any + Send>> = Vec::new();
        {
            let mut later = lock(&self.later);
            let mut passed = self.passed.load(Ordering::Acquire);
            while let Some((mark, event)) = later.events.front().copied() {
                // SAFETY: events are destroyed below only.
                let over = mark <= passed
                    || unsafe { self.gpu.driver.event_query(event) }
                        .unwrap_or(self.lost.get().is_some());
                if !over {
                    break;
                }
                passed = passed.max(mark);
                later.events.pop_front();
                done.push(event);
            }
            self.passed.fetch_max(passed, Ordering::AcqRel);
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
            // SAFETY: it was taken out of the list, and is not used any more.
            let _ = unsafe { self.gpu.driver.event_destroy(event) };
        }
        // Outside of the lock: dropping and waking may run foreign code, which may panic.
        due.into_iter().for_each(|each| tell(|| drop(each)));
        self.wake_until(self.passed.load(Ordering::Acquire));
    }

    /// Wakes who waits for no more than this.
    fn wake_until(&self, passed: u64) {
        let awake: Vec<_> = lock(&self.wakers)
            .extract_if(.., |(mark, ..)| *mark <= passed)
            .collect();
        // They are the program's, and may panic: the driver's own thread must not unwind.
        awake
            .into_iter()
            .for_each(|(.., waker)| tell(|| waker.wake()));
    }

    fn mirrored(&self, field: *mut u32) -> u32 {
        // SAFETY: `field` lies in the mirror, which is live, aligned, and written by the device as a whole.
        unsafe { AtomicU32::from_ptr(field) }.load(Ordering::Acquire)
    }

    fn raw_fault(&self) -> Option<RawFault> {
        let mirror = self.mirror.as_ptr();
        // SAFETY: only the address is taken.
        if self.mirrored(unsafe { &raw mut (*mirror).failed }) == 0 {
            return None;
        }
        // SAFETY: the fault was written before `failed` was set (release), and is not written again.
        Some(unsafe { (&raw const (*mirror).fault).read_volatile() })
    }

    /// Called by the driver when the stream has come to where somebody waits for it.
    unsafe extern "C" fn reached(data: *mut c_void) {
        // SAFETY: `data` is the box that `wake_at` gave away, and the driver calls this once.
        let (shared, mark) = *unsafe { Box::from_raw(data.cast::<(Arc<Shared>, u64)>()) };
        shared.passed.fetch_max(mark, Ordering::AcqRel);
        shared.wake_until(mark);
        // Not dropped here: if it is the last, that calls the driver, which must not be called from here.
        lock(&LEFT).push(shared);
    }
}

impl Reclaim for Shared {
    fn retire(&self, garbage: Box<dyn Any + Send>) {
        if !self.gpu.process.is_this() {
            return std::mem::forget(garbage);
        }
        let mark = self.submitted();
        if self.passed.load(Ordering::Acquire) >= mark && self.settled(false) {
            return;
        }
        if self.gpu.enter().is_err() {
            // The context is gone, and what the memory was with it; but this is not ours to decide.
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
                    let event = driver.event_create(EventFlags::DISABLE_TIMING)?;
                    // SAFETY: both are live, of one context; the stream is not captured: that changes under the lock only.
                    unsafe { driver.event_record(event, self.raw) }.map(|()| event)
                };
                let event = self.calls.during(Call::Release, record);
                // Without an event it is given back when the stream is found idle.
                if let Ok(event) = event {
                    later.events.push_back((mark, event));
                }
            }
        }
        self.collect();
    }

    fn fault(&self) -> Option<Fault> {
        reports::fault(self.lost.get(), self.broken_off.get(), self.raw_fault())
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
        let mut on = Vec::new();
        for index in 0..MAX_BLOCKED {
            // SAFETY: only the address is taken.
            let entry = unsafe { &raw mut (*self.mirror.as_ptr()).blocked[index] };
            // SAFETY: as above.
            if self.mirrored(unsafe { &raw mut (*entry).active }) != 0 {
                // SAFETY: the entry was written before it became active; a torn one is only looked at.
                let entry = unsafe { entry.read_volatile() };
                on.push((entry.tag().into(), entry.epoch));
            }
        }
        let mut more = self.crowded.at(self.passed.load(Ordering::Acquire));
        if self.gpu.gated() {
            if self.raw_fault().is_some() {
                self.open_gates();
            } else if on.is_empty() {
                (on, more) = self.blocked_at_gate();
            }
        }
        let mut blocked = lock(&self.blocked);
        // The device does not say since when; the watch looks often enough.
        *blocked = reports::blocked(blocked.take(), on, more, Instant::now());
        blocked.clone()
    }

    fn stand(&self) -> Stand {
        // What was seen last: the driver is not asked. While a launch of any stream waits for room in it, it may keep
        // others waiting, and who asks here looks after the limits that end such waits. (At a gate a word is read, on a
        // stream where nothing waits, and while no lock is held that a launch needs.)
        let passed = self.passed.load(Ordering::Acquire);
        let is_through = passed >= self.submitted();
        // After that: who is at no wait that can be seen, and was not through before, works, or has just come to one.
        // (A wait may be seen before its batch counts as submitted. What is recorded counts, too, and is not passed: but
        // what stands before a recording may be at work still.)
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
        // What was seen last, as for `stand`.
        self.passed.load(Ordering::Acquire)
    }

    fn passed(&self) -> u64 {
        self.look()
    }

    fn wake_at(&self, mark: u64, future: u64, waker: &Waker) -> bool {
        // Nobody is awaited in a child: whoever asks hears of that when it goes on.
        if !self.gpu.process.is_this() {
            return true;
        }
        drop_left();
        if self.look() >= mark {
            return true;
        }
        // To copy a waker, or drop one, runs foreign code: not under the lock.
        let waker = waker.clone();
        let replaced = {
            let mut wakers = lock(&self.wakers);
            let place = wakers.iter().position(|each| each.1 == future);
            let before = place.map(|place| wakers.swap_remove(place));
            wakers.push((mark, future, waker));
            before
        };
        // If the future's waker was still here, the driver has been asked already, and has not come to it.
        if replaced.is_some() {
            tell(|| drop(replaced));
            return false;
        }
        let Some(this) = self.me.upgrade() else {
            return true;
        };
        let data = Box::into_raw(Box::new((this, self.submitted())));
        // SAFETY: the stream is live; the function takes what it is given, once.
        let asked = unsafe {
            self.gpu
                .driver
                .launch_host_func(self.raw, Self::reached, data.cast())
        };
        if let Err(error) = asked {
            self.note(error);
            // SAFETY: the driver did not take it.
            drop(unsafe { Box::from_raw(data) });
            // Better awake too early, and asked again, than never.
            return self.lost.get().is_some() || self.synchronize().is_err() || self.look() >= mark;
        }
        false
    }

    fn forget_waker(&self, future: u64) {
        // In a child a thread that is not there may hold the lock.
        if self.gpu.process.is_this() {
            let taken: Vec<_> = lock(&self.wakers)
                .extract_if(.., |each| each.1 == future)
                .collect();
            tell(|| drop(taken));
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !self.gpu.process.is_this() {
            std::mem::forget((self.state.take(), self.owner.take(), self.couriers.take()));
            return;
        }
        if self.abandoned.load(Ordering::Relaxed) {
            // Kernels and couriers of it may be at work still, for all that the driver says, and wait in their blocks.
            std::mem::forget(std::mem::take(&mut lock(&self.later).garbage));
            std::mem::forget((self.state.take(), self.owner.take(), self.couriers.take()));
            return;
        }
        let dealing = self.dealing.load(Ordering::Relaxed);
        self.gpu
            .give_back((self.quota.load(Ordering::Relaxed), dealing));
        if self.gpu.enter().is_err() {
            return;
        }
        // The owner has waited until everything was passed, and nobody can have submitted more.
        self.passed.fetch_max(self.submitted(), Ordering::AcqRel);
        if self.settled(true) {
            self.collect();
        } else {
            // A courier may be on its way for ever, for all that the driver says.
            std::mem::forget(std::mem::take(&mut lock(&self.later).garbage));
        }
        if self.owner.is_none() {
            // SAFETY: the stream was made for this, and nobody else has it.
            let _ = unsafe { self.gpu.driver.stream_destroy(self.raw) };
        }
        self.gpu.return_mirror(self.mirror);
    }
}
