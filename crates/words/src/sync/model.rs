//! The atomics and the sleeping of loom, and ways to break them.
//!
//! A model checker that finds nothing may be checking nothing. So each model is checked again with one thing broken
//! ([`Mutant`]), and must then fail. The breaking happens here, below the protocol, whose code does not change. It
//! applies to one thread at a time, which tells the fence of the ringing thread from that of the sleeping one.
//!
//! A thread can also be given a fuse ([`light`]): it dies before its n-th operation that others can see, wherever that
//! is in the protocol.

use std::cell::{Cell, RefCell};
use std::panic::resume_unwind;
use std::time::Duration;

use loom::sync::atomic as base;
use loom::thread::{self, Thread};

pub use loom::sync::atomic::Ordering;
pub use loom::sync::{Mutex, MutexGuard};

/// A part of the protocol that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Additions to words (and poisonings) have no release order.
    AddWithoutRelease,
    /// Loads of words have no acquire order.
    LookWithoutAcquire,
    /// Fences do nothing, and sequentially consistent accesses only acquire and release.
    NoFence,
    /// The sleepers' flag is set only right before sleeping: no thread looks at the words again after it has set the
    /// flag.
    FlagAfterLook,
    /// The count of rings goes up, but no sleeper is woken.
    NoWake,
    /// Sleepers are woken without the count going up.
    NoBump,
    /// A thread goes to sleep even if the count has gone up.
    SleepAnyway,
    /// The count of rings goes up without release order.
    BumpWithoutRelease,
    /// The count of rings is read only after the sleepers' flag was set. A machine may do that if it lets stores
    /// overtake loads, and if the count is read without acquire order. (Loom itself lets no store overtake a load.)
    KeyAfterFlag,
}

/// The payload with which a thread unwinds when its fuse has burnt down.
#[derive(Debug)]
pub struct Died;

/// The mutations of one thread.
struct Flaws {
    mutant: Cell<Option<Mutant>>,
    fuse: Cell<Option<u32>>,
    /// The flag that [`Mutant::FlagAfterLook`] has not stored yet.
    late: Cell<Option<(*const AtomicU32, u32)>>,
    /// The count that [`Mutant::KeyAfterFlag`] has not read yet. `key` is its value once it has been read.
    unread: Cell<Option<*const Futex>>,
    key: Cell<Option<u32>>,
}

loom::thread_local! {
    static FLAWS: Flaws = Flaws {
        mutant: Cell::new(None),
        fuse: Cell::new(None),
        late: Cell::new(None),
        unread: Cell::new(None),
        key: Cell::new(None),
    };
}

loom::lazy_static! {
    /// Loom takes no decision at a fence, and so would not try two fences in both orders. So each fence touches this.
    static ref FENCES: base::AtomicU32 = base::AtomicU32::new(0);
}

/// To be called first in each model, so that the initialisation of `FENCES` orders no threads.
pub fn begin() {
    FENCES.load(Ordering::Relaxed);
}

/// Breaks the calling thread.
pub fn mutate(mutant: Option<Mutant>) {
    FLAWS.with(|flaws| flaws.mutant.set(mutant));
}

/// Makes the calling thread die instead of doing its `steps`-th visible operation from now, counted from 0: it unwinds with
/// [`Died`].
pub fn light(steps: u32) {
    FLAWS.with(|flaws| flaws.fuse.set(Some(steps)));
}

/// Marks an operation that others can see, before which a thread may therefore die. (For the others, a death before a
/// load is a death after the store before it.)
pub fn tick() {
    FLAWS.with(|flaws| match flaws.fuse.get() {
        None => {}
        Some(0) => {
            flaws.fuse.set(None);
            resume_unwind(Box::new(Died));
        }
        Some(left) => flaws.fuse.set(Some(left - 1)),
    });
}

fn is(mutant: Mutant) -> bool {
    FLAWS.with(|flaws| flaws.mutant.get() == Some(mutant))
}

