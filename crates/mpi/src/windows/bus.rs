//! The bus: what streams call.

use std::any::Any;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError, Weak};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tidegate_hal::batch::{Op, POISON, Scalar};
use tidegate_hal::control::{Control, Packet};
use tidegate_hal::device::DeviceError;
use tidegate_hal::far::{Bus, BusError, CELL, MAILBOX, Piece, Reached, Span, Update};
use tidegate_hal::memory::Ptr;
use tidegate_words::Word;

use super::Form;
use super::agent::Agent;
use super::call::{NAME, failed};
use super::control::Notice;
use super::machine::Machine;
use super::ranks::Ranks;
use super::reductions::Wrong;
use super::segment::{Round, Segment};

/// How often a waiter looks before it turns MPI once, where what it looks at comes without that: words that near ranks
/// add to, and mailboxes.
const NEAR_LOOKS: u32 = 64;
const WORD_LOOKS: u32 = 8;

/// How long a rank that leaves waits for others to hear its last signals: each hears them within a millisecond while it lives.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// More segments than can ever be: each is twice as large as the one before.
const SEGMENTS: usize = 64;

/// What a key says.
#[derive(Serialize, Deserialize)]
struct Key {
    rank: usize,
    segment: usize,
    at: usize,
    bytes: usize,
    round: u32,
}

/// This rank's end, as threads share it.
pub(super) struct Inner {
    me: usize,
    ranks: Arc<Ranks>,
    /// Whether there are ranks that are not near.
    has_far: bool,
    /// Whether all ranks have met: until then they exchange verdicts, and need no notices.
    met: AtomicBool,
    machine: Mutex<Machine>,
    /// Blocks are made one after the other: each takes an exchange, and perhaps a collective call of MPI.
    rounds: Mutex<()>,
    failure: OnceLock<BusError>,
    /// What MPI gets wrong, once that is known.
    wrong: OnceLock<Wrong>,
    crashes_in_swap: bool,
    /// Who tells the others of a failure; the bus may outlive it.
    control: Weak<dyn Control>,
    /// This rank's parts of the segments, first byte and length, for looks without the lock.
    own: [(AtomicUsize, AtomicUsize); SEGMENTS],
    owns: AtomicUsize,
    far: Range<usize>,
    /// Turns of waiters, and signals given, since the agent has asked.
    waits: AtomicU64,
    signals: AtomicU64,
    /// How often a waiter looks before it turns MPI: mailboxes may be filled without that.
    looks: AtomicU32,
}

/// What happened of late.
pub(super) struct Activity {
    pub(super) waits: u64,
    pub(super) signals: u64,
}

impl Inner {
    pub(super) fn new(machine: Machine, control: &Arc<dyn Control>) -> Self {
        let ranks = machine.ranks.clone();
        let crashes_in_swap = ranks.crashes_in_swap;
        Inner {
            me: ranks.me,
            has_far: !ranks.all_near(),
            ranks,
            met: AtomicBool::new(false),
            far: machine.names.range(),
            machine: Mutex::new(machine),
            rounds: Mutex::default(),
            failure: OnceLock::new(),
            wrong: OnceLock::new(),
            crashes_in_swap,
            control: Arc::downgrade(control),
            own: [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; SEGMENTS],
            owns: AtomicUsize::new(0),
            waits: AtomicU64::new(0),
            signals: AtomicU64::new(0),
            looks: AtomicU32::new(NEAR_LOOKS),
        }
    }

    /// A panic under the lock would be one of this library's: nothing is left half done then but calls of MPI.
    #[inline]
    pub(super) fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Remembers why the bus is of no more use.
    #[inline]
    pub(super) fn note<T>(&self, outcome: Result<T, BusError>) -> Result<T, BusError> {
        outcome.inspect_err(|error| self.fail(error))
    }

    /// Fails it, and with it those of all ranks: words that this rank would have added to can be poisoned no more.
    #[cold]
    fn fail(&self, error: &BusError) {
        if self.failure.set(error.clone()).is_ok() {
            tracing::error!("{error}");
            if self.met.load(Ordering::Acquire) {
                self.tell_all(error);
            }
        }
    }

    fn tell_all(&self, error: &BusError) {
        if let Some(control) = self.control.upgrade() {
            // Who has gone needs to hear nothing.
            let _ = control.notify(None, &Notice::Failed(error.detail.clone()).encode());
        }
    }

