//! Each variant by its name.

use super::kit::Kit;
#[cfg(feature = "mpi")]
use super::mpi;
use super::setup::{Goal, SetupOn};
use super::{host, persistent, st};
use crate::faces::device::FacesDevice;
use crate::faces::params::Variant;
use crate::faces::timeline::{Span, Timeline};
use crate::results::RankSample;
use tidegate_core::Result;

/// Measures one variant on this rank; collective. `step` is called after every run.
///
/// # Errors
///
/// An error of the library, or of a peer. A wrong result is no error: the sample
/// says so.
pub fn run<D: FacesDevice>(
    setup: &SetupOn<'_, D>,
    kernels: &D::Kernels,
    variant: Variant,
    step: &mut dyn FnMut(),
) -> Result<RankSample> {
    let mut sample = RankSample::new(setup.world.rank());
    let goal = Goal::Measure {
        sample: &mut sample,
        step,
    };
    reach(&Kit::new(setup, kernels, None)?, variant, goal)?;
    Ok(sample)
}

/// Records the timeline of a few shares of one variant on this rank; collective. The parameters' counts are
/// [`COUNTS`](crate::faces::timeline::COUNTS).
///
/// # Errors
///
/// As [`run`]; a wrong result.
pub fn record<D: FacesDevice>(
    setup: &SetupOn<'_, D>,
    kernels: &D::Kernels,
    variant: Variant,
) -> Result<Vec<Span>> {
    let timeline = Timeline::new();
    let mut spans = Vec::new();
    let goal = Goal::Record {
        variant,
        spans: &mut spans,
    };
    reach(&Kit::new(setup, kernels, Some(&timeline))?, variant, goal)?;
    Ok(spans)
}

fn reach<D: FacesDevice>(kit: &Kit<'_, D>, variant: Variant, goal: Goal<'_>) -> Result<()> {
    match variant {
        Variant::St => st::run(kit, st::Form::BEST, false, goal),
        Variant::StGraph => st::run(kit, st::Form::BEST, true, goal),
        Variant::StStrided => st::run(kit, st::Form::STRIDED, false, goal),
        Variant::StStridedGraph => st::run(kit, st::Form::STRIDED, true, goal),
        Variant::StSeparate => st::run(kit, st::Form::SEPARATE, false, goal),
        Variant::Device => st::run(kit, st::Form::INSIDE, false, goal),
        Variant::DeviceGraph => st::run(kit, st::Form::INSIDE, true, goal),
        Variant::DevicePersistent => persistent::run(kit, goal),
        Variant::Rma if D::INLINE_MESSAGES => host::run(kit, host::Epochs::One, goal),
        Variant::P2p if D::INLINE_MESSAGES => host::run(kit, host::Epochs::Each, goal),
        Variant::Rma => st::run(kit, st::Form::RMA, false, goal),
        Variant::P2p => st::run(kit, st::Form::P2P, false, goal),
        #[cfg(feature = "mpi")]
        Variant::MpiRma => mpi::run(kit, mpi::Messages::Rma, mpi::Kernels::OnStream, goal),
        #[cfg(feature = "mpi")]
        Variant::MpiP2p => mpi::run(kit, mpi::Messages::P2p, mpi::Kernels::OnStream, goal),
        #[cfg(feature = "mpi")]
        Variant::MpiRmaDirect => mpi::run(kit, mpi::Messages::Rma, mpi::Kernels::Direct, goal),
        #[cfg(feature = "mpi")]
        Variant::MpiP2pDirect => mpi::run(kit, mpi::Messages::P2p, mpi::Kernels::Direct, goal),
        #[cfg(not(feature = "mpi"))]
        other => Err(tidegate_core::Error::other(format!(
            "`{other}` goes over MPI, and this was built without the feature `mpi`"
        ))),
    }
}
