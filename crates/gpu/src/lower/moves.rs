//! Moves as the kernel carries them out: in units of up to 16 bytes.
//!
//! A linear copy becomes a body in the widest units to which both sides are aligned, and a head and a tail in bytes. In
//! a copy with a shape, loops are merged if one continues the other. Neighbouring elements are joined if that makes
//! wider units.

use tidegate_hal::batch::{Action, Move, Op, Scalar, Shape, Side};
use tidegate_hal::memory::Ptr;

use super::layout::address;
use super::layout::{
    ACTION_ACCUMULATE, ACTION_COUNTED, ACTION_FETCH, ACTION_SWAP, Head, MOVE_ALONE, MOVE_BEHIND,
    MOVE_EARLY, MOVE_LAST_PARITY, MoveStep, Plain, SHAPE_INDEXED, SHAPE_LINEAR, SHAPE_STRIDED,
    STEP_MOVE, ShapeStep,
};

/// The widest unit.
const WIDEST: u64 = 16;

/// The largest power of two, up to the widest unit, that divides all of `values`.
fn unit(values: &[u64]) -> u64 {
    let all = values.iter().fold(WIDEST, |all, value| all | value);
    1 << all.trailing_zeros()
}

/// Appends the steps of a move, and returns how many units they move. `last` is the operand of the lane's last wait.
/// `behind` says whether the team meets before the move.
pub(super) fn lower(mv: &Move, last: Ptr, behind: bool, out: &mut Vec<u8>) -> u64 {
    if mv.count == 0 {
        return 0;
    }
    let mut step = MoveStep {
        head: Head {
            kind: STEP_MOVE,
            length: 0,
            flags: if behind { MOVE_BEHIND } else { 0 },
        },
        src: address(mv.src.base),
        dst: address(mv.dst.base),
        src_flip: mv.src.flip as u64,
        dst_flip: mv.dst.flip as u64,
        sub: 1,
        size: mv.size,
        count: mv.count as u64,
        ..MoveStep::default()
    };
    if !mv.parity.is_null() {
        if mv.parity == last {
            step.head.flags |= MOVE_LAST_PARITY;
        } else {
            step.parity = address(mv.parity);
        }
    }
    let is_free = match mv.action {
        Action::Copy => true,
        Action::CopyUpTo { flip, .. } => flip == 0,
        _ => false,
    };
    if mv.early && mv.src.flip == 0 && is_free {
        step.head.flags |= MOVE_EARLY;
    }
    if let Action::Copy = mv.action {
        if (mv.src.shape, mv.dst.shape) == (Shape::Linear, Shape::Linear) {
            return linear(step, mv, out);
        }
        let (mut src, mut dst) = (Loops::of(&mv.src), Loops::of(&mv.dst));
        let mut size = u64::from(mv.size);
        // How many neighbours make a wider unit, if both sides have them together.
        let neighbours = |size: u64| {
            let fits = |n: u64| {
                unit(&[size * n, step.src, step.dst, step.src_flip, step.dst_flip]) == size * n
                    && src.gathers(n)
                    && dst.gathers(n)
                    && step.count.is_multiple_of(n)
            };
            (1..=WIDEST / size.min(WIDEST)).rev().find(|n| fits(*n))
        };
        if let Some(n) = neighbours(size)
            && n > 1
        {
            src.gather(n);
            dst.gather(n);
            size *= n;
            step.count /= n;
        }
        let unit = unit(&[size, step.src, step.dst, step.src_flip, step.dst_flip]);
        step.size = size as u32;
        step.sub = (size / unit) as u32;
        step.count *= size / unit;
        step.unit = unit.trailing_zeros() as u8;
        push(step, &src, &dst, out);
        return step.count;
    }
    if let Action::CopyUpTo { count, flip } = mv.action {
        step.action = ACTION_COUNTED;
        (step.compare, step.result) = (address(count), flip as u64);
        let unit = unit(&[
            step.src.wrapping_sub(step.dst),
            step.src_flip,
            step.dst_flip,
        ]);
        step.unit = unit.trailing_zeros() as u8;
        push(step, &Loops::Linear, &Loops::Linear, out);
        // The largest number of elements, since the host does not know how many there will be.
        return (mv.count as u64 * u64::from(mv.size)).div_ceil(unit);
    }
    step.unit = u64::from(mv.size).trailing_zeros() as u8;
    if is_alone(&mv.action) {
        step.head.flags |= MOVE_ALONE;
    }
    match mv.action {
        Action::Copy | Action::CopyUpTo { .. } | Action::Fold { .. } => {
            unreachable!("copies and reductions were dealt with")
        }
        Action::Accumulate { op, scalar, .. } => {
            (step.action, step.op, step.scalar) = (ACTION_ACCUMULATE, code(op), number(scalar));
        }
        Action::FetchOp {
            op, scalar, result, ..
        } => {
            (step.action, step.op, step.scalar) = (ACTION_FETCH, code(op), number(scalar));
            step.result = address(result);
        }
        Action::CompareSwap {
            scalar,
            compare,
            result,
        } => {
            (step.action, step.scalar) = (ACTION_SWAP, number(scalar));
            (step.compare, step.result) = (address(compare), address(result));
        }
    }
    push(step, &Loops::of(&mv.src), &Loops::of(&mv.dst), out);
    // An atomic operation counts as several plain ones.
    step.count * 4
}

