//! Carries out moves with the processor.
//!
//! # Model
//!
//! A move consists of *rows*: elements with a constant distance on each side. If both sides are linear or loops with
//! strides, the rows come from a common nest of loops (`nest.rs`). Otherwise, for example with tables of indices, they
//! are the stretches that are contiguous on both sides (`walk.rs`). The work on a row is compiled for each element
//! size, or for each reduction and type. It is a copy of bytes, a gather or scatter, or arithmetic on several numbers
//! at a time (`numbers.rs`, `halves.rs`).
//!
//! A copy between two linear sides is one `memcpy`.
//!
//! # Failure
//!
//! There is none: the promises of a batch were checked when it was made.

mod halves;
mod nest;
mod numbers;
mod rows;
#[cfg(test)]
mod tests;
mod walk;

use std::mem::MaybeUninit;

use tidegate_hal::batch::{Action, Move, Op, Pull, Shape, Side};
use tidegate_hal::memory::Ptr;
use tidegate_words::{Mover, Word, ahead};

use nest::Loop;
use numbers::{combine, fold, swap};
use rows::for_each_row;
pub use rows::for_each_run;

/// Carries out moves on the host. Agents of NICs that work with the processor use it, too.
pub struct HostMover;

/// Which buffer it is the turn of, for the sides that have several.
///
/// # Safety
///
/// A parity that is not null points to a live word.
#[inline]
unsafe fn turn(step: &Move) -> usize {
    if step.parity.is_null() {
        return 0;
    }
    // SAFETY: the caller's promise.
    let epoch = unsafe { &*step.parity.0.cast::<Word>() }.epoch();
    epoch as usize & (step.buffers as usize - 1)
}

/// Where the two sides of a move lie in this epoch.
///
/// # Safety
///
/// A parity that is not null points to a live word.
#[inline]
pub(crate) unsafe fn by_turns(step: &Move) -> (*mut u8, *mut u8) {
    // SAFETY: the caller's promise.
    let turn = unsafe { turn(step) };
    let base = |side: &Side| side.base.0.wrapping_add(turn * side.flip);
    (base(&step.src), base(&step.dst))
}

/// The move for a copy whose count is in memory, to be made when the count can be read.
///
/// # Safety
///
/// `count` points to a live `u64` that nobody writes meanwhile, and so it does in each buffer, which `flip` leads to. A
/// parity that is not null points to a live word.
#[inline]
pub(crate) unsafe fn counted(step: &Move, count: Ptr, flip: usize) -> Move {
    // SAFETY: the caller's promise.
    let count = count.byte_add(unsafe { turn(step) } * flip);
    // SAFETY: the caller's promise.
    let count = unsafe { count.0.cast::<u64>().read() };
    Move {
        action: Action::Copy,
        // A count that does not fit `usize` is greater than the move's.
        count: usize::try_from(count).map_or(step.count, |count| count.min(step.count)),
        ..*step
    }
}

impl Mover for HostMover {
    unsafe fn carry(&mut self, step: &Move) {
        // SAFETY: `Batch::new` promises that a parity that is not null points to a live word.
        let (src, dst) = unsafe { by_turns(step) };
        match step.action {
            // The first vector of a reduction replaces what is there.
            Action::Copy
            | Action::Fold {
                op: Op::Replace,
                before: false,
                ..
            } => {
                let size = step.size as usize;
                if let (Shape::Linear, Shape::Linear) = (step.src.shape, step.dst.shape) {
                    // SAFETY: `Batch::new` promises that both sides are live and do not overlap, that nobody else
                    // writes the source meanwhile, and that nobody else accesses the destination.
                    unsafe {
                        match size * step.count {
                            // A call of `memcpy` takes longer than that.
                            8 => copy_each::<8>(1, (src, 0), (dst, 0)),
                            bytes => {
                                if step.buffers > 2 && step.dst.flip != 0 {
                                    ahead::claim(dst, bytes);
                                }
                                std::ptr::copy_nonoverlapping(src, dst, bytes);
                            }
                        }
                    }
                    return;
                }
                // SAFETY: the same promises, for every element that the shapes reach.
                unsafe {
                    match size {
                        1 => copy::<1>(step, src, dst),
                        2 => copy::<2>(step, src, dst),
                        4 => copy::<4>(step, src, dst),
                        8 => copy::<8>(step, src, dst),
                        _ => copy_bytes(step, src, dst),
                    }
                }
            }
            Action::CopyUpTo { count, flip } => {
                // SAFETY: `Batch::new` promises a live count that is written before the move; the rest is this move's.
                unsafe { self.carry(&counted(step, count, flip)) };
            }
            Action::Accumulate { op, scalar, atomic } => {
                // SAFETY: the caller's promise; both sides lie there in this epoch.
                unsafe { combine(step, src, dst, Ptr::NULL, op, scalar, atomic) };
            }
            Action::Fold { op, scalar, before } => {
                // SAFETY: the caller's promise; both sides lie there in this epoch, and are linear.
                unsafe { fold(step.count, src, dst, op, scalar, before) };
            }
            Action::FetchOp {
                op,
                scalar,
                result,
                atomic,
            } => {
                // SAFETY: as above; the result is the step's.
                unsafe { combine(step, src, dst, result, op, scalar, atomic) };
            }
            Action::CompareSwap {
                scalar,
                compare,
                result,
            } => {
                // SAFETY: as above; comparands and result are the step's.
                unsafe { swap(step, src, dst, compare, result, scalar) };
            }
        }
    }