/// The order; or relaxed, in a thread with that flaw.
fn unless(mutant: Mutant, order: Ordering) -> Ordering {
    if is(mutant) { Ordering::Relaxed } else { order }
}

/// Makes an access, with a fence on both sides if it is sequentially consistent, because loom makes such accesses
/// acquire and release only. This also orders other accesses of the thread, which is more than it should. So it is
/// right only for a protocol whose accesses are all sequentially consistent, or are ordered without that.
/// [`Mutant::NoFence`] leaves the fences out.
fn access<T>(order: Ordering, access: impl FnOnce() -> T) -> T {
    if order != Ordering::SeqCst {
        return access();
    }
    fence(order);
    let value = access();
    fence(order);
    value
}

/// A fence.
pub fn fence(order: Ordering) {
    if !is(Mutant::NoFence) {
        FENCES.fetch_add(0, Ordering::Relaxed);
        base::fence(order);
    }
}

/// A word, as the protocol uses it.
#[derive(Debug)]
pub struct AtomicU64(base::AtomicU64);

impl AtomicU64 {
    /// As the standard library's.
    #[track_caller]
    pub fn new(value: u64) -> Self {
        AtomicU64(base::AtomicU64::new(value))
    }

    /// As the standard library's.
    #[track_caller]
    pub fn load(&self, order: Ordering) -> u64 {
        access(order, || {
            self.0.load(unless(Mutant::LookWithoutAcquire, order))
        })
    }

    /// As the standard library's.
    #[track_caller]
    pub fn store(&self, value: u64, order: Ordering) {
        tick();
        access(order, || {
            self.0
                .store(value, unless(Mutant::AddWithoutRelease, order));
        });
    }

    /// As the standard library's.
    #[track_caller]
    pub fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        tick();
        self.0
            .fetch_add(value, unless(Mutant::AddWithoutRelease, order))
    }

    /// As the standard library's.
    #[track_caller]
    pub fn fetch_min(&self, value: u64, order: Ordering) -> u64 {
        tick();
        access(order, || {
            self.0
                .fetch_min(value, unless(Mutant::AddWithoutRelease, order))
        })
    }

    /// As the standard library's.
    ///
    /// # Errors
    ///
    /// The value, if it is another.
    #[track_caller]
    pub fn compare_exchange(
        &self,
        old: u64,
        new: u64,
        done: Ordering,
        not: Ordering,
    ) -> Result<u64, u64> {
        tick();
        self.0.compare_exchange(old, new, done, not)
    }

    /// As the standard library's.
    #[track_caller]
    pub fn fetch_or(&self, value: u64, order: Ordering) -> u64 {
        tick();
        self.0
            .fetch_or(value, unless(Mutant::AddWithoutRelease, order))
    }
}

/// A flag, as the bell uses it.
#[derive(Debug)]
pub struct AtomicU32(base::AtomicU32);

impl AtomicU32 {
    /// As the standard library's.
    #[track_caller]
    pub fn new(value: u32) -> Self {
        AtomicU32(base::AtomicU32::new(value))
    }

    /// As the standard library's.
    #[track_caller]
    pub fn load(&self, order: Ordering) -> u32 {
        self.0.load(order)
    }

    /// As the standard library's, but by a read-modify-write. In loom, a store could come between a swap's read and its
    /// write, as on no machine. Loom would then report a sleeper whose flag, which was set after the swap, seems
    /// cleared. This loses no behaviour: a store that a swap has not read comes after the swap, or before the value
    /// that it read; and loads still see old values.
    #[track_caller]
    pub fn store(&self, value: u32, order: Ordering) {
        tick();
        if is(Mutant::FlagAfterLook) {
            FLAWS.with(|flaws| flaws.late.set(Some((self, value))));
        } else {
            self.0.swap(value, order);
        }
        if let Some(futex) = FLAWS.with(|flaws| flaws.unread.take()) {
            // SAFETY: the count lies beside this flag in the bell that the thread is waiting on.
            let key = unsafe { &*futex }.count.load(Ordering::Relaxed);
            FLAWS.with(|flaws| flaws.key.set(Some(key)));
        }
    }

