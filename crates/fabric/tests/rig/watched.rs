//! The wire in memory, watched: it counts the writes and reads that it takes, and the writes that are over.
#![allow(dead_code, reason = "not every test uses everything")]

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate_fabric::Options;
use tidegate_fabric::wire::{Event, Op, Posted, Sleeper, Wire};
use tidegate_fake::wire::{Faults, MemoryWire, Net};

use crate::rig::Rig;
use crate::rig::wrapped::{Far, Hooks, Outcome, Wrapped};

const LONG: Duration = Duration::from_secs(600);

/// What a wire has done, and how a test changes it.
#[derive(Default)]
pub(crate) struct Seen {
    /// How many writes were posted, and (below) how many of them are over.
    posted: AtomicUsize,
    /// How many reads of more than a word were posted. Reads of a word are the engine's own.
    reads: AtomicUsize,
    /// How many reads of a word were posted, refused or not. The engine looks so whether signals have come.
    looks: AtomicUsize,
    /// Whether reads of a word are refused.
    pub(crate) refuses_looks: AtomicBool,
    /// Whether writes fail.
    pub(crate) fails_writes: AtomicBool,
    done: AtomicUsize,
    /// The cookies of writes that are not over.
    writes: Mutex<HashSet<u64>>,
    /// While events are held: the memory that operations read, with its contents; and the memory that they write.
    sources: Mutex<Vec<(Bytes, Vec<u8>)>>,
    targets: Mutex<Vec<Bytes>>,
    /// Whether events are held back.
    pub(crate) hold: AtomicBool,
    held: Mutex<Vec<Event>>,
    /// Whether sleeps of [`DROWSY`] and more last until something wakes the thread.
    pub(crate) sleeps_on: AtomicBool,
    /// How many such sleeps have begun, and (below) ended.
    begun: AtomicUsize,
    ended: AtomicUsize,
}

/// Shorter than a tick, and longer than all pauses of an engine that has something to do.
const DROWSY: Duration = Duration::from_millis(50);

/// The sleeper of a watched wire.
struct Drowsy {
    sleeper: Box<dyn Sleeper>,
    seen: Arc<Seen>,
}

impl Sleeper for Drowsy {
    fn sleep(&self, limit: Duration) {
        if limit < DROWSY || !self.seen.sleeps_on.load(Ordering::SeqCst) {
            return self.sleeper.sleep(limit);
        }
        self.seen.begun.fetch_add(1, Ordering::SeqCst);
        self.sleeper.sleep(LONG);
        self.seen.ended.fetch_add(1, Ordering::SeqCst);
    }

    fn wake(&self) {
        self.sleeper.wake();
    }

    fn hears(&self) -> bool {
        self.sleeper.hears()
    }
}

/// Memory of an operation.
struct Bytes(*mut u8, usize);

// SAFETY: the wire of the operation may use its memory from any thread.
unsafe impl Send for Bytes {}

impl Bytes {
    /// # Safety
    ///
    /// The operation is not over.
    unsafe fn read(&self) -> Vec<u8> {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(self.0, self.1) }.to_vec()
    }
}

impl Drop for Watched {
    /// Acts as a network that goes on with operations without an event until it is closed.
    fn drop(&mut self) {
        for (from, was) in self.seen.sources.lock().unwrap().drain(..) {
            // SAFETY: no event has come for the operation, so its memory is there, as `Wire::post` demands.
            let is = unsafe { from.read() };
            assert!(is == was, "it was used for something else");
        }
        for to in self.seen.targets.lock().unwrap().drain(..) {
            // SAFETY: likewise.
            unsafe { to.0.write_bytes(0xee, to.1) };
        }
    }
}

impl Seen {
    pub(crate) fn posted(&self) -> usize {
        self.posted.load(Ordering::SeqCst)
    }

    pub(crate) fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }

    pub(crate) fn looks(&self) -> usize {
        self.looks.load(Ordering::SeqCst)
    }

    /// Waits until so many reads of words were posted.
    pub(crate) fn await_looks(&self, looks: usize) {
        let begun = Instant::now();
        while self.looks() < looks {
            assert!(begun.elapsed() < LONG, "{} looks", self.looks());
            std::thread::yield_now();
        }
    }

    /// Waits until so many writes and reads were posted.
    pub(crate) fn await_posts(&self, writes: usize, reads: usize) {
        let begun = Instant::now();
        while (self.posted(), self.reads()) != (writes, reads) {
            assert!(
                begun.elapsed() < LONG,
                "{}, {}",
                self.posted(),
                self.reads()
            );
            std::thread::yield_now();
        }
    }

    /// Waits until a thread of the engine is in a long sleep.
    pub(crate) fn await_sleep(&self) {
        let begun = Instant::now();
        let asleep = || self.begun.load(Ordering::SeqCst) > self.ended.load(Ordering::SeqCst);
        while !asleep() {
            assert!(begun.elapsed() < LONG, "nobody sleeps");
            std::thread::yield_now();
        }
    }

    /// Waits until so many writes are done.
    pub(crate) fn await_done(&self, writes: usize) {
        let begun = Instant::now();
        while self.done.load(Ordering::SeqCst) < writes {
            assert!(
                begun.elapsed() < LONG,
                "{} are done",
                self.done.load(Ordering::SeqCst)
            );
            std::thread::yield_now();
        }
    }
}

