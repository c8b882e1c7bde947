//! What a rank needs for all variants, and what it runs one for.

use crate::faces::layout::Direction;
use crate::faces::params::{Params, Variant};
use crate::faces::timeline::Span;
use crate::faces::verify::Verifier;
use crate::results::RankSample;
use tidegate_core::{Throttle, World};
use tidegate_hal::device::Device;
use tidegate_host::Host;

/// What a rank on the host needs for all variants.
pub type Setup<'a> = SetupOn<'a, Host>;

/// What a rank needs for all variants.
pub struct SetupOn<'a, D: Device> {
    /// This rank's view of the job.
    pub world: &'a World<D>,
    /// What is run; its grid has as many ranks as the job.
    pub params: &'a Params,
    /// What this rank's results are compared with.
    pub verifier: &'a Verifier,
    /// What windows do that are short of trigger slots; with [`Throttle::Application`] the variants count and synchronise.
    pub throttle: Throttle,
    /// Leaves this direction out of the unpack kernel: for tests that want a wrong result. Only on the host.
    pub omit: Option<Direction>,
}

/// What a variant is run for.
pub(crate) enum Goal<'a> {
    /// The variant is run to take its times.
    Measure {
        /// What comes of it.
        sample: &'a mut RankSample,
        /// Called after every run.
        step: &'a mut dyn FnMut(),
    },
    /// The variant is run to record a timeline.
    Record {
        /// The variant, which each span names.
        variant: Variant,
        /// What comes of it.
        spans: &'a mut Vec<Span>,
    },
}
