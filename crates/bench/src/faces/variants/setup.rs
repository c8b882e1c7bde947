//! The setup of a rank for all variants, and the goal of a run.

use crate::faces::layout::Direction;
use crate::faces::params::{Params, Variant};
use crate::faces::timeline::Span;
use crate::faces::verify::Verifier;
use crate::results::RankSample;
use tidegate_core::{Throttle, World};
use tidegate_hal::device::Device;
use tidegate_host::Host;

/// The setup of a rank on the host.
pub type Setup<'a> = SetupOn<'a, Host>;

/// The setup of a rank, for all variants.
pub struct SetupOn<'a, D: Device> {
    /// This rank's view of the job.
    pub world: &'a World<D>,
    /// The parameters; their grid has as many ranks as the job.
    pub params: &'a Params,
    /// Compares this rank's results.
    pub verifier: &'a Verifier,
    /// The policy of windows that are short of trigger slots; with [`Throttle::Application`] the variants count and
    /// synchronise.
    pub throttle: Throttle,
    /// Leaves this direction out of the unpack kernel: for tests that want a wrong result. Only on the host.
    pub omit: Option<Direction>,
}

/// The goal of a variant's run.
pub(crate) enum Goal<'a> {
    /// The variant is run to take its times.
    Measure {
        /// The result.
        sample: &'a mut RankSample,
        /// Called after every run.
        step: &'a mut dyn FnMut(),
    },
    /// The variant is run to record a timeline.
    Record {
        /// The variant, which each span names.
        variant: Variant,
        /// The result.
        spans: &'a mut Vec<Span>,
    },
}
