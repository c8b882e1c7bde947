//! By what a collective reduces.

use tidegate_hal::batch::{Op, Scalar};

use crate::element::{Arithmetic, Reducible};
use crate::error::WindowError;

/// A reduction of elements of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reduction {
    pub(crate) op: Op,
    /// The type of the numbers that an element consists of.
    pub(crate) scalar: Scalar,
    /// How many numbers these are.
    pub(crate) parts: usize,
    are_floats: bool,
    only_sums: bool,
}

impl Reduction {
    pub(crate) fn of<T: Reducible>(op: Op) -> Self {
        Reduction {
            op,
            scalar: T::Number::SCALAR,
            parts: T::NUMBERS,
            are_floats: T::Number::FLOAT,
            only_sums: T::ONLY_SUMS,
        }
    }

    /// Refuses an operation that is not defined for the elements.
    pub(crate) fn check(self, name: &str) -> Result<(), WindowError> {
        let (name, op) = (name.into(), self.op);
        if self.are_floats && op.is_bitwise() {
            return Err(WindowError::NotForFloats { name, op });
        }
        if self.only_sums && !matches!(op, Op::Sum | Op::Keep | Op::Replace) {
            return Err(WindowError::OnlySums { name, op });
        }
        Ok(())
    }
}
