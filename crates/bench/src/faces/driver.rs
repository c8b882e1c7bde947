//! Faces on one rank.
//!
//! # Model
//!
//! [`rank`] runs several rounds of all variants in turn. After each variant every rank gets the samples of all ranks, and
//! makes [`Row`]s of them.
//!
//! # Failures
//!
//! An error of the library is a failed sample of this rank. If a rank dies, the rounds end: the rows have the samples so
//! far, and name the rank that did not report.

use super::device::{FacesDevice, Shape};
use super::params::Params;
use super::timeline::{self, Span};
use super::variants::{self, SetupOn};
use crate::progress::Progress;
use crate::results::{RankSample, Row, Setting};
use crate::rounds;
use std::error::Error;
use std::sync::Arc;

/// One rank's part of the timelines of all variants, one after the other; collective. The spans of all ranks (on every rank). The
/// parameters' counts are [`timeline::COUNTS`].
///
/// # Errors
///
/// A grid that does not fit the job; an error of the library on any rank; a wrong result.
pub fn timelines<D: FacesDevice>(setup: &SetupOn<'_, D>) -> Result<Vec<Span>, Box<dyn Error>> {
    let (world, params) = (setup.world, setup.params);
    if params.counts != timeline::COUNTS {
        return Err("a timeline has counts of its own".into());
    }
    let kernels = kernels(setup)?;
    let mut spans = Vec::new();
    for variant in &params.variants {
        let mine = variants::record(setup, &kernels, *variant)
            .map_err(|error| format!("{variant}: rank {}: {error}", world.rank()));
        // Errors are gathered too, so no rank waits for this one.
        for all in world.all_gather("faces timeline", postcard::to_stdvec(&mine)?)? {
            let theirs: Result<Vec<Span>, String> = postcard::from_bytes(&all)?;
            spans.extend(theirs?);
        }
    }
    Ok(spans)
}

/// The kernels; before there is a stream.
pub(crate) fn kernels<D: FacesDevice>(
    setup: &SetupOn<'_, D>,
) -> Result<D::Kernels, Box<dyn Error>> {
    let (world, params) = (setup.world, setup.params);
    if world.size() != params.grid.ranks() {
        let (size, grid) = (world.size(), params.grid);
        return Err(format!("the job has {size} ranks, but the grid is {grid}").into());
    }
    // Before there is a stream: code cannot be loaded behind a wait.
    let shape = Shape::new(setup.verifier.geometry().clone(), params.init, setup.omit);
    // SAFETY: the variants make all that they enqueue them with of the same geometry (`variants::kit`, `variants::block`).
    Ok(unsafe { D::kernels(world, Arc::new(shape)) }?)
}

/// How many runs one measurement has.
pub(crate) fn runs(params: &Params) -> u64 {
    params.counts.nk * (params.counts.nj + 1)
}

/// One rank's part of all measurements: `rounds` times all variants in turn; collective. The rows
/// (on every rank).
///
/// # Errors
///
/// A grid that does not fit the job. A failed message is no error here: its row says so.
pub fn rank<D: FacesDevice>(
    setup: &SetupOn<'_, D>,
    rounds: u32,
    progress: &Progress,
) -> Result<Vec<Row>, Box<dyn Error>> {
    let (world, params) = (setup.world, setup.params);
    let kernels = kernels(setup)?;
    let samples = rounds::gather(world, rounds, params.variants.len(), progress, |index| {
        let variant = params.variants[index];
        progress.say(variant.name());
        variants::run(setup, &kernels, variant, &mut || progress.step())
            .unwrap_or_else(|error| RankSample::failed(world.rank(), error.to_string()))
    });
    let setting = Setting::new(params, &world.device().label(), "mapped");
    let rows = params.variants.iter().zip(&samples);
    Ok(rows
        .map(|(variant, samples)| Row::new(variant.name(), setting.clone(), samples))
        .collect())
}
