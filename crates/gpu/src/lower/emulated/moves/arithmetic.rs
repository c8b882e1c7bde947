//! Moves that compute.

use tidegate_hal::batch::{Action, Move, Op, Scalar};
use tidegate_hal::memory::Ptr;

use super::Maker;

impl Maker<'_> {
    pub(super) fn arithmetic(&mut self, parity: Ptr) -> Move {
        let scalar = self.rng.of(&Scalar::ALL);
        let float = scalar.is_float();
        let size = scalar.bytes();
        let count = self.count();
        let op = self.rng.of(if float { &Op::ALL[..6] } else { &Op::ALL });
        let atomic = self.rng.once_in(2);
        let flips = !parity.is_null();
        let begin = self.arena.pieces().len();
        let src = self.side(size, count, size, false, flips);
        let middle = self.arena.pieces().len();
        let dst = self.side(size, count, size, true, flips);
        let pieces = self.arena.pieces().to_vec();
        if float {
            // Tables are smaller than the elements they point at. The last piece of a side contains its elements.
            for (last, nan) in [(middle, true), (pieces.len(), false)] {
                let piece = pieces[begin..last].last().expect("a side has a piece");
                let at = self.arena.at(piece.begin);
                self.numbers(at, (piece.end - piece.begin) as usize, scalar, nan);
            }
        }
        let linear = |maker: &mut Self, written| {
            let beyond = size * maker.rng.below(4);
            Ptr(maker.arena.take(size * count, beyond, written))
        };
        let action = match self.rng.below(4) {
            0 => {
                let (result, compare) = (linear(self, true), linear(self, false));
                // Half of the values are equal, if the elements are contiguous.
                let piece = pieces.last().expect("a side has a piece");
                for at in 0..(size * count).min((piece.end - piece.begin) as usize) {
                    if (at / size).is_multiple_of(2) {
                        let from = self.arena.at(piece.begin + at as u64);
                        // SAFETY: both are pieces of the arena, and as long.
                        unsafe { compare.0.add(at).write(from.read()) };
                    }
                }
                Action::CompareSwap {
                    scalar,
                    compare,
                    result,
                }
            }
            1 => Action::FetchOp {
                op,
                scalar,
                result: linear(self, true),
                atomic,
            },
            _ => Action::Accumulate { op, scalar, atomic },
        };
        if atomic || matches!(action, Action::CompareSwap { .. }) {
            let written = pieces.last().expect("a side has a piece").begin;
            self.arena.widen_at(Ptr(self.arena.at(written)));
        }
        Move {
            action,
            size: size as u32,
            count,
            src,
            dst,
            parity,
            early: self.rng.once_in(2),
            landing: None,
            buffers: 2,
        }
    }

    /// Sometimes a second accumulate to the same elements. Both may run at the same time.
    pub(super) fn again(&mut self, mv: Move) -> Option<Move> {
        let Action::Accumulate { op, scalar, .. } = mv.action else {
            return None;
        };
        let commutes = matches!(
            op,
            Op::Sum | Op::Min | Op::Max | Op::BitAnd | Op::BitOr | Op::BitXor
        );
        let float = scalar.is_float();
        (commutes && !float && self.rng.once_in(2)).then(|| {
            let size = mv.size as usize;
            Move {
                src: self.side(size, mv.count, size, false, false),
                ..mv
            }
        })
    }
}
