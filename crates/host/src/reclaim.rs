//! The part of a stream that threads share, and that outlives the stream.
//!
//! The model checker of the words runs this very file (`crates/words/tests/model/stream.rs`). That is why its atomics
//! come from there.

use std::any::Any;
use std::collections::VecDeque;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicPtr;
use std::task::Waker;
use std::time::Instant;

use tidegate_hal::batch::Tag;
use tidegate_hal::device::{Blocked, Calls, Fault, Reclaim, Stand, StreamConfig, Work};
use tidegate_hal::process::Process;
use tidegate_hal::site::CallSite;
use tidegate_words::sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering};
use tidegate_words::{Bell, Patience};

/// What one thread writes with every item: in lines of its own, or each write would take a line from the other thread.
/// (Two lines, since processors fetch them in pairs.)
#[repr(align(128))]
pub(crate) struct Apart<T>(T);

impl<T> Deref for Apart<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// What a stream's owner, its executor and its regions share.
pub struct StreamState {
    pub(crate) config: StreamConfig,
    /// Its children have no executor, and locks that it may hold for ever.
    pub(crate) process: Process,
    /// Work items submitted; written by the owner.
    pub(crate) submitted: Apart<AtomicU64>,
    /// Work items passed; written by the executor.
    passed: Apart<AtomicU64>,
    /// What the executor is at, for people: no protocol, and so not of the model's atomics.
    at: Apart<At>,
    /// In which calls the program is.
    calls: Calls,
    /// The item that failed, counted from 1; `u64::MAX` while none has.
    failed_at: AtomicU64,
    fault: Mutex<Option<Fault>>,
    aborted: AtomicBool,
    /// Rung when as many items have been passed as somebody waits for.
    progress: Bell,
    /// The lowest count of passed items that somebody waits for; `u64::MAX` if nobody does. Without it, every item would
    /// wake the threads that wait for the last one.
    wanted: AtomicU64,
    /// Rung when an item has been submitted.
    pub(crate) work: Bell,
    /// Whether `later` holds anything.
    any_later: AtomicBool,
    later: Mutex<Later>,
    blocked: Mutex<Option<Blocked>>,
}

#[derive(Default)]
struct Later {
    /// In the order of the marks: there may be as much as there are items, and each item looks here.
    garbage: VecDeque<(u64, Box<dyn Any + Send>)>,
    /// The mark, the future, and how it is woken.
    wakers: Vec<(u64, u64, Waker)>,
}

impl Later {
    /// Takes a future's waker out, for the caller to drop outside of the lock: that runs foreign code.
    fn take_waker(&mut self, future: u64) -> Option<Waker> {
        let place = self.wakers.iter().position(|each| each.1 == future)?;
        Some(self.wakers.swap_remove(place).2)
    }
}

