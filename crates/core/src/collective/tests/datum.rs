//! Elements of the oracle, which adds them up by itself.

use half::{bf16, f16};
use num_complex::Complex;

use crate::element::Reducible;

/// An element that the oracle can add up.
pub(super) trait Datum: Reducible {
    /// One that depends on a number of millions.
    fn of(number: f64) -> Self;
    fn plus(self, with: Self) -> Self;
    /// The bits of its numbers.
    fn bits(self) -> Vec<u64>;
}

macro_rules! numbers {
    ($($ty:ty: $of:expr, $plus:expr;)*) => {$(
        impl Datum for $ty {
            fn of(number: f64) -> Self {
                $of(number)
            }
            fn plus(self, with: Self) -> Self {
                $plus(self, with)
            }
            fn bits(self) -> Vec<u64> {
                vec![self.to_bits().into()]
            }
        }
    )*};
}
// Sums of the small ones stay far below the largest number. Their steps are those of the documentation.
numbers! {
    f64: |number| number, |a, b| a + b;
    f32: |number| number as f32, |a, b| a + b;
    f16: |number| f16::from_f64(number * 1e-4), |a: f16, b: f16| f16::from_f32(a.to_f32() + b.to_f32());
    bf16: bf16::from_f64, |a: bf16, b: bf16| bf16::from_f32(a.to_f32() + b.to_f32());
}

impl<T: Datum + crate::Arithmetic> Datum for Complex<T> {
    fn of(number: f64) -> Self {
        Complex::new(T::of(number), T::of(number * -0.7))
    }
    fn plus(self, with: Self) -> Self {
        Complex::new(self.re.plus(with.re), self.im.plus(with.im))
    }
    fn bits(self) -> Vec<u64> {
        [self.re.bits(), self.im.bits()].concat()
    }
}

impl<T: Datum, const N: usize> Datum for [T; N] {
    fn of(number: f64) -> Self {
        std::array::from_fn(|at| T::of(number / (1.0 + at as f64)))
    }
    fn plus(self, with: Self) -> Self {
        std::array::from_fn(|at| self[at].plus(with[at]))
    }
    fn bits(self) -> Vec<u64> {
        self.into_iter().flat_map(T::bits).collect()
    }
}