    unsafe fn pull(&mut self, pull: &Pull, from: u64) -> bool {
        // SAFETY: the caller's promise: the destination is memory of this rank, as that of a move.
        unsafe { pull.origin.read(from, pull.to.0, pull.bytes) }
    }
}

/// Copies elements of `N` bytes, wherever they lie.
///
/// # Safety
///
/// Both sides are live for all elements and do not overlap; nobody else writes the source or accesses the destination;
/// index tables are live.
unsafe fn copy<const N: usize>(step: &Move, src: *mut u8, dst: *mut u8) {
    let row = |src: *mut u8, dst: *mut u8, by: Loop| {
        // SAFETY: the caller's promise for the elements of the row.
        unsafe {
            // For a single element, as from a table, a call of `memcpy` would not pay.
            if by.turns > 1 && by == Loop::contiguous(by.turns, N) {
                std::ptr::copy_nonoverlapping(src, dst, N * by.turns)
            } else {
                copy_each::<N>(by.turns, (src, by.by[0]), (dst, by.by[1]))
            }
        }
    };
    // SAFETY: the caller's promise.
    unsafe { for_each_row(step, src, dst, row) };
}

/// Copies elements of any size.
///
/// # Safety
///
/// As for [`copy`].
unsafe fn copy_bytes(step: &Move, src: *mut u8, dst: *mut u8) {
    let size = step.size as usize;
    let row = |src: *mut u8, dst: *mut u8, by: Loop| {
        // SAFETY: the caller's promise for the elements of the row.
        unsafe {
            if by.turns > 1 && by == Loop::contiguous(by.turns, size) {
                std::ptr::copy_nonoverlapping(src, dst, size * by.turns)
            } else {
                copy_row(size, by.turns, (src, by.by[0]), (dst, by.by[1]))
            }
        }
    };
    // SAFETY: the caller's promise.
    unsafe { for_each_row(step, src, dst, row) };
}

/// Copies `turns` stretches of `bytes` bytes. `from` and `to` are the address of the first stretch and the distance to
/// the next.
///
/// # Safety
///
/// All stretches may be read at the source, and written at the destination. The destination overlaps neither the source
/// nor itself. Nobody else writes the source or accesses the destination.
#[inline]
pub unsafe fn copy_row(bytes: usize, turns: usize, from: (*const u8, isize), to: (*mut u8, isize)) {
    // To call `memcpy` would take longer than these short copies do. SAFETY: the caller's promise.
    unsafe {
        match bytes {
            1 => copy_each::<1>(turns, from, to),
            2 => copy_each::<2>(turns, from, to),
            4 => copy_each::<4>(turns, from, to),
            8 => copy_each::<8>(turns, from, to),
            12 => copy_each::<12>(turns, from, to),
            16 => copy_each::<16>(turns, from, to),
            24 => copy_each::<24>(turns, from, to),
            32 => copy_each::<32>(turns, from, to),
            bytes => {
                let (mut src, mut dst) = (from.0, to.0);
                for _ in 0..turns {
                    src.copy_to_nonoverlapping(dst, bytes);
                    src = src.wrapping_offset(from.1);
                    dst = dst.wrapping_offset(to.1);
                }
            }
        }
    }
}

/// [`copy_row`] for stretches of `N` bytes.
///
/// # Safety
///
/// As for [`copy_row`].
unsafe fn copy_each<const N: usize>(turns: usize, from: (*const u8, isize), to: (*mut u8, isize)) {
    let ((mut src, by), (mut dst, on)) = (from, to);
    for _ in 0..turns {
        // SAFETY: the caller's promise; arrays of bytes are aligned anywhere.
        unsafe {
            dst.cast::<[MaybeUninit<u8>; N]>()
                .write(src.cast::<[MaybeUninit<u8>; N]>().read())
        };
        (src, dst) = (src.wrapping_offset(by), dst.wrapping_offset(on));
    }
}
