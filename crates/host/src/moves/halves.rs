//! Floats of 16 bits, which Rust has no types for yet.
//!
//! Each operation goes by `f32`: both operands become an `f32`, and its result is rounded to the nearest number, of two
//! equally near ones to the even one. GPUs do the same. The conversions have no branches, so that processors do several
//! at a time.

use std::cmp::Ordering;
use std::ops::{Add, Mul};

/// IEEE 754's float of 16 bits: 5 for the exponent.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(super) struct F16(u16);

/// The upper half of an `f32`.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(super) struct Bf16(u16);

/// Picks one of two numbers without a branch.
#[inline(always)]
fn pick(first: bool, one: u32, other: u32) -> u32 {
    let mask = u32::from(first).wrapping_neg();
    (one & mask) | (other & !mask)
}

impl F16 {
    #[inline(always)]
    fn wide(self) -> f32 {
        let bits = u32::from(self.0);
        // Exponent and mantissa have their places in an `f32`, with another bias. The product corrects the bias, also
        // of subnormal numbers, and is exact.
        let size = f32::from_bits((bits & 0x7fff) << 13) * f32::from_bits((254 - 15) << 23);
        // Infinity and NaNs have come out as if they were finite: as 2^16 and more.
        let beyond = pick(size >= 65536.0, 0x7f80_0000, 0);
        f32::from_bits(size.to_bits() | beyond | ((bits & 0x8000) << 16))
    }

    #[inline(always)]
    fn narrow(value: f32) -> Self {
        let (bits, size) = (value.to_bits(), value.abs());
        // In this sum the last bit of the mantissa counts 2^-24, which is the least number.
        let subnormal = (size + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
        // Another bias; and half of the last bit is added, or a little less if the number is even. A carry may go
        // through to the exponent, up to infinity.
        let even = (size.to_bits() >> 13) & 1;
        let normal = (size.to_bits() + 0xfff + even).wrapping_sub((127 - 15) << 23) >> 13;
        let rounded = pick(size < f32::from_bits((127 - 14) << 23), subnormal, normal);
        let finite = pick(size >= 65536.0, 0x7c00, rounded);
        // A NaN keeps the upper bits of its payload, and is quiet.
        let nan = 0x7e00 | ((bits >> 13) & 0x3ff);
        F16((pick(value.is_nan(), nan, finite) | ((bits >> 16) & 0x8000)) as u16)
    }
}

impl Bf16 {
    #[inline(always)]
    fn wide(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }

    #[inline(always)]
    fn narrow(value: f32) -> Self {
        let bits = value.to_bits();
        let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
        Bf16(pick(value.is_nan(), (bits >> 16) | 0x40, rounded) as u16)
    }
}

macro_rules! halves {
    ($($half:ident)*) => {$(
        impl $half {
            #[inline(always)]
            pub(super) fn from_ne_bytes(bytes: [u8; 2]) -> Self {
                $half(u16::from_ne_bytes(bytes))
            }

            #[inline(always)]
            pub(super) fn to_ne_bytes(self) -> [u8; 2] {
                self.0.to_ne_bytes()
            }

            #[inline(always)]
            pub(super) fn is_nan(self) -> bool {
                self.wide().is_nan()
            }
        }

        impl Add for $half {
            type Output = Self;
            #[inline(always)]
            fn add(self, with: Self) -> Self {
                Self::narrow(self.wide() + with.wide())
            }
        }

        impl Mul for $half {
            type Output = Self;
            #[inline(always)]
            fn mul(self, with: Self) -> Self {
                Self::narrow(self.wide() * with.wide())
            }
        }

        impl PartialEq for $half {
            #[inline(always)]
            fn eq(&self, with: &Self) -> bool {
                self.wide() == with.wide()
            }
        }

        impl PartialOrd for $half {
            #[inline(always)]
            fn partial_cmp(&self, with: &Self) -> Option<Ordering> {
                self.wide().partial_cmp(&with.wide())
            }
        }
    )*};
}
halves!(F16 Bf16);

#[cfg(test)]
mod tests {
    use super::*;

    /// Bits that are equal for all NaNs.
    fn same(mine: u16, other: u16, is_nan: bool, most: u16) {
        if is_nan {
            // A quiet one of either sign.
            assert!(mine & 0x7fff > most, "{mine:x} is no NaN");
        } else {
            assert_eq!(mine, other);
        }
    }

    #[test]
    fn every_number_becomes_an_f32_and_comes_back() {
        for bits in 0..=u16::MAX {
            let (a, b) = (half::f16::from_bits(bits), half::bf16::from_bits(bits));
            let (mine, own) = (F16(bits).wide(), Bf16(bits).wide());
            assert_eq!(mine.is_nan(), a.is_nan());
            assert_eq!(own.is_nan(), b.is_nan());
            assert!(a.is_nan() || mine.to_bits() == a.to_f32().to_bits());
            assert!(b.is_nan() || own.to_bits() == b.to_f32().to_bits());
            same(F16::narrow(mine).0, bits, a.is_nan(), 0x7dff);
            same(Bf16::narrow(own).0, bits, b.is_nan(), 0x7fbf);
        }
    }

    #[test]
    fn each_f32_is_rounded_to_the_nearest_and_of_two_to_the_even() {
        // Beside each number with a short mantissa, and with every pattern of the upper bits.
        let near = [
            0, 1, 0xfff, 0x1000, 0x1001, 0x1fff, 0x7fff, 0x8000, 0x8001, 0xffff,
        ];
        for upper in 0..=u16::MAX {
            for lower in near {
                let value = f32::from_bits((u32::from(upper) << 16) | lower);
                let (a, b) = (half::f16::from_f32(value), half::bf16::from_f32(value));
                same(F16::narrow(value).0, a.to_bits(), value.is_nan(), 0x7dff);
                same(Bf16::narrow(value).0, b.to_bits(), value.is_nan(), 0x7fbf);
            }
        }
    }
}
