//! The outcome of a comparison.

use crate::faces::layout::Geometry;
use std::fmt;

/// The limit of [`error`]: about nine units in the last place. The initial value has five additions, a share adds three,
/// and the closed form three of its own: all together less than seven units.
pub const TOLERANCE: f64 = 1e-15;

/// `|u - v| / (|u| + |v|)`, and 0 where both are 0. Infinite where `u` or `v` is not finite.
#[inline]
pub fn error(u: f64, v: f64) -> f64 {
    // Equal values are by far the most frequent case, and skipping the division saves most of the time.
    if u == v && u.is_finite() {
        0.0
    } else if u.is_finite() && v.is_finite() {
        // Halves: the sum of two values near the largest one would be infinite, and the error zero.
        (u / 2.0 - v / 2.0).abs() / (u.abs() / 2.0 + v.abs() / 2.0)
    } else {
        f64::INFINITY
    }
}

/// One wrong value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mismatch {
    /// The point within its element.
    pub i: [usize; 3],
    /// Its element within the block.
    pub j: [usize; 3],
    /// The value that was found.
    pub got: f64,
    /// The value that should be there.
    pub expected: f64,
    /// [`error`] of the two.
    pub error: f64,
    /// Which reference says so.
    pub reference: &'static str,
}

/// The outcome of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// How many values were compared.
    pub compared: usize,
    /// How many values there should have been.
    pub expected: usize,
    /// How many were wrong.
    pub wrong: usize,
    /// How many of those were not finite.
    pub non_finite: usize,
    /// The largest [`error`] of all values that were compared.
    pub max_error: f64,
    /// The value with the largest error, when that is wrong.
    pub worst: Option<Mismatch>,
}

impl Verdict {
    /// Whether everything was right.
    pub fn passed(&self) -> bool {
        self.wrong == 0 && self.compared == self.expected && self.max_error < TOLERANCE
    }

    /// About no values yet.
    pub(super) fn none(geometry: &Geometry) -> Verdict {
        Verdict {
            compared: 0,
            expected: geometry.len(),
            wrong: 0,
            non_finite: 0,
            max_error: 0.0,
            worst: None,
        }
    }

    /// Compares a block with a reference that is asked for each point in order.
    pub(super) fn compare(
        geometry: &Geometry,
        reference: &'static str,
        u: &[f64],
        expected: impl Iterator<Item = f64>,
    ) -> Verdict {
        if u.len() != geometry.len() {
            return Verdict::none(geometry);
        }
        Verdict::compare_from(geometry, reference, 0, u, expected)
    }

    /// Compares the values of a block from `first` on.
    pub(super) fn compare_from(
        geometry: &Geometry,
        reference: &'static str,
        first: usize,
        u: &[f64],
        expected: impl Iterator<Item = f64>,
    ) -> Verdict {
        let mut verdict = Verdict::none(geometry);
        let mut worst = None;
        for (index, (&got, expected)) in u.iter().zip(expected).enumerate() {
            let error = error(got, expected);
            verdict.compared += 1;
            verdict.wrong += usize::from(error >= TOLERANCE);
            verdict.non_finite += usize::from(!got.is_finite());
            if error > verdict.max_error {
                verdict.max_error = error;
                worst = Some((first + index, got, expected));
            }
        }
        if let (true, Some((index, got, expected))) = (verdict.wrong > 0, worst) {
            let (i, j) = geometry.coordinates(index);
            verdict.worst = Some(Mismatch {
                i,
                j,
                got,
                expected,
                error: verdict.max_error,
                reference,
            });
        }
        verdict
    }

    /// This verdict and that about other values of the block.
    pub(super) fn and(self, other: Verdict) -> Verdict {
        let worse = other.max_error > self.max_error;
        Verdict {
            compared: self.compared + other.compared,
            expected: self.expected,
            wrong: self.wrong + other.wrong,
            non_finite: self.non_finite + other.non_finite,
            max_error: self.max_error.max(other.max_error),
            worst: if worse { other.worst } else { self.worst },
        }
    }

    /// This verdict, or the other one when that is worse.
    pub(super) fn or_worse(self, other: Verdict) -> Verdict {
        let worse = match (self.passed(), other.passed()) {
            (true, false) => true,
            (false, true) => false,
            _ => other.max_error > self.max_error,
        };
        if worse { other } else { self }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.passed() {
            return write!(
                f,
                "{} values agree, largest error {:.1e}",
                self.compared, self.max_error
            );
        }
        if self.compared != self.expected {
            return write!(f, "the block does not have {} values", self.expected);
        }
        write!(f, "{} of {} values are wrong", self.wrong, self.compared)?;
        if self.non_finite > 0 {
            write!(f, ", {} are not finite", self.non_finite)?;
        }
        if let Some(Mismatch {
            i,
            j,
            got,
            expected,
            error,
            reference,
        }) = self.worst
        {
            write!(
                f,
                "; the worst: point {i:?} of element {j:?} is {got:e}, {reference} says {expected:e} (error {error:.1e})"
            )?;
        }
        Ok(())
    }
}
