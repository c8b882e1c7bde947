//! The bus: the operations that streams call.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};
use tidegate_hal::batch::{Op, Scalar};
use tidegate_hal::control::Control;
use tidegate_hal::device::DeviceError;
use tidegate_hal::far::{Bus, BusError, CELL, Piece, Reached, Span, Update};
use tidegate_hal::memory::Ptr;

use super::agent::Agent;
use super::call::{NAME, failed};
use super::inner::{Inner, NEAR_LOOKS, SEGMENTS, WORD_LOOKS, Wrong, cell, computes};
use super::options::Form;
use super::segment::{Round, Segment};

/// The contents of a key.
#[derive(Serialize, Deserialize)]
struct Key {
    rank: usize,
    segment: usize,
    at: usize,
    bytes: usize,
    round: u32,
}

/// MPI as a bus.
pub(super) struct Rma {
    inner: Arc<Inner>,
    control: Arc<dyn Control>,
    /// If all ranks are near, nothing comes by MPI, and there is no agent.
    _agent: Option<Agent>,
}

/// Keeps a block of this rank, or of a peer.
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
        let agent = inner.has_far.then(|| Agent::start(&inner)).transpose();
        let agent = agent.map_err(|e| DeviceError::Exhausted {
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

    /// The lowest of this rank and the ranks near it.
    pub(super) fn first_near(&self) -> usize {
        let ranks = &self.inner.ranks;
        let first = (0..ranks.size()).find(|rank| ranks.is_near(*rank));
        first.expect("a rank is near itself")
    }

    /// Makes this rank's stores visible to peers' gets and updates.
    pub(super) fn publish(&self) -> Result<(), BusError> {
        let machine = self.inner.machine();
        let synced = machine.open().and_then(|()| machine.sync());
        self.inner.note(synced)
    }

    /// Sets the reductions for which MPI is not used.
    pub(super) fn leave_out(&self, wrong: Wrong) {
        let _ = self.inner.wrong.set(wrong);
    }

    /// Sets the form of signals.
    pub(super) fn set(&self, form: Form) {
        let looks = match form {
            _ if !self.inner.has_far => NEAR_LOOKS,
            Form::Words => WORD_LOOKS,
            _ => 1,
        };
        self.inner.looks.store(looks, Ordering::Relaxed);
        self.inner.machine().form = form;
    }

    /// Makes another segment. Collective, and not under the machine's lock: streams go on, and learn about a rank that
    /// does not come.
    fn add_segment(&self, said: &[Round]) -> Result<(), DeviceError> {
        let inner = &self.inner;
        let (number, mine) = {
            let machine = inner.machine();
            (machine.segments.len(), machine.open())
        };
        // The number is the same on all ranks, since all have made the segments together.
        if number == SEGMENTS {
            return Err(DeviceError::Exhausted {
                what: "segments of MPI",
                detail: format!("{number} are all"),
            });
        }
        let sizes = said.iter().map(|rank| rank.bytes).collect();
        // SAFETY: no other thread makes a segment (`rounds`). MPI does not end meanwhile, because its end waits for
        // that lock. Nothing else uses the communicators for collective calls.
        let segment = unsafe { Segment::make(&inner.ranks, sizes, mine) };
        let segment = inner.note(segment).map_err(system)?;
        let (base, len) = &inner.own[number];
        base.store(segment.base.addr(), Ordering::Relaxed);
        len.store(
            segment.bytes[inner.ranks.me] - segment.skew,
            Ordering::Relaxed,
        );
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
        // A rank that cannot go on says so, so that the others do not wait for it.
        let said = postcard::to_stdvec(&mine.as_ref().map_err(ToString::to_string));
        let said = said.expect("plain data can be encoded");
        let all = self.control.exchange("memory of MPI", said);
        let mut said = Vec::new();
        for (rank, round) in all.map_err(system)?.into_iter().enumerate() {
            let round: Result<Round, String> = postcard::from_bytes(&round).map_err(system)?;
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
        // SAFETY: the range was free. It lies within this rank's part of the segment, and no rank holds a block that
        // was there before.
        unsafe {
            back(base, bytes)?;
            base.write_bytes(0, bytes);
        }
        machine.segments[segment].sync().map_err(system)?;
        let at = at + machine.segments[segment].skew;
        Ok((segment, at, round, Ptr(base)))
    }
}

/// Allocates the pages of memory. If its file system (`/dev/shm`) is full, touching a page would end the process.
///
/// # Safety
///
/// The memory is mapped, and belongs to this rank.
unsafe fn back(base: *mut u8, bytes: usize) -> Result<(), DeviceError> {
    use rustix::mm::{Advice, madvise};
    let page = rustix::param::page_size();
    let before = base.addr() % page;
    let first = base.wrapping_sub(before).cast();
    // SAFETY: the caller's promise; populating does not change the contents.
    match unsafe { madvise(first, before + bytes, Advice::LinuxPopulateWrite) } {
        // Linux has this advice since 5.14.
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

// SAFETY: data is complete at the target (`MPI_Win_flush`) before its signal is given, and before a get or a fetch
// returns. Words are added to by processor atomics of their own node. A block is reused only after all ranks have said
// that they hold nothing of its round.
unsafe impl Bus for Rma {
    fn name(&self) -> &'static str {
        NAME
    }

    fn alloc(&self, bytes: usize) -> Result<Span, DeviceError> {
        let (segment, at, round, base) = self.make(bytes)?;
        let key = Key {
            rank: self.inner.ranks.me,
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
        // If all ranks are near, only processors update anything.
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
            None if self.inner.ranks.crashes_in_swap => Some(
                "Open MPI 4 crashes in MPI_Compare_and_swap where ranks of one node do not share their windows"
                    .into(),
            ),
            Some(op) if !computes(op, scalar) => {
                Some("MPI has no floats of 16 bits, so it cannot compute with them".into())
            }
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
        // The lock is held until the error is noted, here and below. Otherwise a thread could find the machine closed,
        // but the bus without an error.
        let mut machine = self.inner.machine();
        // SAFETY: the caller's promise.
        self.inner.note(unsafe { machine.copy(pieces, true) })
    }

    unsafe fn get(&self, pieces: &[Piece]) -> Result<(), BusError> {
        let mut machine = self.inner.machine();
        // SAFETY: the caller's promise.
        self.inner.note(unsafe { machine.copy(pieces, false) })
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
        let mut machine = self.inner.machine();
        // SAFETY: the caller's promise.
        self.inner.note(unsafe { machine.signal(word, value) })
    }

    unsafe fn poison(&self, word: Ptr) -> bool {
        let mut machine = self.inner.machine();
        // SAFETY: the caller's promise.
        self.inner.note(unsafe { machine.poison(word) }).is_ok()
    }

    #[inline]
    unsafe fn look(&self, word: Ptr) {
        if !self.inner.has_far {
            return;
        }
        let Some(at) = self.inner.own(word) else {
            return;
        };
        // Peers do not add to other places of a cell, such as operands.
        if !at.is_multiple_of(CELL) {
            return;
        }
        // SAFETY: the word is at the beginning of a cell, which has room for all three.
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
