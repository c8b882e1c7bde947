//! Accumulates of one destination, in one step.
//!
//! # Model
//!
//! A lane that accumulates one source after the other would read and write its destination for each. What stands side by
//! side, and of which nobody else writes the destination meanwhile, becomes a *reduction*: a step with as many *terms* as
//! there are sources. Each element is one thread's, which fetches several terms at a time, combines them in their order,
//! and writes the element once.

use tidegate_hal::batch::{Action, Move, Op, Scalar, Shape, Step};
use tidegate_hal::memory::Ptr;

use super::address;
use super::layout::{ACTION_REDUCE, Head, MoveStep, Plain, STEP_MOVE, TermStep};
use super::moves::{code, number};

/// The most terms of a step, whose length has 16 bits.
const MOST: usize = 1 << 14;

/// Units that an element counts as: a thread has so many of a copy on their way, and one element of a reduction.
pub(super) const WORTH: u64 = 8;

/// One move after the other that are one reduction; none of them if they are not. `last` is the operand of the last wait of
/// the lane, which nobody reads again.
pub(super) fn leading(steps: &[Step], last: Ptr) -> usize {
    let Some(first) = term(steps, last) else {
        return 0;
    };
    let same = |mv: &Move| {
        (mv.dst.base, mv.count, mv.size) == (first.dst.base, first.count, first.size)
            && reduced(mv).map(|(_, scalar)| scalar) == reduced(first).map(|(_, scalar)| scalar)
    };
    let moves = (0..steps.len().min(MOST)).map_while(|at| term(&steps[at..], last));
    let moves = moves.take_while(|mv| same(mv)).count();
    // One alone reads its destination anyhow, and can leave that to the memory; unless it replaces it.
    let replaces = reduced(first).is_some_and(|(op, _)| op == Op::Replace);
    if moves > 1 || replaces { moves } else { 0 }
}

/// The move that comes first, if it can be one of a reduction.
fn term(steps: &[Step], last: Ptr) -> Option<&Move> {
    match steps.first()? {
        Step::Move(mv)
            if reduced(mv).is_some()
                && mv.count != 0
                && (mv.src.shape, mv.dst.shape) == (Shape::Linear, Shape::Linear)
                && mv.dst.flip == 0
                && (mv.parity.is_null() || mv.parity != last) =>
        {
            Some(mv)
        }
        _ => None,
    }
}

/// What a move reduces by, if nobody else writes where it does.
fn reduced(mv: &Move) -> Option<(Op, Scalar)> {
    match mv.action {
        Action::Accumulate {
            op,
            scalar,
            atomic: false,
        } => Some((op, scalar)),
        _ => None,
    }
}

/// The step of so many moves, which [`leading`] has found. Returns how many elements it writes.
pub(super) fn lower<'a>(moves: impl ExactSizeIterator<Item = &'a Move>, out: &mut Vec<u8>) -> u64 {
    let (at, terms) = (out.len(), moves.len());
    let mut elements = 0;
    for (index, mv) in moves.enumerate() {
        let Some((op, scalar)) = reduced(mv) else {
            unreachable!("all of them reduce");
        };
        if index == 0 {
            elements = mv.count as u64;
            let bytes = size_of::<MoveStep>().next_multiple_of(16) + terms * size_of::<TermStep>();
            let step = MoveStep {
                head: Head {
                    kind: STEP_MOVE,
                    length: (bytes / 16) as u16,
                    flags: 0,
                },
                count: elements,
                dst: address(mv.dst.base),
                size: mv.size,
                sub: terms as u32,
                action: ACTION_REDUCE,
                scalar: number(scalar),
                unit: mv.size.trailing_zeros() as u8,
                ..MoveStep::default()
            };
            out.extend_from_slice(step.bytes());
            out.resize(out.len().next_multiple_of(16), 0);
        }
        let term = TermStep {
            src: address(mv.src.base),
            flip: mv.src.flip as u64,
            parity: address(mv.parity),
            op: u32::from(code(op)),
            unused: 0,
        };
        out.extend_from_slice(term.bytes());
    }
    debug_assert!((out.len() - at).is_multiple_of(16), "steps are whole units");
    elements
}