    /// As the standard library's.
    #[track_caller]
    pub fn swap(&self, value: u32, order: Ordering) -> u32 {
        tick();
        self.0.swap(value, order)
    }
}

/// A flag, as users of the bells have it.
#[derive(Debug)]
pub struct AtomicBool(base::AtomicBool);

impl AtomicBool {
    /// As the standard library's.
    #[track_caller]
    pub fn new(value: bool) -> Self {
        AtomicBool(base::AtomicBool::new(value))
    }

    /// As the standard library's.
    #[track_caller]
    pub fn load(&self, order: Ordering) -> bool {
        access(order, || self.0.load(order))
    }

    /// As the standard library's.
    #[track_caller]
    pub fn store(&self, value: bool, order: Ordering) {
        tick();
        access(order, || self.0.store(value, order));
    }
}

/// A count to sleep on, with the threads that sleep. A lost wake-up leaves a thread parked for ever, which loom reports
/// as a deadlock. (A loop that yields until the count changes would not show whether there was a wake-up.)
///
/// The kernel compares and puts the thread to sleep in one step, under a lock that a wake-up takes, too. Here, both
/// touch the count by a read-modify-write. It reads the latest value, and at it loom chooses which thread comes first.
/// Between it and the parking or unparking, loom runs no other thread. It is relaxed, and so orders nothing else,
/// because nobody should rely on that from a futex. The wake-up itself does order, because loom has no other way to
/// wake.
#[derive(Debug)]
pub(crate) struct Futex {
    count: base::AtomicU32,
    sleepers: RefCell<Vec<Thread>>,
}

// SAFETY: all threads of a model take turns on one thread of the machine, and none of them switches while the cell is
// borrowed.
unsafe impl Sync for Futex {}

impl Futex {
    #[track_caller]
    pub(crate) fn new(value: u32) -> Self {
        Futex {
            count: base::AtomicU32::new(value),
            sleepers: RefCell::default(),
        }
    }

    #[track_caller]
    pub(crate) fn load(&self, order: Ordering) -> u32 {
        if is(Mutant::KeyAfterFlag) {
            FLAWS.with(|flaws| flaws.unread.set(Some(self)));
            return 0;
        }
        self.count.load(order)
    }

    #[track_caller]
    pub(crate) fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
        tick();
        let value = if is(Mutant::NoBump) { 0 } else { value };
        self.count
            .fetch_add(value, unless(Mutant::BumpWithoutRelease, order))
    }

    #[track_caller]
    pub(crate) fn sleep_while(&self, expected: u32, limit: Option<Duration>) {
        debug_assert!(limit.is_none(), "what is modelled does not nap");
        if let Some((flag, value)) = FLAWS.with(|flaws| flaws.late.take()) {
            // SAFETY: the flag lies beside this count in the bell on which the thread still waits.
            unsafe { &*flag }.0.swap(value, Ordering::Relaxed);
        }
        let expected = FLAWS.with(|flaws| flaws.key.take()).unwrap_or(expected);
        if self.count.fetch_add(0, Ordering::Relaxed) == expected || is(Mutant::SleepAnyway) {
            self.sleepers.borrow_mut().push(thread::current());
            thread::park();
        }
    }

    #[track_caller]
    pub(crate) fn wake_all(&self) {
        tick();
        if is(Mutant::NoWake) {
            return;
        }
        self.count.fetch_add(0, Ordering::Relaxed);
        for sleeper in self.sleepers.take() {
            sleeper.unpark();
        }
    }
}

/// Lets other threads of the model run.
pub(crate) fn pause() {
    thread::yield_now();
}

/// Lets other threads of the model run.
pub(crate) fn yield_now() {
    thread::yield_now();
}