/// Whether a thread updates the elements of a move one by one, and not atomically. Elements smaller than 4 bytes can
/// only be swapped together with the bytes beside them, which may be another rank's.
pub(super) fn is_alone(action: &Action) -> bool {
    match action {
        Action::Accumulate { scalar, atomic, .. } | Action::FetchOp { scalar, atomic, .. } => {
            !atomic && scalar.bytes() < 4
        }
        Action::Copy
        | Action::CopyUpTo { .. }
        | Action::Fold { .. }
        | Action::CompareSwap { .. } => false,
    }
}

/// A copy between two linear sides.
fn linear(step: MoveStep, mv: &Move, out: &mut Vec<u8>) -> u64 {
    let bytes = mv.count as u64 * u64::from(mv.size);
    let unit = unit(&[
        step.src.wrapping_sub(step.dst),
        step.src_flip,
        step.dst_flip,
    ]);
    // Both sides have the same distance to the next aligned address.
    let head = (unit - step.dst % unit) % unit;
    let (head, body) = if bytes < head + unit {
        (bytes, 0)
    } else {
        (head, (bytes - head) / unit)
    };
    let tail = bytes - head - body * unit;
    let mut part = |first: u64, unit: u64, count: u64| {
        if count != 0 {
            let part = MoveStep {
                src: step.src + first,
                dst: step.dst + first,
                count,
                size: unit as u32,
                unit: unit.trailing_zeros() as u8,
                ..step
            };
            push(part, &Loops::Linear, &Loops::Linear, out);
        }
    };
    // The body comes first, because it may be fetched early.
    part(head, unit, body);
    part(0, 1, head);
    part(head + body * unit, 1, tail);
    head + body + tail
}

fn push(mut step: MoveStep, src: &Loops, dst: &Loops, out: &mut Vec<u8>) {
    let shapes = [src.step(), dst.step()];
    step.src_shape = shapes[0].0;
    step.dst_shape = shapes[1].0;
    let shapes: Vec<_> = shapes.iter().filter_map(|(_, shape)| *shape).collect();
    let bytes = size_of::<MoveStep>() + shapes.len() * size_of::<ShapeStep>();
    step.head.length = bytes.div_ceil(16) as u16;
    out.extend_from_slice(step.bytes());
    shapes
        .iter()
        .for_each(|shape| out.extend_from_slice(shape.bytes()));
    out.resize(out.len().next_multiple_of(16), 0);
}

/// The elements of one side.
#[derive(Debug, PartialEq, Eq)]
enum Loops {
    Linear,
    /// `(count, stride)` of each loop, the innermost first.
    Strided(Vec<(u32, i32)>),
    Indexed(u64),
}

impl Loops {
    fn of(side: &Side) -> Self {
        match side.shape {
            Shape::Linear => Loops::Linear,
            Shape::Indexed { table } => Loops::Indexed(address(table)),
            Shape::Strided { dims, rank } => {
                let mut loops: Vec<(u32, i32)> = Vec::new();
                for &(count, stride) in dims[..rank as usize]
                    .iter()
                    .filter(|(count, _)| *count != 1)
                {
                    match loops.last_mut() {
                        // This loop continues where the one before ends.
                        Some((turns, step))
                            if i64::from(*turns) * i64::from(*step) == i64::from(stride)
                                && turns.checked_mul(count).is_some() =>
                        {
                            *turns *= count;
                        }
                        _ => loops.push((count, stride)),
                    }
                }
                match loops[..] {
                    [] | [(_, 1)] => Loops::Linear,
                    _ => Loops::Strided(loops),
                }
            }
        }
    }

    /// Whether its elements come in groups of `n` neighbours.
    fn gathers(&self, n: u64) -> bool {
        match self {
            Loops::Linear => true,
            Loops::Indexed(_) => n == 1,
            Loops::Strided(loops) => {
                let (count, stride) = loops[0];
                let (inner, outer) = (u64::from(count), &loops[1..]);
                n == 1
                    || (stride == 1
                        && inner % n == 0
                        && outer
                            .iter()
                            .all(|(_, stride)| u64::from(stride.unsigned_abs()) % n == 0))
            }
        }
    }

    /// Makes each group of `n` neighbours one element.
    fn gather(&mut self, n: u64) {
        if let Loops::Strided(loops) = self {
            loops[0].0 /= n as u32;
            loops[1..]
                .iter_mut()
                .for_each(|(_, stride)| *stride /= n as i32);
            if loops.len() > 1 && loops[0].0 == 1 {
                loops.remove(0);
            }
        }
    }

