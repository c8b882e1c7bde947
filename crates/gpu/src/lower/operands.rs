//! How far operands will have come.
//!
//! # Model
//!
//! A gate compares a word with a number that the host must know when it enqueues the gate: the value of the operand
//! after everything that was enqueued before. Batches advance operands each time that they are executed, so
//! [`Operands`] follows every submission and every replay. It is kept only if there are gates.
//!
//! Operands lie in memory that this process has allocated. If the memory was there before the counting began, the
//! operand is not known, and a wait with it has no gate. New memory is zero, so a new allocation at the same address
//! replaces the known values.
//!
//! A word in memory of the stream-ordered pool has no gate, because the driver refuses stream memory operations there
//! (measured). Words that peers add to are in mapped memory, and not in the pool.
//!
//! # Failure
//!
//! A stream that fails advances nothing any more, so the numbers are too high from then on. The stream does not need
//! them any more, and opens its gates: see [`crate::reclaim`].

use std::collections::{BTreeMap, HashMap};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use tidegate_hal::batch::{Batch, Step, Wait};
use tidegate_hal::lock;

use super::layout::address;

/// How much a submission adds to each operand.
pub(crate) type Advance = Vec<(u64, u64)>;

/// A piece of memory.
#[derive(Debug)]
pub(super) struct Piece {
    end: u64,
    /// A number that no other piece has had, even at the same address.
    number: u64,
    /// The operands in it that are not zero.
    known: HashMap<u64, u64>,
    /// Whether stream memory operations work on it.
    gated: bool,
    /// How many callers look at a word of it. It is not freed before they are done.
    held: usize,
}

/// The pieces of memory, with the operands in them.
#[derive(Debug, Default)]
pub(crate) struct Operands {
    /// The pieces by their first addresses.
    pieces: BTreeMap<u64, Piece>,
    allocated: u64,
}

/// How much lanes add to operands, and to words of this process with which operands are compared.
pub(crate) fn advance<'a>(lanes: impl IntoIterator<Item = &'a [Step]>) -> Advance {
    let each = |step: &Step| match step {
        Step::Wait(wait) if wait.quantum != 0 => Some((address(wait.operand), wait.quantum)),
        // An operand has no bell, since nobody sleeps on it.
        Step::Add(add) if add.bell.is_null() => Some((address(add.word), add.value)),
        _ => None,
    };
    lanes.into_iter().flatten().filter_map(each).collect()
}

/// [`advance`] of a whole batch.
pub(crate) fn advance_of(batch: &Batch) -> Advance {
    advance(batch.lanes().iter().map(|lane| batch.steps(*lane)))
}

impl Operands {
    /// Notes new memory, which is all zero. `gated` says whether stream memory operations work on it.
    pub(crate) fn allocated(&mut self, base: u64, bytes: u64, gated: bool) {
        self.allocated += 1;
        let piece = Piece {
            end: base + bytes,
            number: self.allocated,
            known: HashMap::new(),
            gated,
            held: 0,
        };
        self.pieces.insert(base, piece);
    }

    /// Notes that memory is freed.
    pub(super) fn freed(&mut self, base: u64) {
        self.pieces.remove(&base);
    }

    fn piece(&self, at: u64) -> Option<&Piece> {
        let (_, piece) = self.pieces.range(..=at).next_back()?;
        (at < piece.end).then_some(piece)
    }

    /// Notes a submission that will be executed `times` times.
    pub(crate) fn advance(&mut self, by: &[(u64, u64)], times: u64) {
        for (at, value) in by {
            if let Some((_, piece)) = self.pieces.range_mut(..=*at).next_back()
                && *at < piece.end
            {
                let operand = piece.known.entry(*at).or_default();
                *operand = operand.wrapping_add(value.wrapping_mul(times));
            }
        }
    }

    /// The value that the word of a wait must reach, if the wait is enqueued now, and the number of the piece that
    /// contains the word.
    pub(crate) fn awaited(&self, wait: &Wait) -> Option<(u64, u64)> {
        let at = address(wait.operand);
        let known = &self.piece(at)?.known;
        let from = known.get(&at).copied().unwrap_or(0);
        let piece = self.piece(address(wait.word))?;
        piece.gated.then_some((from + wait.quantum, piece.number))
    }

    /// The piece of this number, if it still contains the word.
    pub(super) fn piece_of(&mut self, word: u64, number: u64) -> Option<&mut Piece> {
        let (_, piece) = self.pieces.range_mut(..=word).next_back()?;
        (word < piece.end && piece.number == number).then_some(piece)
    }
}

/// [`Operands`] for all threads.
///
/// The driver may take long to give the value of a word. Meanwhile a caller holds the piece that contains the word, and
/// not the lock. So only a caller that frees this piece has to wait.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    operands: Mutex<Operands>,
    /// Notified when a piece is no longer held.
    let_go: Condvar,
}

/// A piece that is held.
pub(crate) struct Held<'a> {
    of: &'a Shared,
    word: u64,
    number: u64,
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Operands> {
        lock(&self.operands)
    }

    /// Holds the piece that contains a word, if it still has this number.
    pub(crate) fn hold(&self, word: u64, number: u64) -> Option<Held<'_>> {
        self.lock().piece_of(word, number)?.held += 1;
        Some(Held {
            of: self,
            word,
            number,
        })
    }

    /// Notes that memory is freed. When this returns, nobody looks at it any more.
    pub(crate) fn freed(&self, base: u64) {
        let mut operands = self.lock();
        while operands
            .pieces
            .get(&base)
            .is_some_and(|piece| piece.held > 0)
        {
            let waited = self.let_go.wait(operands);
            operands = waited.unwrap_or_else(PoisonError::into_inner);
        }
        operands.freed(base);
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(piece) = self.of.lock().piece_of(self.word, self.number) {
            piece.held -= 1;
        }
        self.of.let_go.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_piece_that_is_looked_at_stays_and_nobody_else_waits() {
        let shared = Shared::default();
        shared.lock().allocated(0x1000, 0x100, true);
        shared.lock().allocated(0x2000, 0x100, true);
        assert!(shared.hold(0x1100, 1).is_none(), "it lies behind the piece");
        assert!(shared.hold(0x1008, 2).is_none(), "another piece lay there");
        let (held, again) = (shared.hold(0x1008, 1), shared.hold(0x10f8, 1));
        let (said, hear) = channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                shared.freed(0x1000);
                said.send(()).unwrap();
            });
            // Submissions go on, and memory that nobody looks at can be freed.
            shared.lock().advance(&[(0x1010, 5)], 2);
            shared.freed(0x2000);
            drop(held);
            assert!(hear.try_recv().is_err(), "it is looked at still");
            drop(again);
            hear.recv().unwrap();
            assert!(shared.hold(0x1008, 1).is_none());
        });
    }
}
