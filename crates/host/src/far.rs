//! Steps of a batch towards peers that a bus reaches.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tidegate_hal::batch::{Action, Add, Move, Shape, Side, Wait};
use tidegate_hal::far::{Bus, BusError, Piece, Update};
use tidegate_hal::memory::Ptr;
use tidegate_words::{Added, Blocked, Mover, State};

use crate::moves::{HostMover, by_turns, counted, for_each_run};

/// The longest sleep of a stream that waits for peers that ring no bell.
const NAP: Duration = Duration::from_millis(1);

/// If runs have at least this many bytes on average, they are sent from where they lie. Shorter runs are packed first.
const RUN: usize = 1024;

/// Carries out steps with near addresses as [`HostMover`] does, and leaves steps with far addresses to the bus.
pub(crate) struct Far {
    bus: Arc<dyn Bus>,
    far: Range<usize>,
    failed: Option<BusError>,
    pieces: Vec<Piece>,
    scratch: Scratch,
    looks: u32,
}

impl Far {
    pub(crate) fn new(bus: Arc<dyn Bus>) -> Self {
        Far {
            far: bus.far(),
            bus,
            failed: None,
            pieces: Vec::new(),
            scratch: Scratch::default(),
            looks: 0,
        }
    }

    /// Why the bus has failed, if it has.
    pub(crate) fn failure(&self) -> Option<BusError> {
        self.failed.clone().or_else(|| self.bus.failure())
    }

    #[inline]
    fn is_far(&self, at: *mut u8) -> bool {
        self.far.contains(&at.addr())
    }

    fn note(&mut self, outcome: Result<(), BusError>) {
        if let Err(error) = outcome {
            self.failed.get_or_insert(error);
        }
    }

    /// # Safety
    ///
    /// As for [`Mover::carry`]. `far` is the far side, and `local` the other.
    unsafe fn copy(
        &mut self,
        step: &Move,
        far: (*mut u8, Shape),
        local: (*mut u8, Shape),
        put: bool,
    ) {
        let size = step.size as usize;
        let place =
            |(base, _): (*mut u8, Shape), at: isize| Ptr(base.wrapping_offset(at * size as isize));
        self.pieces.clear();
        let mut from = local;
        let plain = local.1 == Shape::Linear || {
            let mut runs = 0;
            // SAFETY: the caller's promise: tables are live for all elements.
            unsafe { for_each_run(&far.1, &local.1, step.count, |_, _, _| runs += 1) };
            step.count * size / runs.max(1) >= RUN
        };
        if !plain {
            from = (self.scratch.take(step.count * size), Shape::Linear);
            if put {
                // SAFETY: the scratch has room for all elements, and nothing else uses that room; the source is as
                // promised.
                unsafe { HostMover.carry(&linear(step, local, from)) };
            }
        }
        let pieces = &mut self.pieces;
        // SAFETY: as above.
        unsafe {
            for_each_run(&far.1, &from.1, step.count, |there, here, run| {
                pieces.push(Piece {
                    far: place(far, there),
                    local: place(from, here),
                    bytes: run * size,
                });
            });
        }
        if put {
            // SAFETY: by the batch's promises, both sides are live, and only this origin accesses the target's until
            // the add of the lane. Packed elements stay in the scratch until then.
            let outcome = unsafe { self.bus.put(&self.pieces) };
            self.note(outcome);
        } else {
            // SAFETY: as above.
            let outcome = unsafe { self.bus.get(&self.pieces) };
            if outcome.is_ok() && !plain {
                // SAFETY: the scratch contains all elements now; the destination is as promised.
                unsafe { HostMover.carry(&linear(step, from, local)) };
            }
            self.note(outcome);
        }
    }

    /// # Safety
    ///
    /// As for [`Mover::carry`]. `dst` is a far address.
    unsafe fn update(&mut self, step: &Move, src: *mut u8, dst: *mut u8) {
        let size = step.size as usize;
        let (scalar, whole) = match step.action {
            Action::Copy | Action::CopyUpTo { .. } | Action::Fold { .. } => return,
            Action::Accumulate { op, scalar, .. } => (scalar, Update::Accumulate(op)),
            Action::FetchOp {
                op, scalar, result, ..
            } => (scalar, Update::Fetch(op, result)),
            Action::CompareSwap {
                scalar,
                compare,
                result,
            } => (scalar, Update::Swap { compare, result }),
        };
        let mut from = src;
        if step.src.shape != Shape::Linear {
            from = self.scratch.take(step.count * size);
            // SAFETY: the scratch has room for all elements; the source is as promised.
            unsafe {
                HostMover.carry(&linear(step, (src, step.src.shape), (from, Shape::Linear)));
            }
        }
        let mut outcome = Ok(());
        let bus = &self.bus;
        // SAFETY: tables are live for all elements; each run lies within all sides, which are as the batch promises.
        unsafe {
            for_each_run(
                &step.dst.shape,
                &Shape::Linear,
                step.count,
                |there, here, run| {
                    let at = here as usize * size;
                    let part = match whole {
                        Update::Accumulate(op) => Update::Accumulate(op),
                        Update::Fetch(op, result) => Update::Fetch(op, result.byte_add(at)),
                        Update::Swap { compare, result } => Update::Swap {
                            compare: compare.byte_add(at),
                            result: result.byte_add(at),
                        },
                    };
                    let far = Ptr(dst.wrapping_offset(there * size as isize));
                    if outcome.is_ok() {
                        outcome = bus.update(part, scalar, far, Ptr(from.wrapping_add(at)), run);
                    }
                },
            );
        }
        self.note(outcome);
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        if self.failure().is_some() {
            // A failed transport may still read the scratch, for an unknown time: so leak it.
            std::mem::forget(std::mem::take(&mut self.scratch));
        }
    }
}

