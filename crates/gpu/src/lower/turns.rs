//! Moves of one lane that update the same elements, one behind the other.
//!
//! # Model
//!
//! A team deals the elements of a move to its threads. An element of one move and the same element of the next may
//! belong to two threads, and nothing orders them. For plain moves of a lane this does not matter, except for small
//! elements that a thread does not update atomically. Atomic moves may touch the same elements, and must come to each
//! element in their order ([`Action`]). So if a move may touch what an earlier one does, it is *behind* that move: the
//! team meets before it. The lane then has one block, since blocks do not meet.
//!
//! The team need not meet if the order makes no difference (two moves only read, or accumulate by one operation), or if
//! each thread has the same elements of both.

use tidegate_hal::batch::{Action, Move, Op, Shape};

use super::layout::address;
use super::moves::is_alone;

/// The addresses of the first byte that a move touches at its destination, and behind the last.
type Extent = (u64, u64);

/// The moves of a lane, from the last one on that is behind others.
#[derive(Default)]
pub(super) struct Turns(Vec<(Extent, Move)>);

impl Turns {
    /// Adds the next move of the lane. Returns whether it is behind an earlier one.
    pub(super) fn is_behind(&mut self, mv: &Move) -> bool {
        if mv.count == 0 || !(is_atomic(&mv.action) || is_alone(&mv.action)) {
            return false;
        }
        let own = extent(mv);
        let meets = |(other, before): &(Extent, Move)| {
            own.0 < other.1
                && other.0 < own.1
                && (is_alone(&mv.action) || !commute(&mv.action, &before.action))
                && !dealt_alike(mv, before)
        };
        let behind = self.0.iter().any(meets);
        if behind {
            // The move is behind all of them, and so are all later moves.
            self.0.clear();
        }
        self.0.push((own, *mv));
        behind
    }
}

fn is_atomic(action: &Action) -> bool {
    match action {
        Action::Copy | Action::CopyUpTo { .. } | Action::Fold { .. } => false,
        Action::Accumulate { atomic, .. } | Action::FetchOp { atomic, .. } => *atomic,
        Action::CompareSwap { .. } => true,
    }
}

/// Whether the order of two moves to an element makes no difference. (For sums of floats it does: the result depends on
/// the order, and so does the sign of a zero.)
fn commute(a: &Action, b: &Action) -> bool {
    match (a, b) {
        (
            Action::Accumulate { op, scalar, .. },
            Action::Accumulate {
                op: other,
                scalar: with,
                ..
            },
        ) => {
            let float = scalar.is_float();
            let settles = *op == Op::Keep || !(float || *op == Op::Replace);
            (op, scalar) == (other, with) && settles
        }
        (Action::FetchOp { op, .. }, Action::FetchOp { op: other, .. }) => {
            (op, other) == (&Op::Keep, &Op::Keep)
        }
        _ => false,
    }
}

/// Whether each thread has the same elements of both.
fn dealt_alike(a: &Move, b: &Move) -> bool {
    let linear = |mv: &Move| (mv.src.shape, mv.dst.shape) == (Shape::Linear, Shape::Linear);
    let place = |mv: &Move| (mv.dst.base, mv.dst.flip, mv.parity, mv.count, mv.size);
    linear(a) && linear(b) && place(a) == place(b)
}