    fn step(&self) -> (u8, Option<ShapeStep>) {
        match self {
            Loops::Linear => (SHAPE_LINEAR, None),
            Loops::Indexed(table) => (
                SHAPE_INDEXED,
                Some(ShapeStep {
                    table: *table,
                    ..ShapeStep::default()
                }),
            ),
            Loops::Strided(loops) => {
                let mut shape = ShapeStep {
                    rank: loops.len() as u32,
                    ..ShapeStep::default()
                };
                for (index, (count, stride)) in loops.iter().enumerate() {
                    (shape.count[index], shape.stride[index]) = (*count, *stride);
                }
                (SHAPE_STRIDED, Some(shape))
            }
        }
    }
}

/// The kernel numbers operations in the order in which [`Op`] has them.
pub(super) fn code(op: Op) -> u8 {
    const { assert!(Op::Sum as u8 == 0 && Op::BitAnd as u8 == 4 && Op::Keep as u8 == 8) }
    op as u8
}

/// The kernel numbers types in the order in which [`Scalar`] has them.
pub(super) fn number(scalar: Scalar) -> u8 {
    const {
        assert!(Scalar::I8 as u8 == 0 && Scalar::U8 as u8 == 4 && Scalar::F64 as u8 == 9);
        assert!(Scalar::F16 as u8 == 10 && Scalar::Bf16 as u8 == 11);
    }
    scalar as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(base: usize, flip: usize, shape: Shape) -> Side {
        Side {
            base: Ptr(std::ptr::without_provenance_mut(base)),
            flip,
            shape,
        }
    }

    fn copy(size: u32, count: usize, src: Side, dst: Side) -> Move {
        Move {
            action: Action::Copy,
            size,
            count,
            src,
            dst,
            parity: Ptr::NULL,
            early: true,
            landing: None,
            buffers: 2,
        }
    }

    /// `(unit, count, src, dst)` of each step.
    fn steps(mv: &Move) -> Vec<(u64, u64, u64, u64)> {
        let mut bytes = Vec::new();
        lower(mv, Ptr::NULL, false, &mut bytes);
        let mut steps = Vec::new();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let word = |at: usize| u64::from_ne_bytes(rest[at..at + 8].try_into().unwrap());
            let length = u16::from_ne_bytes(rest[2..4].try_into().unwrap());
            let unit = rest[std::mem::offset_of!(MoveStep, unit)];
            steps.push((1 << unit, word(8), word(16), word(24)));
            rest = &rest[usize::from(length) * 16..];
        }
        steps
    }

    #[test]
    fn linear_copies_have_aligned_bodies() {
        let (a, b) = (
            side(0x1000, 0, Shape::Linear),
            side(0x2000, 0, Shape::Linear),
        );
        assert_eq!(steps(&copy(8, 4, a, b)), [(16, 2, 0x1000, 0x2000)]);
        assert_eq!(
            steps(&copy(8, 5, a, b)),
            [(16, 2, 0x1000, 0x2000), (1, 8, 0x1020, 0x2020)]
        );
        // Both sides are 4 bytes beyond a boundary.
        let (a, b) = (
            side(0x1004, 0, Shape::Linear),
            side(0x2014, 64, Shape::Linear),
        );
        assert_eq!(
            steps(&copy(1, 30, a, b)),
            [
                (16, 1, 0x1010, 0x2020),
                (1, 12, 0x1004, 0x2014),
                (1, 2, 0x1020, 0x2030)
            ]
        );
        // The sides differ by 4 bytes.
        let b = side(0x2010, 0, Shape::Linear);
        assert_eq!(steps(&copy(4, 3, a, b)), [(4, 3, 0x1004, 0x2010)]);
        assert_eq!(
            steps(&copy(1, 3, a, side(0x2018, 0, Shape::Linear))),
            [(1, 3, 0x1004, 0x2018)]
        );
    }

    #[test]
    fn strided_copies_take_neighbours_together() {
        let dims = |loops: &[(u32, i32)]| {
            let mut dims = [(1, 0); Shape::MAX_DIMS];
            dims[..loops.len()].copy_from_slice(loops);
            Shape::Strided {
                dims,
                rank: loops.len() as u32,
            }
        };
        let dst = side(0x2000, 0, Shape::Linear);
        // Rows of 12 doubles, which follow each other: 144 contiguous doubles, far apart from the next.
        let src = side(0x1000, 0, dims(&[(12, 1), (12, 12), (3, 1728)]));
        assert_eq!(steps(&copy(8, 432, src, dst)), [(16, 216, 0x1000, 0x2000)]);
        // One double of every 12.
        let src = side(0x1000, 0, dims(&[(12, 12), (3, 1728)]));
        assert_eq!(steps(&copy(8, 36, src, dst)), [(8, 36, 0x1000, 0x2000)]);
        // An odd number of contiguous elements.
        let src = side(0x1000, 0, dims(&[(3, 1), (4, 6)]));
        assert_eq!(steps(&copy(8, 12, src, dst)), [(8, 12, 0x1000, 0x2000)]);
        // The first is contiguous; one that goes backwards is not.
        assert_eq!(
            Loops::of(&side(0, 0, dims(&[(4, 1), (5, 4)]))),
            Loops::Linear
        );
        assert_eq!(
            Loops::of(&side(0, 0, dims(&[(4, -1), (5, -4)]))),
            Loops::Strided(vec![(20, -1)])
        );
    }
}
