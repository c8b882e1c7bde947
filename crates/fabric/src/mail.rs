//! Memory for updates of peers, beside a registration: where their requests arrive, and the answers of peers.
//!
//! # Model
//!
//! A transfer that updates elements of the peer (an accumulate, say) goes as a *request*, which the peer's engine
//! *answers*: see "Updates" in [`tidegate_hal::nic`]. Each signalled word of an updated registration stands for a
//! *line*: this rank's queue to a peer, and the peer's queue to this rank. A line has
//!
//! - a word that counts the requests of the peer, and room for one request;
//! - a word that counts the peer's answers, and room for one answer.
//!
//! All of it is one registration of its own, [`Mail`]. Most of its pages are never touched, and take no memory unless
//! the NIC pins what is registered.
//!
//! A request is a head, then steps. Everything in it is aligned to 8 bytes:
//!
//! | part | fields |
//! |---|---|
//! | head | the number of the request (`u64`); the notice that is to be carried out when it has been applied, or 0 (`u64`); the number of steps (`u32`); the bytes of the answer (`u32`) |
//! | step | the offset of the first element in the window's memory (`u64`); the number of elements, side by side (`u32`); the action (`u32`); the comparands of a compare-and-swap; the operands |
//!
//! An answer contains the old values of all steps that return them, in order. Those of each step begin at a multiple of
//! 8 bytes.
//!
//! # Failure
//!
//! Anybody who reaches the endpoint can write here. So a request is read as a whole before anything of it is applied,
//! and it touches nothing but the memory of the registration. All others are [strays](crate::strays).

use std::sync::atomic::{AtomicUsize, Ordering};

use memmap2::MmapMut;
use tidegate_hal::batch::{Action, Move, Op, Scalar, Side};
use tidegate_hal::memory::Ptr;
use tidegate_hal::nic::{Keep, NicError};
use tidegate_host::HostMover;
use tidegate_words::{Mover as _, Word};

use crate::base::NAME;

/// The bytes of a request, and of an answer, at most.
pub(crate) const ROOM: usize = 32 << 10;
/// The bytes of the head of a request.
pub(crate) const HEAD: usize = 24;
/// The bytes of a step, without its operands.
pub(crate) const STEP: usize = 16;

/// What comes to a line's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Letter {
    Request,
    Answer,
}

impl Letter {
    /// The number of its word, and of its room.
    pub(crate) fn number(self, line: usize) -> usize {
        2 * line + usize::from(self == Letter::Answer)
    }

    /// The line and the letter of this number.
    pub(crate) fn of(number: usize) -> (usize, Self) {
        let letter = match number % 2 {
            0 => Letter::Request,
            _ => Letter::Answer,
        };
        (number / 2, letter)
    }
}

/// The offset of a word, by its number.
pub(crate) fn word_at(number: usize) -> usize {
    number * size_of::<Word>()
}

/// The offset of the room with this number, in mail of so many lines.
pub(crate) fn room_at(lines: usize, number: usize) -> usize {
    rooms(lines) + number * ROOM
}

/// Where the rooms begin.
fn rooms(lines: usize) -> usize {
    (2 * lines * size_of::<Word>()).next_multiple_of(64)
}

/// The bytes of the mail of so many lines. `None` if there can be no such memory.
pub(crate) fn bytes_of(lines: usize) -> Option<usize> {
    let most = isize::MAX as usize / (4 * ROOM);
    (lines <= most).then(|| room_at(lines, 2 * lines))
}

/// The bytes from one part of a letter to the next, if the first has so many.
pub(crate) const fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(8)
}

/// The action of a step as a number. `None` if the action is no update.
pub(crate) fn code_of(action: Action) -> Option<u32> {
    let op = |op: Op| Op::ALL.iter().position(|each| *each == op);
    let scalar = |scalar: Scalar| Scalar::ALL.iter().position(|each| *each == scalar);
    let (kind, op, scalar, atomic) = match action {
        Action::Copy | Action::CopyUpTo { .. } | Action::Fold { .. } => return None,
        Action::Accumulate {
            op: each,
            scalar: of,
            atomic,
        } => (0, op(each)?, scalar(of)?, atomic),
        Action::FetchOp {
            op: each,
            scalar: of,
            atomic,
            ..
        } => (1, op(each)?, scalar(of)?, atomic),
        Action::CompareSwap { scalar: of, .. } => (2, 0, scalar(of)?, true),
    };
    Some(kind | (op as u32) << 8 | (scalar as u32) << 16 | u32::from(atomic) << 24)
}