/// The move that copies all elements of `step` from one place to another.
fn linear(step: &Move, from: (*mut u8, Shape), to: (*mut u8, Shape)) -> Move {
    let side = |(base, shape): (*mut u8, Shape)| Side {
        base: Ptr(base),
        flip: 0,
        shape,
    };
    Move {
        action: Action::Copy,
        size: step.size,
        count: step.count,
        src: side(from),
        dst: side(to),
        parity: Ptr::NULL,
        early: false,
        landing: None,
        buffers: 2,
    }
}

impl Mover for Far {
    unsafe fn carry(&mut self, step: &Move) {
        if self.failed.is_some() || step.count == 0 {
            return;
        }
        if let Action::CopyUpTo { count, flip } = step.action {
            // SAFETY: the caller's promise: the count is live and was written before the move; the rest is this move's.
            return unsafe { self.carry(&counted(step, count, flip)) };
        }
        // SAFETY: the caller's promise.
        let (src, dst) = unsafe { by_turns(step) };
        let atomic = match step.action {
            Action::Copy | Action::CopyUpTo { .. } | Action::Fold { .. } => false,
            Action::Accumulate { atomic, .. } | Action::FetchOp { atomic, .. } => atomic,
            Action::CompareSwap { .. } => true,
        };
        let named = if atomic && !self.is_far(dst) {
            self.bus.name_of(Ptr(dst))
        } else {
            Ok(None)
        };
        let named = match named {
            Ok(named) => named,
            // A processor's update would not be atomic with the updates of the bus.
            Err(error) => return self.note(Err(error)),
        };
        let (there, here) = (self.is_far(dst), self.is_far(src));
        // SAFETY: the caller's promise, for the sides as they are in this epoch.
        unsafe {
            match (step.action, named) {
                (Action::Copy, _) if there => {
                    self.copy(step, (dst, step.dst.shape), (src, step.src.shape), true);
                }
                (Action::Copy, _) if here => {
                    self.copy(step, (src, step.src.shape), (dst, step.dst.shape), false);
                }
                (_, Some(name)) => self.update(step, src, name.0),
                _ if there => self.update(step, src, dst),
                _ => HostMover.carry(step),
            }
        }
    }

    unsafe fn add(&mut self, add: &Add) -> Added {
        if self.failed.is_some() {
            return Added::Broken;
        }
        if !self.is_far(add.word.0) {
            // The bus has completed its updates of near memory, and packed elements for other ranks are sent before
            // another lane goes on. So the scratch is free.
            self.scratch.clear();
            // SAFETY: the caller's promise; neither is far.
            return unsafe { HostMover.add(add) };
        }
        // SAFETY: the word is a peer's, in a block that the batch's submitter holds; core lays out words at the
        // beginning of cells.
        let outcome = unsafe { self.bus.signal(add.word, add.value) };
        if outcome.is_ok() {
            // Otherwise the transport may still read the scratch.
            self.scratch.clear();
        }
        self.note(outcome);
        // The bus has told the peer.
        match self.failed {
            None => Added::Quietly,
            Some(_) => Added::Broken,
        }
    }

    unsafe fn poison(&mut self, add: &Add) {
        // SAFETY: as for `add`.
        unsafe {
            if self.is_far(add.word.0) {
                if self.bus.poison(add.word) {
                    self.scratch.clear();
                }
            } else {
                HostMover.poison(add);
            }
        }
    }

    unsafe fn look(&mut self, wait: &Wait) -> State {
        // SAFETY: the caller's promise.
        unsafe {
            self.bus.look(wait.word);
            match HostMover.look(wait) {
                // A peer that has left may have given its signal after the look at the bus, and before the poison. So
                // look again.
                State::Poisoned => {
                    self.bus.look(wait.word);
                    HostMover.look(wait)
                }
                state => state,
            }
        }
    }

    fn blocked(&mut self) -> Blocked {
        // Some signals arrive without a turn of the bus, and looks find those sooner. So turn only sometimes.
        self.looks = self.looks.wrapping_add(1);
        if !self.looks.is_multiple_of(self.bus.looks()) {
            return Blocked::Waits;
        }
        if self.bus.turn() {
            Blocked::Again
        } else {
            Blocked::unless(self.failure().is_some())
        }
    }

    fn nap(&self) -> Option<Duration> {
        Some(NAP)
    }
}

/// The memory in which elements are packed. It does not move, because the bus sends from it.
#[derive(Default)]
struct Scratch {
    /// Chunks of 8-byte words, so that all elements are aligned. All but the last are full.
    chunks: VecDeque<Vec<u64>>,
    used: usize,
}

impl Scratch {
    /// Takes room for `bytes` bytes.
    fn take(&mut self, bytes: usize) -> *mut u8 {
        let words = bytes.div_ceil(8);
        let fits = |chunk: &Vec<u64>| chunk.len() - self.used >= words;
        if !self.chunks.back().is_some_and(fits) {
            let largest = self.chunks.back().map_or(0, Vec::len);
            self.chunks
                .push_back(vec![0; words.max(2 * largest).max(512)]);
            self.used = 0;
        }
        let chunk = self.chunks.back_mut().expect("there is one");
        let at = chunk[self.used..][..words].as_mut_ptr();
        self.used += words;
        at.cast()
    }

    /// Frees all room that was taken.
    fn clear(&mut self) {
        self.used = 0;
        if self.chunks.len() > 1 {
            let last = self.chunks.len() - 1;
            self.chunks.drain(..last);
        }
    }
}