fn extent(mv: &Move) -> Extent {
    let (base, size) = (address(mv.dst.base), u64::from(mv.size));
    let (first, end) = match mv.dst.shape {
        Shape::Linear => (0, mv.count as i64),
        Shape::Strided { dims, rank } => {
            let furthest = dims[..rank as usize]
                .iter()
                .map(|(count, stride)| (i64::from(*count) - 1) * i64::from(*stride));
            let (down, up): (Vec<i64>, Vec<i64>) = furthest.partition(|reach| *reach < 0);
            (down.iter().sum(), 1 + up.iter().sum::<i64>())
        }
        // The table of elements is in memory, so their addresses are not known.
        Shape::Indexed { .. } => return (0, u64::MAX),
    };
    let at = |element: i64| base.wrapping_add_signed(element * size as i64);
    // Either buffer, if there are two.
    (at(first), at(end) + mv.dst.flip as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_hal::batch::{Scalar, Side};
    use tidegate_hal::memory::Ptr;

    const SUM: Action = Action::Accumulate {
        op: Op::Sum,
        scalar: Scalar::U32,
        atomic: true,
    };

    fn replace(atomic: bool) -> Action {
        Action::Accumulate {
            op: Op::Replace,
            scalar: Scalar::U32,
            atomic,
        }
    }

    fn fetch(op: Op) -> Action {
        Action::FetchOp {
            op,
            scalar: Scalar::U32,
            result: Ptr::NULL,
            atomic: true,
        }
    }

    fn to(action: Action, at: usize, shape: Shape, count: usize) -> Move {
        let side = |at, shape| Side {
            base: Ptr(std::ptr::without_provenance_mut(at)),
            flip: 0,
            shape,
        };
        Move {
            action,
            size: 4,
            count,
            src: side(0x9000, Shape::Linear),
            dst: side(at, shape),
            parity: Ptr::NULL,
            early: false,
            landing: None,
            buffers: 2,
        }
    }

    fn every(count: u32, stride: i32) -> Shape {
        let mut dims = [(1, 0); Shape::MAX_DIMS];
        dims[0] = (count, stride);
        Shape::Strided { dims, rank: 1 }
    }

    /// Which moves of a lane are behind others.
    fn behind(moves: &[Move]) -> Vec<bool> {
        let mut turns = Turns::default();
        moves.iter().map(|mv| turns.is_behind(mv)).collect()
    }

    #[test]
    fn who_comes_to_the_same_elements_stands_behind() {
        let linear = |action, at, count| to(action, at, Shape::Linear, count);
        let read = linear(fetch(Op::Keep), 0x1000, 3);
        assert_eq!(behind(&[read, linear(SUM, 0x1008, 1)]), [false, true]);
        // The elements are beside it.
        assert_eq!(behind(&[read, linear(SUM, 0x100c, 1)]), [false, false]);
        assert_eq!(behind(&[read, linear(SUM, 0xffc, 1)]), [false, false]);
        // The elements go backwards from there; and every second one.
        let back = to(SUM, 0x1010, every(3, -1), 3);
        assert_eq!(behind(&[read, back]), [false, true]);
        let back = to(SUM, 0x1014, every(3, -1), 3);
        assert_eq!(behind(&[read, back]), [false, false]);
        let second = to(SUM, 0xff8, every(2, 2), 2);
        assert_eq!(behind(&[read, second]), [false, true]);
        // The addresses of the elements are not known.
        let table = Ptr::NULL;
        let listed = to(SUM, 0x7000, Shape::Indexed { table }, 1);
        assert_eq!(behind(&[read, listed]), [false, true]);
        // A move of nothing, and a move to elements that no other move touches.
        assert_eq!(behind(&[read, linear(SUM, 0x1000, 0)]), [false, false]);
        assert_eq!(
            behind(&[read, linear(replace(false), 0x1000, 2)]),
            [false, false]
        );
    }

    #[test]
    fn what_comes_in_any_order_does() {
        let linear = |action, count| to(action, 0x1000, Shape::Linear, count);
        for same in [SUM, fetch(Op::Keep)] {
            assert_eq!(behind(&[linear(same, 3), linear(same, 2)]), [false, false]);
        }
        for ordered in [replace(true), fetch(Op::Sum)] {
            assert_eq!(
                behind(&[linear(ordered, 3), linear(ordered, 2)]),
                [false, true]
            );
            // Each thread has the same elements of both.
            assert_eq!(
                behind(&[linear(ordered, 3), linear(SUM, 3)]),
                [false, false]
            );
        }
    }

    #[test]
    fn small_ones_are_not_updated_atomically() {
        let sum = |scalar: Scalar, atomic| {
            let op = Op::Sum;
            move |count| Move {
                size: scalar.bytes() as u32,
                ..to(
                    Action::Accumulate { op, scalar, atomic },
                    0x1000,
                    Shape::Linear,
                    count,
                )
            }
        };
        for (scalar, atomic, ordered) in [
            (Scalar::U8, false, true),
            (Scalar::I16, false, true),
            (Scalar::U8, true, false),
            (Scalar::U32, false, false),
        ] {
            let sum = sum(scalar, atomic);
            assert_eq!(behind(&[sum(3), sum(2)]), [false, ordered], "{scalar:?}");
            assert_eq!(behind(&[sum(3), sum(3)]), [false, false], "{scalar:?}");
        }
    }

    #[test]
    fn floats_come_in_their_order() {
        let sum = |scalar| Action::Accumulate {
            op: Op::Sum,
            scalar,
            atomic: true,
        };
        let linear = |scalar, count| to(sum(scalar), 0x1000, Shape::Linear, count);
        for (scalar, ordered) in [(Scalar::F32, true), (Scalar::U32, false)] {
            let lane = [linear(scalar, 3), linear(scalar, 2)];
            assert_eq!(behind(&lane), [false, ordered], "{scalar:?}");
        }
        // Two kinds of elements may be dealt differently.
        let lane = [linear(Scalar::U32, 3), linear(Scalar::I32, 2)];
        assert_eq!(behind(&lane), [false, true]);
    }

    #[test]
    fn nobody_stands_behind_who_was_met_before() {
        let linear = |action, count| to(action, 0x1000, Shape::Linear, count);
        let lane = [
            linear(fetch(Op::Keep), 3),
            linear(SUM, 2),
            linear(SUM, 1),
            linear(fetch(Op::Keep), 1),
        ];
        assert_eq!(behind(&lane), [false, true, false, true]);
    }
}
