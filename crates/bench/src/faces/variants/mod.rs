//! How the messages travel: the variants, over this library.
//!
//! # Model
//!
//! [`run`] measures one [`Variant`] on one rank. Every variant does the same share with the same
//! kernels; they differ in who makes progress, and in how often the host synchronises:
//!
//! | variant | a share | synchronisations |
//! |---|---|---|
//! | [`St`](Variant::St) | pack kernel, [`exchange`](tidegate_core::window::exchange) (post, puts, complete and wait as one work item), unpack kernel, all enqueued on one stream | one after all shares |
//! | [`StStrided`](Variant::StStrided) | the same, without the pack kernel: the puts gather out of the block | one after all shares |
//! | [`StSeparate`](Variant::StSeparate) | post, pack kernel, an epoch for each message, wait, unpack kernel: a kernel a message, as the paper's separate kernels are | one after all shares |
//! | [`StGraph`](Variant::StGraph), [`StStridedGraph`](Variant::StStridedGraph) | the share of `St` or `StStrided`, recorded once | one after all shares |
//! | [`Rma`](Variant::Rma) | kernels on a stream; the calling thread waits for it, then posts, puts, completes, and waits until all has come | before and after the messages |
//! | [`P2p`](Variant::P2p) | as `Rma`, with an epoch of its own for each message | as `Rma` |
//! | [`MpiRma`](Variant::MpiRma), [`MpiP2p`](Variant::MpiP2p) | as `Rma` and `P2p`, by the calls of an MPI: MPI_Win_post, start, put, complete, wait; MPI_Irecv, Isend, Waitall | as `Rma` |
//! | [`MpiRmaDirect`](Variant::MpiRmaDirect), [`MpiP2pDirect`](Variant::MpiP2pDirect) | the same, with the kernels done by the calling thread | none: there is no stream |
//!
//! Those of this library use a window by slot: one slot for each neighbour, whose key is the direction in which *the
//! sender* sees the receiver. The unpack kernel reads straight from the slots.
//!
//! Nothing here depends on the [device](super::device), but for one choice: host-synchronised messages are
//! the calling thread's own work where streams are threads (an inline stream), and go to the kernels' stream,
//! with two explicit synchronisations, where they are queues of a GPU.
//!
//! **Compute.** The block is one region. If compute is on, it is [partitioned](tidegate_core::Region::partition)
//! into surface and interior, and the interior is handed to a second stream at the beginning of a
//! share, and back at its end. If it is off, the kernels see the block as one slice, which is faster.
//!
//! # Failures
//!
//! An error of the library ends the variant on this rank; dropping its half-done epoch revokes the
//! window, so that the others end with errors too. The next variant has windows and streams of its
//! own.

mod block;
mod host;
mod kit;
#[cfg(feature = "mpi")]
mod mpi;
mod st;
mod waiting;

use super::device::FacesDevice;
use super::layout::Direction;
use super::params::{Params, Variant};
use super::timeline::{Span, Timeline};
use super::verify::Verifier;
use crate::results::RankSample;
use kit::Kit;
use tidegate_core::{Result, Throttle, World};
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

/// Measures one variant on this rank; collective. `step` is called after every run.
///
/// # Errors
///
/// What the library refused, or what became of the peers. A wrong result is no error: the sample
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
/// [`COUNTS`](super::timeline::COUNTS).
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
    let synchronised = if D::INLINE_MESSAGES {
        host::run
    } else {
        waiting::run
    };
    match variant {
        Variant::St => st::run(kit, st::Form::BEST, false, goal),
        Variant::StGraph => st::run(kit, st::Form::BEST, true, goal),
        Variant::StStrided => st::run(kit, st::Form::STRIDED, false, goal),
        Variant::StStridedGraph => st::run(kit, st::Form::STRIDED, true, goal),
        Variant::StSeparate => st::run(kit, st::Form::SEPARATE, false, goal),
        Variant::Rma => synchronised(kit, host::Epochs::One, goal),
        Variant::P2p => synchronised(kit, host::Epochs::Each, goal),
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
