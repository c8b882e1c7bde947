//! Is the result right?
//!
//! # Model
//!
//! After `K` shares every rank's block is compared, value by value, with two references that know
//! nothing of each other, of messages, or of the [kernels](super::kernels):
//!
//! - [`ClosedForm`]: what the mathematics say. A point that is shared has the average of its
//!   initial copies times the number of copies to the power of `K`. Costs one pass over the block,
//!   whatever `K` is.
//! - [`Domain`]: a plain simulation of the whole domain, share by share, with exact sums. For small
//!   sizes ([`Domain::is_cheap`]).
//!
//! A large block is compared by several threads, if the ranks leave processors idle.
//!
//! The measure is [`error`]`(u, v) = |u - v| / (|u| + |v|)`, which must stay below [`TOLERANCE`].
//!
//! # Failures
//!
//! A [`Verdict`] counts the wrong values and keeps the worst one. A value that is not finite is
//! always wrong, also when the reference is not finite either. Too many values (or too few) are
//! wrong as well.

mod closed;
mod domain;

pub use closed::ClosedForm;
pub use domain::Domain;

use super::layout::Geometry;
use super::params::{Params, ParamsError};
use std::fmt;

/// What [`error`] must be smaller than: about nine units in the last place. The initial value has
/// five additions, a share adds three, the closed form three of its own: all together less than
/// seven.
pub const TOLERANCE: f64 = 1e-15;

/// `|u - v| / (|u| + |v|)`, and 0 where both are 0. Infinite where `u` or `v` is not finite.
#[inline]
pub fn error(u: f64, v: f64) -> f64 {
    // Equal values are the most frequent case by far, and the division is what this costs.
    if u == v && u.is_finite() {
        0.0
    } else if u.is_finite() && v.is_finite() {
        // Halves: the sum of two values near the largest one would be infinite, and the error zero.
        (u / 2.0 - v / 2.0).abs() / (u.abs() / 2.0 + v.abs() / 2.0)
    } else {
        f64::INFINITY
    }
}

/// One value that is not what it should be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mismatch {
    /// The point within its element.
    pub i: [usize; 3],
    /// Its element within the block.
    pub j: [usize; 3],
    /// What was found.
    pub got: f64,
    /// What should be there.
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
    /// The largest [`error`].
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
    fn none(geometry: &Geometry) -> Verdict {
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
    fn compare(
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
    fn compare_from(
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
    fn and(self, other: Verdict) -> Verdict {
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
    fn or_worse(self, other: Verdict) -> Verdict {
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

/// Checks the final blocks of one rank: against the closed form, and against the simulated domain
/// where that is cheap.
#[derive(Debug, Clone)]
pub struct Verifier {
    geometry: Geometry,
    closed: ClosedForm,
    simulated: Option<Vec<f64>>,
}

impl Verifier {
    /// Prepares the references for `rank` after `params.counts.ni` shares. Takes up to a second at
    /// [`Domain::is_cheap`] sizes.
    ///
    /// # Errors
    ///
    /// [`ParamsError`], as [`Params::validate`] and [`Geometry::new`].
    pub fn new(params: &Params, rank: usize) -> Result<Verifier, ParamsError> {
        params.validate()?;
        Verifier::of(params, rank, Verifier::simulate(params).as_ref())
    }

    /// The verifiers of all ranks, with one simulation for all: for runs within one process.
    ///
    /// # Errors
    ///
    /// As [`Verifier::new`].
    pub fn all(params: &Params) -> Result<Vec<Verifier>, ParamsError> {
        params.validate()?;
        let domain = Verifier::simulate(params);
        (0..params.grid.ranks())
            .map(|rank| Verifier::of(params, rank, domain.as_ref()))
            .collect()
    }

    fn of(params: &Params, rank: usize, domain: Option<&Domain>) -> Result<Verifier, ParamsError> {
        let geometry = Geometry::new(params.grid, params.size, rank)?;
        let closed = ClosedForm::new(&geometry, params.init, params.compute, params.counts.ni);
        let simulated = domain.map(|d| d.block(rank));
        Ok(Verifier {
            geometry,
            closed,
            simulated,
        })
    }

    fn simulate(params: &Params) -> Option<Domain> {
        let shares = params.counts.ni;
        Domain::is_cheap(params.grid, params.size, shares).then(|| {
            let mut domain = Domain::new(params.grid, params.size, params.init);
            (0..shares).for_each(|_| domain.share(params.compute));
            domain
        })
    }

    /// The rank's layout.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Whether the simulated domain is compared as well.
    pub fn simulates(&self) -> bool {
        self.simulated.is_some()
    }

    /// Compares a final block with all references; the worse outcome.
    pub fn check(&self, u: &[f64]) -> Verdict {
        let verdict = self.closed.check(&self.geometry, u);
        match &self.simulated {
            None => verdict,
            Some(v) => verdict.or_worse(Verdict::compare(
                &self.geometry,
                "the simulation",
                u,
                v.iter().copied(),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faces::params::{Counts, Grid, Init, Size, Variant};

    #[test]
    fn the_measure_holds_at_the_ends() {
        assert_eq!(error(0.0, 0.0), 0.0);
        assert_eq!(error(0.0, 1.0), 1.0);
        assert_eq!(error(-1.0, 1.0), 1.0);
        assert_eq!(error(f64::MAX, f64::MAX), 0.0);
        assert!(error(f64::MAX, f64::MAX / 2.0) > 0.3);
        for bad in [f64::NAN, f64::INFINITY] {
            assert_eq!(error(bad, 1.0), f64::INFINITY);
            assert_eq!(error(bad, bad), f64::INFINITY);
        }
    }

    fn params() -> Params {
        Params {
            grid: Grid([2, 1, 1]),
            size: Size { m: [2, 2, 2], n: 3 },
            counts: Counts {
                nk: 1,
                nj: 1,
                ni: 3,
            },
            init: Init::Global,
            compute: false,
            variants: vec![Variant::St],
        }
    }

    #[test]
    fn wrong_blocks_are_described() {
        let verifier = Verifier::new(&params(), 1).unwrap();
        let mut u = verifier.simulated.clone().unwrap();
        assert!(verifier.check(&u).passed(), "{}", verifier.check(&u));
        assert!(verifier.check(&u).to_string().contains("agree"));

        u[5] *= 1.0 + 1e-14;
        let text = verifier.check(&u).to_string();
        assert!(
            text.starts_with(
                "1 of 216 values are wrong; the worst: point [2, 1, 0] of element [0, 0, 0]"
            ),
            "{text}"
        );

        u[7] = f64::NAN;
        let verdict = verifier.check(&u);
        assert!(!verdict.passed() && verdict.non_finite == 1 && verdict.wrong == 2);
        assert!(!verifier.check(&u[1..]).passed());
        assert!(verifier.check(&[]).to_string().contains("216 values"));
    }

    #[test]
    fn untouched_blocks_fail() {
        let verifier = Verifier::new(&params(), 0).unwrap();
        let mut u = vec![0.0; verifier.geometry().len()];
        crate::faces::kernels::init(verifier.geometry(), Init::Global, u.as_mut_slice());
        assert!(!verifier.check(&u).passed());
    }
}
