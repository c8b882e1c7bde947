//! Lanes of atomic moves that meet: each element gets them in the order of the lane.

use std::ops::Range;

use tidegate_hal::batch::{Action, Move, Op, Scalar, Shape, Side, Step};
use tidegate_hal::memory::Ptr;

use super::super::machine::Machine;
use super::{Maker, check_lanes};

const SCALARS: [Scalar; 8] = [
    Scalar::U8,
    Scalar::I16,
    Scalar::U32,
    Scalar::I64,
    Scalar::F32,
    Scalar::F64,
    Scalar::F16,
    Scalar::Bf16,
];

impl Maker<'_> {
    /// A few contiguous elements, and atomic moves, each to some of them.
    fn meeting(&mut self) -> Vec<Step> {
        let scalar = self.rng.of(&SCALARS);
        let (size, all) = (scalar.bytes(), self.count());
        let beyond = size * self.rng.below(4);
        let place = self.arena.take(size * all, beyond, true);
        self.arena.widen_at(Ptr(place));
        self.fractions(place, all, scalar);
        let moves = self.rng.within(2..=9);
        let step = |maker: &mut Self| Step::Move(maker.turn(scalar, place, all));
        (0..moves).map(|_| step(self)).collect()
    }

    /// One of these moves: to neighbours, to every second element or so, or backwards.
    fn turn(&mut self, scalar: Scalar, place: *mut u8, all: usize) -> Move {
        let size = scalar.bytes();
        let first = self.rng.below(all);
        let stride = if self.rng.once_in(3) {
            self.rng.within(1..=3)
        } else {
            1
        };
        let count = 1 + self.rng.below((all - first - 1) / stride + 1);
        let (base, shape) = match self.rng.below(3) {
            0 if stride == 1 => (first, Shape::Linear),
            1 => (first + (count - 1) * stride, loops(count, -(stride as i32))),
            _ => (first, loops(count, stride as i32)),
        };
        let dst = Side {
            base: Ptr(place.wrapping_add(size * base)),
            flip: 0,
            shape,
        };
        let src = self.arena.take(size * count, 0, false);
        self.fractions(src, count, scalar);
        let src = Side {
            base: Ptr(src),
            flip: 0,
            shape: Shape::Linear,
        };
        let float = scalar.is_float();
        let op = self.rng.of(if float { &Op::ALL[..6] } else { &Op::ALL });
        let mut linear = |written| Ptr(self.arena.take(size * count, 0, written));
        let action = match self.rng.below(4) {
            0 => Action::CompareSwap {
                scalar,
                compare: linear(false),
                result: linear(true),
            },
            1 => Action::FetchOp {
                op,
                scalar,
                result: linear(true),
                atomic: true,
            },
            _ => Action::Accumulate {
                op,
                scalar,
                atomic: true,
            },
        };
        Move {
            action,
            size: size as u32,
            count,
            src,
            dst,
            parity: Ptr::NULL,
            early: false,
            landing: None,
            buffers: 2,
        }
    }
}

fn loops(count: usize, stride: i32) -> Shape {
    let mut dims = [(1, 0); Shape::MAX_DIMS];
    dims[0] = (count as u32, stride);
    Shape::Strided { dims, rank: 1 }
}

/// The results are the host's, to the bit, in whatever order the threads run. The host makes a lane's moves one after
/// the other.
pub(in super::super) fn check(machine: &mut Machine, seeds: Range<u64>) -> Result<(), String> {
    check_lanes(machine, seeds, (3, 6), |maker| maker.meeting())
}