/// The wire in memory, watched.
pub(crate) struct Watched {
    seen: Arc<Seen>,
}

// SAFETY: every operation is one of the wire below, or fails and touches nothing. The hooks themselves read and write
// only memory of operations whose events have not come yet.
unsafe impl Hooks for Watched {
    type Wire = MemoryWire;

    unsafe fn post(
        &mut self,
        wire: &mut MemoryWire,
        peer: usize,
        op: Op<'_, Far<Self>>,
        cookie: u64,
    ) -> Outcome<Posted> {
        let writes = matches!(op, Op::Write { .. });
        let reads = matches!(op, Op::Read { bytes, .. } if bytes > 8);
        if matches!(op, Op::Read { bytes: 8, .. }) {
            self.seen.looks.fetch_add(1, Ordering::SeqCst);
            if self.seen.refuses_looks.load(Ordering::SeqCst) {
                let refused = Event::Failed(cookie, "it is refused".into());
                self.seen.held.lock().unwrap().push(refused);
                return Ok(Posted::Taken);
            }
        }
        if writes && self.seen.fails_writes.load(Ordering::SeqCst) {
            let failed = Event::Failed(cookie, "it is to fail".into());
            self.seen.held.lock().unwrap().push(failed);
            return Ok(Posted::Taken);
        }
        let uses = match op {
            Op::Write { from, bytes, .. } => Some(Bytes(from.cast_mut(), bytes)),
            Op::Read { to, bytes, .. } => Some(Bytes(to, bytes)),
            Op::Notify(_) => None,
        };
        // SAFETY: the caller's promise.
        let posted = unsafe { wire.post(peer, op.handed_on(|remote| &**remote), cookie) };
        if writes && matches!(posted, Ok(Posted::Taken)) {
            self.seen.writes.lock().unwrap().insert(cookie);
            self.seen.posted.fetch_add(1, Ordering::SeqCst);
        }
        if let (Some(uses), true, Ok(Posted::Taken)) =
            (uses, self.seen.hold.load(Ordering::SeqCst), &posted)
        {
            if writes {
                // SAFETY: the caller's promise.
                let is = unsafe { uses.read() };
                self.seen.sources.lock().unwrap().push((uses, is));
            } else {
                self.seen.targets.lock().unwrap().push(uses);
            }
        }
        if reads && matches!(posted, Ok(Posted::Taken)) {
            self.seen.reads.fetch_add(1, Ordering::SeqCst);
        }
        posted
    }

    fn poll(&mut self, wire: &mut MemoryWire, events: &mut Vec<Event>) -> Outcome<()> {
        let mut held = self.seen.held.lock().unwrap();
        wire.poll(&mut held)?;
        if !self.seen.hold.load(Ordering::SeqCst) {
            self.seen.sources.lock().unwrap().clear();
            self.seen.targets.lock().unwrap().clear();
            let mut writes = self.seen.writes.lock().unwrap();
            let done = held.iter().filter(|event| match event {
                Event::Done(cookie) => writes.remove(cookie),
                _ => false,
            });
            self.seen.done.fetch_add(done.count(), Ordering::SeqCst);
            events.append(&mut held);
        }
        Ok(())
    }

    fn may_sleep(&self) -> bool {
        self.seen.held.lock().unwrap().is_empty()
    }

    fn sleeper(&self, sleeper: Box<dyn Sleeper>) -> Box<dyn Sleeper> {
        let seen = self.seen.clone();
        Box::new(Drowsy { sleeper, seen })
    }
}

/// An endpoint over a watched wire. Its doorbells are polled, or not.
pub(crate) fn watched(polled: bool, options: Options, faults: Faults) -> (Rig, Arc<Seen>) {
    over(Net::new(1, faults).wire(0), polled, options)
}

/// Watches a wire.
pub(crate) fn watch(wire: MemoryWire) -> (Wrapped<Watched>, Arc<Seen>) {
    let seen = Arc::new(Seen::default());
    let hooks = Watched { seen: seen.clone() };
    (Wrapped { hooks, wire }, seen)
}

pub(crate) fn over(wire: MemoryWire, polled: bool, options: Options) -> (Rig, Arc<Seen>) {
    let (wire, seen) = watch(wire);
    let rig = match polled {
        true => Rig::polled(wire, options),
        false => Rig::new(wire, options, false),
    };
    assert!(rig.queue().takes_parts());
    (rig, seen)
}
