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
    /// The job.
    pub world: &'a World<D>,
    /// What is run; its grid has as many ranks as the job.
    pub params: &'a Params,
    /// This rank's references.
    pub verifier: &'a Verifier,
    /// What windows do that are short of trigger slots; with [`Throttle::Application`] the variants count and synchronise.
    pub throttle: Throttle,
    /// Leaves this direction out of the unpack kernel: for tests that want a wrong result. Only on the host.
    pub omit: Option<Direction>,
}

/// What a variant is run for.
pub(crate) enum Goal<'a> {
    /// Times.
    Measure {
        /// What comes of it.
        sample: &'a mut RankSample,
        /// Called after every run.
        step: &'a mut dyn FnMut(),
    },
    /// A timeline.
    Record {
        /// Which it is.
        variant: Variant,
        /// What comes of it.
        spans: &'a mut Vec<Span>,
    },
}
