//! How far operands will have come.
//!
//! # Model
//!
//! A gate compares a word with a number that the host knows when it enqueues the gate: how far the operand will have
//! been advanced by all that is enqueued before. Batches advance operands, as many times as they are executed; so
//! [`Operands`] follows every submission and every replay. It is only kept where there are gates.
//!
//! Operands lie in memory that this process has allocated. One whose memory was there before anybody kept count is not
//! known, and a wait with it has no gate. Memory is zero when it is allocated, wherever it lies: what was known of an
//! operand at the same address before is forgotten. A word in memory of the stream-ordered pool has no gate: the driver
//! refuses stream memory operations there (measured: `CUDA_ERROR_INVALID_VALUE`). Words that peers add to are mapped,
//! and not of the pool.
//!
//! # Failure
//!
//! A stream that fails advances nothing any more, so the numbers are too great from then on. That stream has no more
//! use for them, and opens its gates: see [`crate::reclaim`].

use std::collections::{BTreeMap, HashMap};

use tidegate_hal::batch::{Batch, Step, Wait};
use tidegate_hal::memory::Ptr;

/// How much a submission adds to each operand.
pub(crate) type Advance = Vec<(u64, u64)>;

/// A piece of memory.
#[derive(Debug)]
struct Piece {
    end: u64,
    /// No other has had it, wherever it lay.
    number: u64,
    /// The operands in it that are not zero.
    known: HashMap<u64, u64>,
    /// Whether stream memory operations take it.
    gated: bool,
}

/// What is known.
#[derive(Debug, Default)]
pub(crate) struct Operands {
    /// By their beginning.
    pieces: BTreeMap<u64, Piece>,
    allocated: u64,
}

fn address(ptr: Ptr) -> u64 {
    ptr.0.addr() as u64
}

/// What lanes add to operands, and to words of this process that operands are compared with.
pub(crate) fn advance<'a>(lanes: impl IntoIterator<Item = &'a [Step]>) -> Advance {
    let each = |step: &Step| match step {
        Step::Wait(wait) if wait.quantum != 0 => Some((address(wait.operand), wait.quantum)),
        // Nobody sleeps on an operand.
        Step::Add(add) if add.bell.is_null() => Some((address(add.word), add.value)),
        _ => None,
    };
    lanes.into_iter().flatten().filter_map(each).collect()
}

/// As [`advance`], of a whole batch.
pub(crate) fn advance_of(batch: &Batch) -> Advance {
    advance(batch.lanes().iter().map(|lane| batch.steps(*lane)))
}

impl Operands {
    /// New memory, all zero; `gated`: stream memory operations take it.
    pub(crate) fn allocated(&mut self, base: u64, bytes: u64, gated: bool) {
        self.allocated += 1;
        let piece = Piece {
            end: base + bytes,
            number: self.allocated,
            known: HashMap::new(),
            gated,
        };
        self.pieces.insert(base, piece);
    }

    /// Memory that is about to go.
    pub(crate) fn freed(&mut self, base: u64) {
        self.pieces.remove(&base);
    }

    fn piece(&self, at: u64) -> Option<&Piece> {
        let (_, piece) = self.pieces.range(..=at).next_back()?;
        (at < piece.end).then_some(piece)
    }

    /// Notes a submission, that will be executed so many times.
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

    /// How far the word of a wait must come, if the wait is enqueued now, and the number of the piece in which the word lies.
    pub(crate) fn awaited(&self, wait: &Wait) -> Option<(u64, u64)> {
        let at = address(wait.operand);
        let known = &self.piece(at)?.known;
        let from = known.get(&at).copied().unwrap_or(0);
        let piece = self.piece(address(wait.word))?;
        piece.gated.then_some((from + wait.quantum, piece.number))
    }

    /// Whether a word lies still in that piece. It does for as long as this is borrowed.
    pub(crate) fn has(&self, word: u64, number: u64) -> bool {
        self.piece(word).is_some_and(|piece| piece.number == number)
    }
}