/// The name of a kernel.
pub(crate) struct Named(pub(crate) fn() -> &'static str);

/// What an executor is at.
#[derive(Clone, Copy)]
pub(crate) enum AtWork {
    Kernel = 1,
    Stream,
}

#[derive(Default)]
struct At {
    /// An [`AtWork`] by number, or 0; above it, how often it has gone on within an item.
    work: std::sync::atomic::AtomicU64,
    /// The name of the last kernel.
    kernel: AtomicPtr<Named>,
}

/// How far one step counts up, above the number of the work.
const STEP: u64 = 4;

impl StreamState {
    pub(crate) fn new(config: StreamConfig) -> Self {
        StreamState {
            config,
            process: Process::this(),
            submitted: Apart(AtomicU64::new(0)),
            passed: Apart(AtomicU64::new(0)),
            at: Apart(At::default()),
            calls: Calls::default(),
            failed_at: AtomicU64::new(u64::MAX),
            fault: Mutex::new(None),
            aborted: AtomicBool::new(false),
            progress: Bell::new(),
            wanted: AtomicU64::new(u64::MAX),
            work: Bell::new(),
            any_later: AtomicBool::new(false),
            later: Mutex::default(),
            blocked: Mutex::new(None),
        }
    }

    /// The bell that peers ring.
    pub(crate) fn bell(&self) -> &Bell {
        // SAFETY: `config.keep` keeps the memory alive that `config.bell` points into, which the maker of the config promises.
        unsafe { &*self.config.bell.0.cast::<Bell>() }
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Relaxed)
    }

    /// Whether an item up to `mark` has failed.
    pub(crate) fn failed_by(&self, mark: u64) -> bool {
        self.failed_at.load(Ordering::Acquire) <= mark
    }

    pub(crate) fn set_fault(&self, fault: Fault) {
        let mut held = lock(&self.fault);
        if held.is_none() {
            *held = Some(fault);
            let item = self.passed.load(Ordering::Relaxed) + 1;
            self.failed_at.store(item, Ordering::Release);
        }
    }

    pub(crate) fn set_blocked(&self, on: impl Iterator<Item = (Tag, u64)>, site: CallSite) {
        let mut held = lock(&self.blocked);
        let blocked = held.get_or_insert_with(|| Blocked {
            on: Vec::new(),
            more: false,
            site: None,
            since: Instant::now(),
        });
        // Empty: it was running. Else it is the same batch, which waits for less than before.
        if blocked.on.is_empty() {
            blocked.since = Instant::now();
        }
        // The list is reused, so that waiting allocates nothing once it has been long enough.
        blocked.on.clear();
        blocked.on.extend(on);
        blocked.site = Some(site);
    }

    pub(crate) fn set_running(&self) {
        if let Some(blocked) = &mut *lock(&self.blocked) {
            blocked.on.clear();
        }
    }

    /// The executor is at this while `does` runs, which does not unwind.
    pub(crate) fn at<R>(&self, what: AtWork, does: impl FnOnce() -> R) -> R {
        let step = self.goes_on();
        // Release: a thread that sees that it is at a kernel sees its name.
        self.at.work.store(step + what as u64, Ordering::Release);
        let done = does();
        self.at.work.store(step, Ordering::Relaxed);
        done
    }

    /// As [`StreamState::at`], for a kernel of this name.
    pub(crate) fn at_kernel<R>(&self, name: &'static Named, does: impl FnOnce() -> R) -> R {
        let name = std::ptr::from_ref(name).cast_mut();
        self.at.kernel.store(name, Ordering::Relaxed);
        self.at(AtWork::Kernel, does)
    }

    /// The executor goes on within an item, to something.
    pub(crate) fn goes_on(&self) -> u64 {
        let step = (self.at.work.load(Ordering::Relaxed) | (STEP - 1)) + 1;
        self.at.work.store(step, Ordering::Relaxed);
        step
    }

    /// The executor has passed one more item.
    pub(crate) fn pass(&self) {
        let passed = self.passed.load(Ordering::Relaxed) + 1;
        // Sequentially consistent with `any_later` and `wanted`: either this sees the new entry, or its maker sees the new count.
        self.passed.store(passed, Ordering::SeqCst);
        if passed >= self.wanted.load(Ordering::SeqCst) {
            // A thread that waits for more says so again when it wakes.
            self.wanted.store(u64::MAX, Ordering::SeqCst);
            self.progress.ring();
        }
        if self.any_later.load(Ordering::SeqCst) {
            self.collect(passed);
        }
    }

    /// Blocks until `mark` items have been passed.
    pub(crate) fn wait_until_passed(&self, mark: u64, patience: Patience) {
        if self.passed() >= mark {
            return;
        }
        let ready = || {
            if self.wanted.load(Ordering::SeqCst) > mark {
                self.wanted.fetch_min(mark, Ordering::SeqCst);
            }
            (self.passed.load(Ordering::SeqCst) >= mark).then_some(())
        };
        self.progress.wait(patience, ready, || {});
    }

    #[cold]
    fn collect(&self, passed: u64) {
        let mut due: Vec<Box<dyn Any + Send>> = Vec::new();
        let awake: Vec<_>;
        {
            let mut later = lock(&self.later);
            while later.garbage.front().is_some_and(|each| each.0 <= passed) {
                due.extend(later.garbage.pop_front().map(|each| each.1));
            }
            awake = later
                .wakers
                .extract_if(.., |(mark, ..)| *mark <= passed)
                .collect();
            self.any_later.store(
                !later.garbage.is_empty() || !later.wakers.is_empty(),
                Ordering::SeqCst,
            );
        }
        // Outside of the lock: dropping and waking may run foreign code.
        due.into_iter().for_each(|each| foreign(|| drop(each)));
        awake
            .into_iter()
            .for_each(|(.., waker)| foreign(|| waker.wake()));
    }
}

