//! Accumulates to one destination, in one step.
//!
//! # Model
//!
//! A lane that accumulates several sources, one after the other, would read and write its destination for each. If the
//! lane does nothing else, and nobody else writes the destination meanwhile, it becomes a *reduction*: one step, with a
//! *term* for each source. Each element belongs to one thread, which fetches several terms at a time, combines them in
//! their order, and writes the element once.

use tidegate_hal::batch::{Action, Move, Op, Scalar, Shape, Step};

use super::layout::address;
use super::layout::{ACTION_REDUCE, Head, MoveStep, STEP_MOVE, TermStep, push};
use super::moves::{code, number};

/// The most terms of a step, whose length has 16 bits.
const MOST: usize = 1 << 14;

/// How many units an element counts as. A thread has this many units of a copy on their way, but one element of a
/// reduction.
pub(super) const WORTH: u64 = 8;

/// The terms of a lane, if it is a reduction.
pub(super) fn of(steps: &[Step]) -> Option<Vec<&Move>> {
    let moves = steps.iter().map(|step| match step {
        Step::Move(mv) => term(mv).map(|(op, scalar)| (mv, op, scalar)),
        _ => None,
    });
    let moves = moves.collect::<Option<Vec<_>>>()?;
    let &(first, op, scalar) = moves.first()?;
    // A single accumulate reads its destination in any case, and the memory can do that; unless it replaces the
    // destination.
    if moves.len() > MOST || (moves.len() == 1 && op != Op::Replace) {
        return None;
    }
    let one = |mv: &Move| (mv.dst.base, mv.count, mv.size);
    let same = |other: &(&Move, Op, Scalar)| (one(other.0), other.2) == (one(first), scalar);
    moves
        .iter()
        .all(same)
        .then(|| moves.iter().map(|(mv, ..)| *mv).collect())
}

/// The operation and the element type of a move that can be a term.
fn term(mv: &Move) -> Option<(Op, Scalar)> {
    let linear = (mv.src.shape, mv.dst.shape) == (Shape::Linear, Shape::Linear);
    match mv.action {
        Action::Accumulate {
            op,
            scalar,
            atomic: false,
        } if linear && mv.dst.flip == 0 && mv.count != 0 => Some((op, scalar)),
        _ => None,
    }
}

/// Appends the step of a reduction. Returns how many elements it writes.
pub(super) fn lower(moves: &[&Move], out: &mut Vec<u8>) -> u64 {
    let terms: Vec<_> = moves.iter().filter_map(|mv| term(mv)).collect();
    let first = moves[0];
    let bytes = size_of::<MoveStep>().next_multiple_of(16) + terms.len() * size_of::<TermStep>();
    let step = MoveStep {
        head: Head {
            length: (bytes / 16) as u16,
            ..Head::of::<MoveStep>(STEP_MOVE)
        },
        count: first.count as u64,
        dst: address(first.dst.base),
        size: first.size,
        sub: terms.len() as u32,
        action: ACTION_REDUCE,
        scalar: number(terms[0].1),
        unit: first.size.trailing_zeros() as u8,
        ..MoveStep::default()
    };
    push(&step, out);
    for (mv, (op, _)) in moves.iter().zip(terms) {
        let term = TermStep {
            src: address(mv.src.base),
            flip: mv.src.flip as u64,
            parity: address(mv.parity),
            op: u32::from(code(op)),
            unused: 0,
        };
        push(&term, out);
    }
    step.count
}
