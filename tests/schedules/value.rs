//! Values: every element type has a form as 64 bits, with which the oracle and the kernels compute.

use tidegate::Op;

/// An element type at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ty {
    U64,
    U32,
    U8,
    I32,
    F64,
    /// A derived struct.
    Pixel,
    /// An array.
    Triple,
}

impl Ty {
    pub(crate) const ALL: [Ty; 7] = [
        Ty::U64,
        Ty::U32,
        Ty::U8,
        Ty::I32,
        Ty::F64,
        Ty::Pixel,
        Ty::Triple,
    ];

    /// Whether accumulates work on it.
    pub(crate) fn number(self) -> bool {
        !matches!(self, Ty::Pixel | Ty::Triple)
    }

    /// Makes a value from any 64 bits. Floats are small integers, so that sums are exact in any order.
    pub(crate) fn value(self, bits: u64) -> u64 {
        match self {
            Ty::U64 | Ty::Pixel => bits,
            Ty::U32 | Ty::I32 => bits & 0xffff_ffff,
            Ty::U8 => bits & 0xff,
            Ty::F64 => f64::from((bits & 0xfff) as u32).to_bits(),
            Ty::Triple => bits & 0xffff_ffff_ffff,
        }
    }

    /// The number one.
    pub(crate) fn one(self) -> u64 {
        if self == Ty::F64 { 1f64.to_bits() } else { 1 }
    }

    /// A reduction, written independently of the library's.
    pub(crate) fn apply(self, op: Op, old: u64, with: u64) -> u64 {
        if self == Ty::F64 {
            let (a, b) = (f64::from_bits(old), f64::from_bits(with));
            let result = match op {
                Op::Sum => a + b,
                Op::Prod => a * b,
                Op::Min => {
                    if b < a {
                        b
                    } else {
                        a
                    }
                }
                Op::Max => {
                    if b > a {
                        b
                    } else {
                        a
                    }
                }
                Op::Replace => b,
                Op::Keep => a,
                Op::BitAnd | Op::BitOr | Op::BitXor => unreachable!("not for floats"),
            };
            return result.to_bits();
        }
        // Order of signed numbers: sign-extended, compared as signed.
        let signed = |bits: u64| i64::from(bits as u32 as i32);
        let less = if self == Ty::I32 {
            signed(with) < signed(old)
        } else {
            with < old
        };
        let result = match op {
            Op::Sum => old.wrapping_add(with),
            Op::Prod => old.wrapping_mul(with),
            Op::Min => {
                if less {
                    with
                } else {
                    old
                }
            }
            Op::Max => {
                if less {
                    old
                } else {
                    with
                }
            }
            Op::BitAnd => old & with,
            Op::BitOr => old | with,
            Op::BitXor => old ^ with,
            Op::Replace => with,
            Op::Keep => old,
        };
        self.value(result)
    }
}

/// Scrambles two numbers into one.
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let mut x = a
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(b)
        .wrapping_add(0x1234_5677);
    x = (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ (x >> 32)
}

/// A checksum over elements in order.
pub(crate) fn checksum(seed: u64, elements: impl Iterator<Item = u64>) -> u64 {
    elements.fold(seed, mix)
}

/// A kernel's new value of element `index` of an array.
pub(crate) fn changed(ty: Ty, old: u64, index: usize, salt: u64) -> u64 {
    ty.value(mix(mix(old, salt), index as u64))
}