/// What a step does.
#[derive(Clone, Copy)]
struct Code {
    op: Option<Op>,
    scalar: Scalar,
    atomic: bool,
    /// Whether it returns old values.
    fetches: bool,
}

impl Code {
    fn of(code: u32) -> Option<Self> {
        let [kind, op, scalar, atomic] = code.to_le_bytes();
        let swaps = kind == 2;
        let op = *Op::ALL.get(usize::from(op))?;
        let scalar = *Scalar::ALL.get(usize::from(scalar))?;
        // The mover would leave such elements alone, and answer as if it had not.
        let is_float = scalar.is_float();
        let fits = kind <= 2 && atomic <= 1 && !(is_float && op.is_bitwise() && !swaps);
        fits.then_some(Code {
            op: (!swaps).then_some(op),
            scalar,
            atomic: atomic == 1,
            fetches: kind != 0,
        })
    }
}

/// Zeroed memory, whose pages take none until they are touched. (An allocator may touch them all.)
pub(crate) struct Zeroed {
    base: usize,
    memory: MmapMut,
}

impl Zeroed {
    pub(crate) fn new(bytes: usize) -> Result<Self, NicError> {
        let mut memory = MmapMut::map_anon(bytes.max(1)).map_err(|_| NicError::Exhausted {
            nic: NAME,
            what: "memory",
            detail: format!("{bytes} bytes for updates"),
        })?;
        Ok(Zeroed {
            base: memory.as_mut_ptr().expose_provenance(),
            memory,
        })
    }

    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset <= self.memory.len());
        std::ptr::with_exposed_provenance_mut(self.base + offset)
    }

    pub(crate) fn word(&self, offset: usize) -> &Word {
        // SAFETY: callers name places of words, which are within the memory, aligned, and only accessed atomically.
        unsafe { &*self.at(offset).cast::<Word>() }
    }
}

/// The mail of one registration.
pub(crate) struct Mail {
    pub(crate) memory: Zeroed,
    lines: usize,
    /// The registered memory, which requests update.
    base: usize,
    bytes: usize,
    /// The distance of its signalled words.
    step: usize,
    /// For each line, the number that its queue had in the engine when it was last looked for.
    queues: Vec<AtomicUsize>,
    _keep: Keep,
}

/// What is left to do when a request has been applied.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Applied {
    /// The notice to carry out after the answer, or 0.
    pub(crate) notice: u64,
    /// The bytes of the answer.
    pub(crate) answer: usize,
}

impl Mail {
    /// # Safety
    ///
    /// `base` is the first of `bytes` bytes of registered memory, which `keep` keeps. Its first words are `lines`
    /// signalled words, one each `step` bytes.
    pub(crate) unsafe fn new(
        base: *mut u8,
        bytes: usize,
        (lines, step): (usize, usize),
        keep: Keep,
    ) -> Result<Self, NicError> {
        let size = bytes_of(lines).ok_or_else(|| NicError::Exhausted {
            nic: NAME,
            what: "memory",
            detail: format!("updates of {lines} peers"),
        })?;
        Ok(Mail {
            memory: Zeroed::new(size)?,
            lines,
            base: base.expose_provenance(),
            bytes,
            step,
            queues: (0..lines).map(|_| AtomicUsize::new(0)).collect(),
            _keep: keep,
        })
    }

    pub(crate) fn bytes(&self) -> usize {
        room_at(self.lines, 2 * self.lines)
    }

    pub(crate) fn lines(&self) -> usize {
        self.lines
    }

    /// The address of the signalled word of a line.
    pub(crate) fn signalled(&self, line: usize) -> usize {
        self.base + line * self.step
    }

    /// The line of a signalled word.
    pub(crate) fn line_of(&self, word: usize) -> Option<usize> {
        let from = word.checked_sub(self.base)?;
        let line = from.checked_div(self.step).unwrap_or(0);
        (line < self.lines && line * self.step == from).then_some(line)
    }

    /// The number that the line's queue had in the engine when it was last looked for.
    pub(crate) fn queue(&self, line: usize) -> &AtomicUsize {
        &self.queues[line]
    }

