//! The part of a stream that several threads share, and that outlives the stream.
//!
//! The atomics come from the words' crate because its model checker runs this very file
//! (`crates/words/tests/model/stream.rs`).

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

/// A value that one thread writes with every item. It has cache lines of its own; otherwise each write would take a
/// line from the other thread. (It has two lines, because processors fetch them in pairs.)
#[repr(align(128))]
pub(crate) struct Apart<T>(T);

impl<T> Deref for Apart<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// The state that a stream's owner, its executor and its regions share.
pub struct StreamState {
    pub(crate) config: StreamConfig,
    /// The process that made the stream. Its children have no executor, and their locks may be held for ever.
    pub(crate) process: Process,
    /// Work items submitted; written by the owner.
    pub(crate) submitted: Apart<AtomicU64>,
    /// Work items passed; written by the executor.
    passed: Apart<AtomicU64>,
    /// What the executor is doing, for reports. No protocol depends on it, so it does not use the model's atomics.
    at: Apart<At>,
    /// The calls that the program is in.
    calls: Calls,
    /// The number of the item that failed, from 1; `u64::MAX` while none has.
    failed_at: AtomicU64,
    fault: Mutex<Option<Fault>>,
    aborted: AtomicBool,
    /// Rung when so many items have been passed that a waiting thread goes on.
    progress: Bell,
    /// The lowest count of passed items that a thread waits for; `u64::MAX` if none waits. Without it, every item would
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
    /// In the order of the marks, because every item looks here, and there may be as many entries as items.
    garbage: VecDeque<(u64, Box<dyn Any + Send>)>,
    /// For each: the mark, the number of the future, and its waker.
    wakers: Vec<(u64, u64, Waker)>,
}

impl Later {
    /// Removes and returns a future's waker. The caller drops it outside the lock, because that runs foreign code.
    fn take_waker(&mut self, future: u64) -> Option<Waker> {
        let place = self.wakers.iter().position(|each| each.1 == future)?;
        Some(self.wakers.swap_remove(place).2)
    }
}

