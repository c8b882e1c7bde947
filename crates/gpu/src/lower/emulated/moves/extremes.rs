//! Arithmetic at the limits of a type: integers that wrap, NaNs and infinities.

use tidegate_hal::batch::{Action, Move, Op, Scalar, Shape, Side, Step};
use tidegate_hal::memory::Ptr;

use super::super::machine::Machine;
use super::{Maker, compare};

/// The bits of values of a type, of which every pair is tried. There are several NaNs with different payloads: the
/// result of a minimum or maximum is one of the operands, to the bit.
fn values(scalar: Scalar) -> Vec<u64> {
    match scalar {
        Scalar::F32 => {
            let numbers = [0.0, -0.0, 1.5, -1.5, f32::MAX, f32::MIN, f32::MIN_POSITIVE];
            let others = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::NAN];
            // Quiet NaNs with payloads, a signaling NaN, and a subnormal number.
            let bits = [0x7fc0_1234, 0xffc0_0042, 0x7f80_0001, 1];
            let bits = bits.into_iter().chain(others.map(f32::to_bits));
            bits.chain(numbers.map(f32::to_bits))
                .map(u64::from)
                .collect()
        }
        Scalar::F64 => {
            let numbers = [0.0, -0.0, 1.5, -1.5, f64::MAX, f64::MIN, f64::MIN_POSITIVE];
            let others = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -f64::NAN];
            let bits = [
                0x7ff8_0000_1234_5678,
                0xfff8_0000_0000_0042,
                0x7ff0_0000_0000_0001,
                1,
            ];
            let bits = bits.into_iter().chain(others.map(f64::to_bits));
            bits.chain(numbers.map(f64::to_bits)).collect()
        }
        // Zeros, numbers, the largest, the least normal and the least one, infinities, and several NaNs.
        Scalar::F16 => [
            0, 0x8000, 0x3e00, 0xbe00, 0x7bff, 0xfbff, 0x400, 1, 0x8001, 0x7c00, 0xfc00, 0x7e00,
            0xfe42, 0x7d01,
        ]
        .into(),
        Scalar::Bf16 => [
            0, 0x8000, 0x3fc0, 0xbfc0, 0x7f7f, 0xff7f, 0x80, 1, 0x8001, 0x7f80, 0xff80, 0x7fc0,
            0xffc2, 0x7f81,
        ]
        .into(),
        _ => {
            let highest = 1u64 << (8 * scalar.bytes() - 1);
            // The largest and the smallest signed values, and the largest unsigned ones.
            let ends = [highest - 1, highest, u64::MAX, u64::MAX - 1, highest + 1];
            let roots = [1 << (4 * scalar.bytes()), (1 << (4 * scalar.bytes())) - 1];
            [&ends[..], &roots, &[0, 1, 2, 3]].concat()
        }
    }
}

impl Maker<'_> {
    /// An operation on every pair of values.
    fn pairs(&mut self, op: Op, scalar: Scalar, fetches: bool, atomic: bool) -> Step {
        let values = values(scalar);
        let (size, count) = (scalar.bytes(), values.len() * values.len());
        let mut linear = |of: &dyn Fn(usize) -> u64, written| {
            let beyond = size * self.rng.below(4);
            let at = self.arena.take(size * count, beyond, written);
            for index in 0..count {
                // The low bytes come first, as on every machine with such a GPU.
                let bytes = of(index).to_le_bytes();
                // SAFETY: the piece was just taken with room for all.
                unsafe {
                    at.add(index * size)
                        .copy_from_nonoverlapping(bytes.as_ptr(), size);
                }
            }
            Side {
                base: Ptr(at),
                flip: 0,
                shape: Shape::Linear,
            }
        };
        let many = values.len();
        let src = linear(&|index| values[index % many], false);
        let dst = linear(&|index| values[index / many], true);
        let written = dst.base;
        let action = match fetches {
            true => Action::FetchOp {
                op,
                scalar,
                result: linear(&|_| 0, true).base,
                atomic,
            },
            false => Action::Accumulate { op, scalar, atomic },
        };
        if atomic {
            self.arena.widen_at(written);
        }
        Step::Move(Move {
            action,
            size: size as u32,
            count,
            src,
            dst,
            parity: Ptr::NULL,
            early: false,
            landing: None,
            buffers: 2,
        })
    }
}

/// Every reduction of every pair has the host's result, to the bit. Floats have only minimum and maximum here, since
/// the bits of a NaN sum differ between processors.
pub(in super::super) fn check(machine: &mut Machine) -> Result<(), String> {
    let trials = Scalar::ALL.into_iter().flat_map(|scalar| {
        let float = scalar.is_float();
        let ops = Op::ALL.into_iter();
        ops.filter(move |op| match op {
            Op::Sum | Op::Prod => !float,
            op => !(float && op.is_bitwise()),
        })
        .map(move |op| (op, scalar))
    });
    for (seed, (op, scalar)) in trials.enumerate() {
        let make = |maker: &mut Maker<'_>| {
            let all = [(false, false), (false, true), (true, false), (true, true)];
            let each = all.map(|(fetches, atomic)| maker.pairs(op, scalar, fetches, atomic));
            each.map(|step| vec![step]).to_vec()
        };
        compare(machine, seed as u64, 0, make)
            .map_err(|why| format!("{op:?} of {scalar:?}: {why}"))?;
    }
    Ok(())
}
