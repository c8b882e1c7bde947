//! Compares with both references.

use super::closed::ClosedForm;
use super::domain::Domain;
use super::verdict::Verdict;
use crate::faces::layout::Geometry;
use crate::faces::params::{Params, ParamsError};

/// Checks the final blocks of one rank: against the closed form, and against the simulated domain
/// where that is cheap.
#[derive(Debug, Clone)]
pub struct Verifier {
    geometry: Geometry,
    closed: ClosedForm,
    pub(super) simulated: Option<Vec<f64>>,
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

    /// The layout of the rank's block and messages.
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