/// A function that returns the name of a kernel.
pub(crate) struct Named(pub(crate) fn() -> &'static str);

/// What an executor is doing.
#[derive(Clone, Copy)]
pub(crate) enum AtWork {
    Kernel = 1,
    Stream,
}

#[derive(Default)]
struct At {
    /// An [`AtWork`] as a number, or 0. Above it: how often the executor has gone on within an item.
    work: std::sync::atomic::AtomicU64,
    /// The name of the last kernel.
    kernel: AtomicPtr<Named>,
}

/// The increment that counts one step, above the number of the [`AtWork`].
pub(crate) const STEP: u64 = 4;

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
        // SAFETY: the maker of the config promises a live bell, and `config.keep` keeps it alive.
        unsafe { &*self.config.bell.0.cast::<Bell>() }
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Relaxed)
    }

    /// Whether an item up to `mark` has failed.
    pub(crate) fn failed_by(&self, mark: u64) -> bool {
        self.failed_at.load(Ordering::Acquire) <= mark
    }

    /// The stream fails in the item that comes so many items behind those that are known to have been passed.
    pub(crate) fn set_fault(&self, fault: Fault, behind: u64) {
        let mut held = lock(&self.fault);
        if held.is_none() {
            *held = Some(fault);
            let item = self.passed.load(Ordering::Relaxed) + behind + 1;
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
        // The list is reused, so that a wait allocates nothing once the list has been long enough: the new waits come
        // behind the old ones, which go.
        let before = blocked.on.len();
        blocked.on.extend(on);
        let (old, new) = blocked.on.split_at(before);
        // A lane goes on from one of its waits to the next. The time begins anew when no wait of before is left: there
        // is one time for all of them, so a chain of waits that overlap counts as one.
        if !old.iter().any(|wait| new.contains(wait)) {
            blocked.since = Instant::now();
        }
        blocked.on.drain(..before);
        blocked.site = Some(site);
    }

    pub(crate) fn set_running(&self) {
        if let Some(blocked) = &mut *lock(&self.blocked) {
            blocked.on.clear();
        }
    }

    /// Notes what the executor does from now on.
    pub(crate) fn begins(&self, what: AtWork) {
        // Release: a thread that sees a kernel here also sees its name.
        let step = self.goes_on();
        self.at.work.store(step + what as u64, Ordering::Release);
    }

    /// Like [`StreamState::begins`], for a kernel of this name.
    pub(crate) fn begins_kernel(&self, name: &'static Named) {
        let name = std::ptr::from_ref(name).cast_mut();
        self.at.kernel.store(name, Ordering::Relaxed);
        self.begins(AtWork::Kernel);
    }

    /// Notes that the executor is through with what it has begun.
    pub(crate) fn ends(&self) {
        let work = self.at.work.load(Ordering::Relaxed);
        self.at.work.store(work & !(STEP - 1), Ordering::Relaxed);
    }

    /// Notes what the executor does while `does` runs, which does not unwind.
    pub(crate) fn at<R>(&self, what: AtWork, does: impl FnOnce() -> R) -> R {
        self.begins(what);
        let done = does();
        self.ends();
        done
    }

    /// Notes that the executor goes on within an item.
    pub(crate) fn goes_on(&self) -> u64 {
        let step = (self.at.work.load(Ordering::Relaxed) | (STEP - 1)) + 1;
        self.at.work.store(step, Ordering::Relaxed);
        step
    }

    /// Notes that the executor has passed so many more items.
    pub(crate) fn pass(&self, items: u64) {
        let passed = self.passed.load(Ordering::Relaxed) + items;
        // Sequentially consistent with `any_later` and `wanted`: either this thread sees the new entry, or its maker
        // sees the new count.
        self.passed.store(passed, Ordering::SeqCst);
        if passed >= self.wanted.load(Ordering::SeqCst) {
            // A thread that waits for a later item wakes, too, and sets this again.
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
        // Outside the lock, because drops and wake-ups may run foreign code.
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
            // Another thread may already have added an entry with a later mark.
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
        // Read the count of passed items first, so that no item counts as passed that was submitted in between.
        let passed = self.passed.load(Ordering::Acquire);
        if self.submitted.load(Ordering::Acquire) <= passed {
            return Stand::Through;
        }
        // The stream was not through. Whatever the following looks see is from after that.
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
        // Neither number ever decreases.
        self.passed() + self.at.work.load(Ordering::Relaxed) / STEP
    }

    fn passed(&self) -> u64 {
        self.passed.load(Ordering::Acquire)
    }

    fn wake_at(&self, mark: u64, future: u64, waker: &Waker) -> bool {
        // In a child, futures wait for nothing: the caller gets an error when it goes on.
        if self.passed() >= mark || !self.process.is_this() {
            return true;
        }
        // Outside the lock, because to copy or drop a waker runs foreign code.
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
        // In a child, the lock may belong to a thread that does not exist there.
        if self.process.is_this() {
            let waker = lock(&self.later).take_waker(future);
            foreign(|| drop(waker));
        }
    }
}

/// Runs code that may be the user's, and catches its panic. The panic hook has reported the panic, and it is no fault
/// of the stream.
pub(crate) fn foreign(work: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
        // The model checker ends its threads by panics.
        #[cfg(loom)]
        std::panic::resume_unwind(panic);
        #[cfg(not(loom))]
        let_go(panic);
    }
}

/// Drops the payload of a panic if it is a text. Leaks any other, because a payload of a user's type may panic when it
/// is dropped.
#[cfg(not(loom))]
pub(crate) fn let_go(panic: Box<dyn Any + Send>) {
    if !panic.is::<&'static str>() && !panic.is::<String>() {
        std::mem::forget(panic);
    }
}

/// A lock is poisoned if a panic came between two plain assignments, so the data is whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