impl Reclaim for StreamState {
    fn retire(&self, garbage: Box<dyn Any + Send>) {
        if !self.process.is_this() {
            return std::mem::forget(garbage);
        }
        let mark = self.submitted.load(Ordering::Acquire);
        if self.passed() >= mark {
            return;
        }
        {
            let mut later = lock(&self.later);
            // Another thread may have been quicker with a later mark.
            let later_ones = later.garbage.iter().rev();
            let behind = later_ones.take_while(|each| each.0 > mark).count();
            let place = later.garbage.len() - behind;
            later.garbage.insert(place, (mark, garbage));
            self.any_later.store(true, Ordering::SeqCst);
        }
        // The executor may have passed the mark before it could see the entry.
        let passed = self.passed.load(Ordering::SeqCst);
        if passed >= mark {
            self.collect(passed);
        }
    }

    fn fault(&self) -> Option<Fault> {
        if self.failed_at.load(Ordering::Acquire) == u64::MAX {
            return None;
        }
        lock(&self.fault).clone()
    }

    fn abort(&self) {
        if !self.process.is_this() {
            return;
        }
        self.aborted.store(true, Ordering::SeqCst);
        self.bell().wake_all();
    }

    fn blocked(&self) -> Option<Blocked> {
        lock(&self.blocked)
            .clone()
            .filter(|blocked| !blocked.on.is_empty())
    }

    fn look_at_blocked(&self, look: &mut dyn FnMut(&Blocked)) {
        if let Some(blocked) = &*lock(&self.blocked)
            && !blocked.on.is_empty()
        {
            look(blocked);
        }
    }

    fn stand(&self) -> Stand {
        // What it has passed first: then nothing counts as passed that was submitted in between.
        let passed = self.passed.load(Ordering::Acquire);
        if self.submitted.load(Ordering::Acquire) <= passed {
            return Stand::Through;
        }
        // From here on it is not said to be through: whatever it has come to by the time of these looks is behind that.
        if let Some(blocked) = self.blocked() {
            return Stand::Waits(blocked);
        }
        let at = self.at.work.load(Ordering::Acquire) % STEP;
        Stand::Works(if at == AtWork::Kernel as u64 {
            // SAFETY: it is null, or was a reference that lives for ever.
            let name = unsafe { self.at.kernel.load(Ordering::Relaxed).as_ref() };
            Work::Kernel(name.map(|name| name.0()))
        } else if at == AtWork::Stream as u64 {
            Work::Stream
        } else {
            Work::Something
        })
    }

    fn calls(&self) -> &Calls {
        &self.calls
    }

    fn progress(&self) -> u64 {
        // Neither ever becomes less.
        self.passed() + self.at.work.load(Ordering::Relaxed) / STEP
    }

    fn passed(&self) -> u64 {
        self.passed.load(Ordering::Acquire)
    }

    fn wake_at(&self, mark: u64, future: u64, waker: &Waker) -> bool {
        // In a child nothing is awaited: the caller gets an error when it goes on.
        if self.passed() >= mark || !self.process.is_this() {
            return true;
        }
        // To copy a waker, or drop one, runs foreign code: not under the lock.
        let waker = waker.clone();
        let replaced = {
            let mut later = lock(&self.later);
            let before = later.take_waker(future);
            later.wakers.push((mark, future, waker));
            self.any_later.store(true, Ordering::SeqCst);
            before
        };
        foreign(|| drop(replaced));
        self.passed.load(Ordering::SeqCst) >= mark
    }

    fn forget_waker(&self, future: u64) {
        // In a child a thread that is not there may hold the lock.
        if self.process.is_this() {
            let waker = lock(&self.later).take_waker(future);
            foreign(|| drop(waker));
        }
    }
}

/// Runs what may be the user's. A panic of it has been reported by its hook, and is no fault of the stream.
pub(crate) fn foreign(work: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
        // A model's threads end by panics of its own.
        #[cfg(loom)]
        std::panic::resume_unwind(panic);
        #[cfg(not(loom))]
        let_go(panic);
    }
}

/// Lets the payload of a panic go. One of a type of the user's may panic when it is dropped: it is kept for good.
#[cfg(not(loom))]
pub(crate) fn let_go(panic: Box<dyn Any + Send>) {
    if !panic.is::<&'static str>() && !panic.is::<String>() {
        std::mem::forget(panic);
    }
}

/// A poisoned lock means that a panic came between two plain assignments; the data is whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