    /// The ranks have met: what fails from now on, the others are told.
    pub(super) fn meet(&self) {
        self.met.store(true, Ordering::Release);
        if let Some(error) = self.failure.get() {
            self.tell_all(error);
        }
    }

    /// A rank has failed.
    pub(super) fn failed_at(&self, rank: usize, detail: &str) {
        let _ = self.failure.set(failed(format!("rank {rank}: {detail}")));
    }

    /// Closes it: no call of MPI is made any more.
    pub(super) fn close(&self, machine: &mut Machine, why: &str) {
        let error = failed(why);
        machine.ended = true;
        machine.closed.get_or_insert(error.clone());
        let _ = self.failure.set(error);
    }

    /// Turns MPI, unless somebody else is at it.
    pub(super) fn turn(&self) -> bool {
        let Some(mut machine) = self.if_free() else {
            return false;
        };
        // Also where this rank's bus has failed: what others have under way may need it.
        !machine.ended && self.note(machine.turn()).unwrap_or(false)
    }

    /// The machine, unless somebody is at it.
    fn if_free(&self) -> Option<MutexGuard<'_, Machine>> {
        match self.machine.try_lock() {
            Ok(machine) => Some(machine),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Keeps others from making blocks.
    pub(super) fn rounds(&self) -> MutexGuard<'_, ()> {
        self.rounds
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Waits until peers have heard all signals that were given, since who leaves is waited for no longer; but not for
    /// a peer that does not turn its MPI any more.
    pub(super) fn settle(&self) {
        let begun = Instant::now();
        let (mut said, mut naps) = (false, 0);
        while begun.elapsed() < LAST_WORDS {
            // Somebody may be held inside of MPI, by a rank that is gone.
            if let Some(mut machine) = self.if_free() {
                let heard = match std::mem::replace(&mut said, true) {
                    true => machine.all_heard(),
                    false => machine.say_last(self.me).map(|()| false),
                };
                if self.note(heard).unwrap_or(true) {
                    break;
                }
            }
            naps += 1;
            if naps < 100 {
                std::thread::yield_now();
            } else {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    }

    pub(super) fn activity(&self) -> Activity {
        Activity {
            waits: self.waits.swap(0, Ordering::Relaxed),
            signals: self.signals.load(Ordering::Relaxed),
        }
    }

    /// Where in its part of a segment a place in this rank's memory is.
    #[inline]
    fn own(&self, at: Ptr) -> Option<usize> {
        let at = at.0.addr();
        let owns = self.owns.load(Ordering::Acquire);
        self.own[..owns]
            .iter()
            .position(|(base, bytes)| {
                at.wrapping_sub(base.load(Ordering::Relaxed)) < bytes.load(Ordering::Relaxed)
            })
            .map(|segment| at - self.own[segment].0.load(Ordering::Relaxed))
    }

    /// Adds to a word what its mailbox holds that has not been added yet.
    ///
    /// # Safety
    ///
    /// The word lies at the beginning of a cell, in a block of this rank.
    #[cold]
    unsafe fn empty(&self, word: Ptr) {
        // SAFETY: the cell is the word's (the caller's promise), and these three places are only ever accessed atomically here.
        let (word, mailbox, seen) = unsafe { cell(word) };
        // Two may look at a time: nobody is to find the mark moved, and the word as it was.
        let machine = self.machine();
        loop {
            let (came, before) = (mailbox.load(), seen.load());
            if came == before {
                return;
            }
            // What came before the signal is seen by whoever sees the word now.
            let synced = machine.open().and_then(|()| machine.sync());
            if self.note(synced).is_err() {
                return;
            }
            if !seen.replace(before, came) {
                continue;
            }
            let count = |value: u64| value & !POISON;
            let more = count(came).wrapping_sub(count(before));
            if more != 0 {
                word.add(more);
            }
            if came & POISON != 0 {
                word.poison();
            }
        }
    }
}

/// A word, its mailbox, and how much of that has been added.
///
/// # Safety
///
/// The word lies at the beginning of a cell.
#[inline]
unsafe fn cell<'a>(word: Ptr) -> (&'a Word, &'a Word, &'a Word) {
    let at = |ptr: Ptr| ptr.0.cast::<Word>();
    // SAFETY: the caller's promise: the cell has room for all three, aligned, and they are words.
    unsafe {
        (
            &*at(word),
            &*at(word.byte_add(MAILBOX)),
            &*at(word.byte_add(MAILBOX + 8)),
        )
    }
}

/// MPI as a bus.
pub(super) struct Rma {
    inner: Arc<Inner>,
    control: Arc<dyn Control>,
    _agent: Agent,
}

/// Holds a block of this rank, or a peer's.
struct Hold {
    inner: Arc<Inner>,
    round: u32,
    whose: Whose,
}

enum Whose {
    Own,
    Peers(Option<Ptr>),
}

impl Drop for Hold {
    fn drop(&mut self) {
        let in_use = &mut self.inner.machine().in_use;
        match self.whose {
            Whose::Own => in_use.drops(self.round),
            Whose::Peers(far) => in_use.let_go(self.round, far),
        }
    }
}

impl Rma {
    pub(super) fn start(inner: Arc<Inner>, control: Arc<dyn Control>) -> Result<Self, DeviceError> {
        let agent = Agent::start(&inner).map_err(|e| DeviceError::Exhausted {
            what: "threads",
            detail: e.to_string(),
        })?;
        Ok(Rma {
            inner,
            control,
            _agent: agent,
        })
    }

    pub(super) fn control(&self) -> &dyn Control {
        &*self.control
    }

    pub(super) fn has_far(&self) -> bool {
        self.inner.has_far
    }

    /// The first of this rank and those near it.
    pub(super) fn first_near(&self) -> usize {
        let ranks = &self.inner.ranks;
        let first = (0..ranks.size()).find(|rank| ranks.is_near(*rank));
        first.expect("a rank is near itself")
    }

    /// What this rank has stored is there for peers' gets and updates.
    pub(super) fn publish(&self) -> Result<(), BusError> {
        let machine = self.inner.machine();
        let synced = machine.open().and_then(|()| machine.sync());
        self.inner.note(synced)
    }

    /// MPI is not asked for these any more.
    pub(super) fn leave_out(&self, wrong: Wrong) {
        let _ = self.inner.wrong.set(wrong);
    }

    /// From now on signals have this form.
    pub(super) fn set(&self, form: Form) {
        let looks = match form {
            _ if !self.inner.has_far => NEAR_LOOKS,
            Form::Words => WORD_LOOKS,
            _ => 1,
        };
        self.inner.looks.store(looks, Ordering::Relaxed);
        self.inner.machine().form = form;
    }

    /// Another window. Collective, and not under the machine's lock: streams go on, and hear of a rank that does not come.
    fn add_segment(&self, said: &[Round]) -> Result<(), DeviceError> {
        let inner = &self.inner;
        let (number, mine) = {
            let machine = inner.machine();
            (machine.segments.len(), machine.open())
        };
        // The same on all ranks, since all have made them together.
        if number == SEGMENTS {
            return Err(DeviceError::Exhausted {
                what: "segments of MPI",
                detail: format!("{number} are all"),
            });
        }
        let sizes = said.iter().map(|rank| rank.bytes).collect();
        // SAFETY: nobody else is making one (`rounds`), nor does MPI end meanwhile, whose end waits for that; nobody else
        // has the communicators for collective calls.
        let segment = unsafe { Segment::make(&inner.ranks, sizes, mine) };
        let segment = inner.note(segment).map_err(system)?;
        let (base, len) = &inner.own[number];
        base.store(segment.base.addr(), Ordering::Relaxed);
        len.store(segment.bytes[inner.me] - segment.skew, Ordering::Relaxed);
        inner.owns.store(number + 1, Ordering::Release);
        inner.machine().segments.push(segment);
        Ok(())
    }

    /// One round: see `segment.rs`.
    fn make(&self, bytes: usize) -> Result<(usize, usize, u32, Ptr), DeviceError> {
        let inner = &self.inner;
        let _one = inner.rounds();
        let mine = {
            let machine = &mut *inner.machine();
            machine
                .open()
                .and_then(|()| machine.in_use.round(&mut machine.segments, bytes))
        };
        // A rank that cannot go on says so, and does not leave the others waiting.
        let said = postcard::to_stdvec(&mine.as_ref().map_err(ToString::to_string));
        let packet = Packet {
            bytes: said.expect("plain data can be encoded"),
            handles: Vec::new(),
        };
        let packets = self.control.exchange("memory of MPI", packet);
        let mut said = Vec::new();
        for (rank, packet) in packets.map_err(system)?.into_iter().enumerate() {
            let round: Result<Round, String> =
                postcard::from_bytes(&packet.bytes).map_err(system)?;
            said.push(round.map_err(|text| DeviceError::Exhausted {
                what: "memory of MPI",
                detail: format!("rank {rank}: {text}"),
            })?);
        }
        if said.iter().any(|rank| rank.needs) {
            self.add_segment(&said)?;
        }
        let machine = &mut *inner.machine();
        machine.open().map_err(system)?;
        machine.in_use.reuse(&mut machine.segments, &said);
        let round = machine.in_use.rounds;
        machine.in_use.rounds += 1;
        let mut segments = machine.segments.iter_mut().enumerate();
        let found = segments.find_map(|(number, segment)| {
            let at = segment.pool.take(bytes)?;
            Some((number, at, segment.base.wrapping_add(at)))
        });
        let (segment, at, base) = found.ok_or_else(|| DeviceError::Exhausted {
            what: "memory of MPI",
            detail: format!("{bytes} bytes"),
        })?;
        machine.in_use.has(round, segment, at, bytes);
        // SAFETY: the stretch was free: it lies within this rank's part of the segment, and no rank holds what was there
        // before.
        unsafe {
            back(base, bytes)?;
            base.write_bytes(0, bytes);
        }
        machine.segments[segment].sync().map_err(system)?;
        let at = at + machine.segments[segment].skew;
        Ok((segment, at, round, Ptr(base)))
    }
}

/// Gives memory its pages: those of a file system that is full (`/dev/shm`) would end the process when they are touched.
///
/// # Safety
///
/// The memory is mapped, and this rank's.
unsafe fn back(base: *mut u8, bytes: usize) -> Result<(), DeviceError> {
    use rustix::mm::{Advice, madvise};
    let page = rustix::param::page_size();
    let before = base.addr() % page;
    let first = base.wrapping_sub(before).cast();
    // SAFETY: the caller's promise; populating changes nothing that is there.
    match unsafe { madvise(first, before + bytes, Advice::LinuxPopulateWrite) } {
        // Linux knows it since 5.14.
        Ok(()) | Err(rustix::io::Errno::INVAL) => Ok(()),
        Err(rustix::io::Errno::FAULT) => Err(DeviceError::Exhausted {
            what: "shared memory",
            detail: format!(
                "{bytes} bytes: there is no room where MPI keeps it (/dev/shm, most often)"
            ),
        }),
        Err(error) => Err(DeviceError::Exhausted {
            what: "shared memory",
            detail: format!("{bytes} bytes: {error}"),
        }),
    }
}

pub(super) fn system(error: impl std::fmt::Display) -> DeviceError {
    DeviceError::System {
        what: "memory of MPI",
        detail: error.to_string(),
    }
}

// SAFETY: data is complete at the target (`MPI_Win_flush`) before a signal is given, and before a get or a fetch
// returns; words are added to by processor atomics of their own node; blocks are used again only when all ranks have
// said that they hold nothing of their round.
unsafe impl Bus for Rma {
    fn name(&self) -> &'static str {
        NAME
    }

    fn alloc(&self, bytes: usize) -> Result<Span, DeviceError> {
        let (segment, at, round, base) = self.make(bytes)?;
        let key = Key {
            rank: self.inner.me,
            segment,
            at,
            bytes,
            round,
        };
        let keep: Arc<dyn Any + Send + Sync> = Arc::new(Hold {
            inner: self.inner.clone(),
            round,
            whose: Whose::Own,
        });
        Ok(Span {
            base,
            key: postcard::to_stdvec(&key).expect("plain data can be encoded"),
            keep,
        })
    }

    fn reach(&self, key: &[u8], bytes: usize) -> Result<Reached, DeviceError> {
        let bad = |what: String| DeviceError::BadHandle(what);
        let key: Key = postcard::from_bytes(key).map_err(|e| bad(e.to_string()))?;
        if key.bytes != bytes {
            return Err(bad(format!(
                "it names {} bytes where {bytes} were announced",
                key.bytes
            )));
        }
        let machine = &mut *self.inner.machine();
        let segment = machine.segments.get(key.segment);
        let segment = segment.filter(|segment| {
            let end = key.at.checked_add(bytes);
            let part = segment.bytes.get(key.rank);
            part.zip(end).is_some_and(|(part, end)| end <= *part)
        });
        let segment = segment.ok_or_else(|| bad("it names no memory of this job".into()))?;
        let (base, far) = if let Some(part) = segment.part(key.rank) {
            (part.byte_add(key.at), None)
        } else {
            let part = machine.name(key.segment, key.rank)?;
            let far = part.byte_add(key.at);
            machine.is_new(far, bytes);
            (far, Some(far))
        };
        machine.in_use.hold(key.round, far, bytes);
        let keep: Arc<dyn Any + Send + Sync> = Arc::new(Hold {
            inner: self.inner.clone(),
            round: key.round,
            whose: Whose::Peers(far),
        });
        Ok(Reached { base, keep })
    }

    fn far(&self) -> Range<usize> {
        self.inner.far.clone()
    }

    fn name_of(&self, near: Ptr) -> Result<Option<Ptr>, BusError> {
        // Where all ranks are near, nobody but processors updates anything.
        if !self.inner.has_far {
            return Ok(None);
        }
        let machine = &mut *self.inner.machine();
        let found = machine
            .segments
            .iter()
            .enumerate()
            .find_map(|(number, segment)| Some((number, segment.place(near)?)));
        let Some((number, (rank, at))) = found else {
            return Ok(None);
        };
        let part = machine.name(number, rank);
        let part = part.map_err(|error| failed(error.to_string()));
        Ok(Some(self.inner.note(part)?.byte_add(at)))
    }

    fn refuses(&self, reduction: Option<Op>, scalar: Scalar) -> Option<String> {
        if !self.inner.has_far {
            return None;
        }
        match reduction {
            None if self.inner.crashes_in_swap => Some(
                "Open MPI 4 crashes in MPI_Compare_and_swap where ranks of one node do not share their windows"
                    .into(),
            ),
            Some(op) if self.inner.wrong.get()?.contains(&(op, scalar)) => Some(format!(
                "this MPI reduces numbers of type {scalar:?} wrongly by {op:?}, which was found when the ranks met"
            )),
            _ => None,
        }
    }

    fn failure(&self) -> Option<BusError> {
        self.inner.failure.get().cloned()
    }

    unsafe fn put(&self, pieces: &[Piece]) -> Result<(), BusError> {
        // SAFETY: the caller's promise.
        self.inner
            .note(unsafe { self.inner.machine().copy(pieces, true) })
    }

    unsafe fn get(&self, pieces: &[Piece]) -> Result<(), BusError> {
        // SAFETY: the caller's promise.
        self.inner
            .note(unsafe { self.inner.machine().copy(pieces, false) })
    }

    unsafe fn update(
        &self,
        update: Update,
        scalar: Scalar,
        far: Ptr,
        local: Ptr,
        count: usize,
    ) -> Result<(), BusError> {
        let mut machine = self.inner.machine();
        // SAFETY: the caller's promise.
        self.inner
            .note(unsafe { machine.update(update, scalar, far, local, count) })
    }

    unsafe fn signal(&self, word: Ptr, value: u64) -> Result<(), BusError> {
        self.inner.signals.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        self.inner
            .note(unsafe { self.inner.machine().signal(word, value) })
    }

    unsafe fn poison(&self, word: Ptr) -> bool {
        let mut machine = self.inner.machine();
        // SAFETY: the caller's promise.
        machine.closed.is_none() && self.inner.note(unsafe { machine.poison(word) }).is_ok()
    }

    #[inline]
    unsafe fn look(&self, word: Ptr) {
        if !self.inner.has_far {
            return;
        }
        let Some(at) = self.inner.own(word) else {
            return;
        };
        // What lies elsewhere in a cell, an operand, peers do not add to.
        if !at.is_multiple_of(CELL) {
            return;
        }
        // SAFETY: it lies at the beginning of a cell, which is as long.
        let (_, mailbox, seen) = unsafe { cell(word) };
        if mailbox.load() != seen.load() {
            // SAFETY: as above.
            unsafe { self.inner.empty(word) };
        }
    }

    fn looks(&self) -> u32 {
        self.inner.looks.load(Ordering::Relaxed)
    }

    fn turn(&self) -> bool {
        self.inner.waits.fetch_add(1, Ordering::Relaxed);
        self.inner.turn()
    }
}