    /// The word that counts letters of this kind.
    pub(crate) fn count(&self, line: usize, letter: Letter) -> &Word {
        self.memory.word(word_at(letter.number(line)))
    }

    /// The room of letters of this kind.
    pub(crate) fn room(&self, line: usize, letter: Letter) -> *mut u8 {
        self.memory.at(room_at(self.lines, letter.number(line)))
    }

    /// Applies the request that has come to a line, if it is the one of this number. The old values go to `answer`.
    ///
    /// # Safety
    ///
    /// At `answer` there are [`ROOM`] bytes, aligned to 8, which nothing else accesses.
    pub(crate) unsafe fn apply(
        &self,
        line: usize,
        number: u64,
        answer: *mut u8,
    ) -> Result<Applied, &'static str> {
        let request = self.room(line, Letter::Request);
        // SAFETY: the room has so many bytes, which are initialised, and aligned to 8. A peer that keeps the protocol
        // does not write there before it has the answer. (Each field is read once, so one that does not cannot change
        // what was checked.)
        let field = |at: usize| unsafe { request.add(at).cast::<u64>().read_volatile() };
        let (said, notice, sizes) = (field(0), field(8), field(16));
        if said != number {
            return Err("a request has come twice, or out of order");
        }
        let (steps, expected) = (sizes as u32 as usize, (sizes >> 32) as usize);
        let (mut at, mut back) = (HEAD, 0);
        let mut moves: Vec<Move> = Vec::new();
        for _ in 0..steps {
            if ROOM - at < STEP {
                return Err("a request was longer than its room");
            }
            let (offset, what) = (field(at), field(at + 8));
            let (count, code) = (what as u32 as usize, (what >> 32) as u32);
            at += STEP;
            let code = Code::of(code).ok_or("a request asked for an unknown action")?;
            let size = code.scalar.bytes();
            let bytes = padded(count * size);
            let operands = if code.op.is_none() { 2 } else { 1 };
            if count == 0 || bytes > ROOM || operands * bytes > ROOM - at {
                return Err("a request was longer than its room");
            }
            let offset = usize::try_from(offset).unwrap_or(usize::MAX);
            let end = offset.checked_add(count * size);
            let is_aligned = self.base.wrapping_add(offset).is_multiple_of(size);
            if !is_aligned || end.is_none_or(|end| end > self.bytes) {
                return Err("a request named elements outside of its window");
            }
            if code.fetches && bytes > ROOM - back {
                return Err("a request asked for more than an answer has room for");
            }
            let result = Ptr(answer.wrapping_add(back));
            back += if code.fetches { bytes } else { 0 };
            let compare = Ptr(request.wrapping_add(at));
            let operand = request.wrapping_add(at + (operands - 1) * bytes);
            at += operands * bytes;
            let (scalar, atomic) = (code.scalar, code.atomic);
            let action = match code.op {
                None => Action::CompareSwap {
                    scalar,
                    compare,
                    result,
                },
                Some(op) if code.fetches => Action::FetchOp {
                    op,
                    scalar,
                    result,
                    atomic,
                },
                Some(op) => Action::Accumulate { op, scalar, atomic },
            };
            let side = |base| Side::linear(Ptr(base));
            moves.push(Move {
                action,
                size: size as u32,
                count,
                src: side(operand),
                dst: side(std::ptr::with_exposed_provenance_mut(self.base + offset)),
                parity: Ptr::NULL,
                early: false,
                landing: None,
                buffers: 2,
            });
        }
        if back != expected {
            return Err("a request and its answer did not fit together");
        }
        for step in &moves {
            // SAFETY: all sides are within the request, the answer, or the registered memory, which this keeps, and
            // aligned, as was checked above. The request came after the exposure of the memory to this origin, by the
            // promise of `NicQueue::prepare`. Other accesses to the elements are atomic, or wait for the notice.
            unsafe { HostMover.carry(step) };
        }
        Ok(Applied {
            notice,
            answer: back,
        })
    }
}

impl std::fmt::Debug for Mail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mail")
            .field("lines", &self.lines)
            .finish_non_exhaustive()
    }
}

/// The number in a hint, for the search.
pub(crate) fn hint(of: &AtomicUsize) -> usize {
    of.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests;
