//! Folds to one destination, in one step.
//!
//! # Model
//!
//! Neighbouring folds of a lane with one destination become a *reduction*: one step, with a *term* for each source. Each
//! element belongs to one thread, which combines the terms in their order, and writes the element once.
//!
//! In a sum of elements of 4 or 8 bytes, or of floats of 2, a thread has several *lines* of 16 bytes on their way at a time, if all sides are
//! aligned to 16 bytes. Elements behind the lines go one by one, and so do all in other reductions.

use tidegate_hal::batch::{Action, Move, Op, Scalar, Step};
use tidegate_hal::device::DeviceError;
use tidegate_hal::memory::Ptr;

use super::layout::address;
use super::layout::{
    ACTION_REDUCE, Head, LINE, MoveStep, OP_MAX_BEFORE, OP_MIN_BEFORE, STEP_MOVE, TermStep, push,
};
use super::moves::{code, number};

/// The most terms of a step, whose length has 16 bits.
const MOST: usize = 1 << 14;

/// The most lines of a step. The kernel counts them, and a little beyond the last, in 32 bits.
const MOST_LINES: u64 = 1 << 31;

/// The operation of a fold, the elements' type, and whether the new value comes first.
pub(super) fn fold(mv: &Move) -> Option<(Op, Scalar, bool)> {
    match mv.action {
        Action::Fold { op, scalar, before } => Some((op, scalar, before)),
        _ => None,
    }
}

/// The folds in front of `steps` that are one reduction: those that follow each other, with the destination and the
/// elements of the first.
pub(super) fn of(steps: &[Step]) -> Vec<&Move> {
    let moves = steps.iter().map_while(|step| match step {
        Step::Move(mv) => Some(mv),
        _ => None,
    });
    let mut moves = moves.peekable();
    let one = |mv: &Move| fold(mv).map(|(_, scalar, _)| (mv.dst.base, mv.count, scalar));
    let first = moves.peek().and_then(|first| one(first));
    moves
        .take_while(|mv| first.is_some() && one(mv) == first)
        .collect()
}

/// The kernel's operation. The order of the operands matters to some operations alone.
pub(super) fn operation(op: Op, before: bool) -> u32 {
    u32::from(match (op, before) {
        (Op::Min, true) => OP_MIN_BEFORE,
        (Op::Max, true) => OP_MAX_BEFORE,
        (Op::Replace, true) => code(Op::Keep),
        (Op::Keep, true) => code(Op::Replace),
        _ => code(op),
    })
}

/// The kernel's operation of a term that replaces the value before it.
pub(super) const REPLACE: u32 = Op::Replace as u32;

/// How many units of a copy an element counts as. A thread has several lines on their way at a time, but one element.
pub(super) const ELEMENT_WORTH: u64 = 2;

/// From how many units on a block reduces faster than a warp: each unit is two fetches or more.
pub(super) const SMALL: u64 = 64;

/// What a thread does: whole lines, and elements behind them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    pub(super) lines: u64,
    pub(super) elements: u64,
}

/// Appends the step of a reduction. `last` is the operand of the lane's last wait.
///
/// # Errors
///
/// [`DeviceError::Unsupported`] if there are too many terms.
pub(super) fn lower(moves: &[&Move], last: Ptr, out: &mut Vec<u8>) -> Result<Work, DeviceError> {
    let first = moves[0];
    if moves.len() > MOST {
        return Err(DeviceError::Unsupported {
            device: "gpu",
            what: format!("a reduction of more than {MOST} vectors"),
        });
    }
    let mut work = Work {
        lines: 0,
        elements: first.count as u64,
    };
    if first.count == 0 {
        return Ok(work);
    }
    let sides = moves
        .iter()
        .map(|mv| address(mv.src.base) | mv.src.flip as u64);
    let all = sides.fold(address(first.dst.base), |all, side| all | side);
    let size = u64::from(first.size);
    let folds = moves
        .iter()
        .map(|mv| (*mv, fold(mv).expect("a reduction consists of folds")));
    let folds: Vec<_> = folds.collect();
    // All have the scalar of the first.
    let (_, (_, scalar, _)) = folds[0];
    let mut ops = folds.iter().map(|(_, (op, ..))| *op).enumerate();
    let has_lines = size >= 4 || scalar.is_float();
    let sums = has_lines && ops.all(|(at, op)| op == Op::Sum || (at == 0 && op == Op::Replace));
    if sums && all.is_multiple_of(LINE) && work.elements * size / LINE <= MOST_LINES {
        work.lines = work.elements * size / LINE;
        work.elements -= work.lines * LINE / size;
    }
    let bytes = size_of::<MoveStep>().next_multiple_of(16) + moves.len() * size_of::<TermStep>();
    let terms: Vec<_> = folds
        .iter()
        .map(|&(mv, (op, _, before))| {
            let is_last = !mv.parity.is_null() && mv.parity == last;
            TermStep {
                src: address(mv.src.base),
                flip: mv.src.flip as u64,
                parity: address(mv.parity),
                op: operation(op, before),
                last: u32::from(is_last),
            }
        })
        .collect();
    let step = MoveStep {
        head: Head {
            length: (bytes / 16) as u16,
            ..Head::of::<MoveStep>(STEP_MOVE)
        },
        count: work.lines,
        result: work.elements,
        dst: address(first.dst.base),
        size: first.size,
        sub: terms.len() as u32,
        action: ACTION_REDUCE,
        op: code(if sums { Op::Sum } else { Op::Keep }),
        scalar: number(scalar),
        unit: first.size.trailing_zeros() as u8,
        ..MoveStep::default()
    };
    push(&step, out);
    terms.iter().for_each(|term| push(term, out));
    Ok(work)
}
