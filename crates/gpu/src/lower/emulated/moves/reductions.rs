//! Lanes of accumulates to one place, as in all-reduces. Each element gets the terms in their order.

use std::ops::Range;

use tidegate_hal::batch::{Action, Move, Op, QUANTUM, Scalar, Shape, Side, Step};
use tidegate_hal::memory::Ptr;

use super::super::machine::Machine;
use super::{Maker, check_lanes};

impl Maker<'_> {
    /// Fills `count` elements with values whose sums and products depend on the order.
    pub(super) fn fractions(&mut self, at: *mut u8, count: usize, scalar: Scalar) {
        for index in 0..count {
            let sign = if self.rng.once_in(2) { -1.0 } else { 1.0 };
            let number = sign * (0.1 + self.rng.below(1 << 30) as f64 / 1e8);
            // SAFETY: the caller gives a piece of the arena, with room for all.
            unsafe {
                match scalar {
                    Scalar::F32 => at.cast::<f32>().add(index).write_unaligned(number as f32),
                    Scalar::F64 => at.cast::<f64>().add(index).write_unaligned(number),
                    Scalar::Bf16 => {
                        let upper = ((number as f32).to_bits() >> 16) as u16;
                        at.cast::<u16>().add(index).write_unaligned(upper);
                    }
                    Scalar::F16 => {
                        // Any finite number.
                        let bits = (number.to_bits() >> 16) as u16 & 0xbfff;
                        at.cast::<u16>().add(index).write_unaligned(bits);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Reduces the slots of some ranks, one after the other, to one place. Usually the first slot replaces the
    /// contents, and some come before those in front. If other lanes may use the same place, each slot is a move of its
    /// own. Some lanes also wait, copy and add.
    fn reduction(&mut self) -> Vec<Step> {
        let scalar = self.rng.of(&Scalar::ALL);
        let float = scalar.is_float();
        let op = self.rng.of(if float { &Op::ALL[..4] } else { &Op::ALL });
        let (size, count) = (scalar.bytes(), self.count());
        let linear = |base| Side {
            base: Ptr(base),
            flip: 0,
            shape: Shape::Linear,
        };
        let beyond = size * self.rng.below(4);
        let dst = linear(self.arena.take(size * count, beyond, true));
        self.fractions(dst.base.0, count, scalar);
        let (atomic, replaces) = (self.rng.once_in(3), !self.rng.once_in(3));
        if atomic {
            self.arena.widen_at(dst.base);
        }
        // Several blocks may move slots with one buffer.
        let flips = self.rng.once_in(2);
        let ranks = self.rng.within(1..=9);
        let mut steps = Vec::new();
        let mut awaited = None;
        let mixed = !atomic && self.rng.once_in(2);
        if mixed {
            let epoch = self.rng.below(4) as u64;
            let (wait, operand) = self.wait(epoch, QUANTUM);
            steps.push(wait);
            if self.rng.once_in(3) {
                steps.push(Step::Move(self.copy(operand)));
            }
            awaited = Some(operand);
        }
        for rank in 0..ranks {
            let flip = if flips {
                (size * count).next_multiple_of(64)
            } else {
                0
            };
            let at = self.arena.take(size * count + flip, 0, false);
            self.fractions(at, count, scalar);
            self.fractions(at.wrapping_add(flip), count, scalar);
            // No wait of this lane advances it, so it has this value from the beginning.
            let epoch = self.rng.below(4) as u64;
            let parity = match (flips, awaited) {
                (true, Some(operand)) if self.rng.once_in(2) => operand,
                (true, _) => self.arena.word((epoch + 1) * QUANTUM),
                (false, _) => Ptr::NULL,
            };
            let op = if rank == 0 && replaces {
                Op::Replace
            } else {
                op
            };
            let src = Side { flip, ..linear(at) };
            steps.push(Step::Move(Move {
                action: match atomic {
                    true => Action::Accumulate { op, scalar, atomic },
                    false => Action::Fold {
                        op,
                        scalar,
                        before: rank != 0 && self.rng.once_in(3),
                    },
                },
                size: size as u32,
                count,
                src,
                dst,
                parity,
                early: false,
                landing: None,
                buffers: 2,
            }));
        }
        if mixed {
            steps.push(self.add());
        }
        steps
    }
}

/// Reductions have the host's result, to the bit, in whatever order the threads run.
pub(in super::super) fn check(machine: &mut Machine, seeds: Range<u64>) -> Result<(), String> {
    check_lanes(machine, seeds, (3, 12), |maker| maker.reduction())
}
