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
//! | [`StSeparate`](Variant::StSeparate) | post, pack kernel, puts, complete, wait, unpack kernel | one after all shares |
//! | [`StGraph`](Variant::StGraph) | the share of `St`, recorded once | one after all shares |
//! | [`Rma`](Variant::Rma) | kernels on a stream; the calling thread waits for it, then posts, puts, completes and waits itself | one a share |
//! | [`P2p`](Variant::P2p) | as `Rma`, with an epoch of its own for each message | one a share |
//!
//! All use a window by slot: one slot for each neighbour, whose key is the direction in which *the
//! sender* sees the receiver. The unpack kernel reads straight from the slots.
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
mod shape;
mod st;

use super::layout::Direction;
use super::params::{Params, Variant};
use super::verify::Verifier;
use crate::results::RankSample;
use shape::Shape;
use std::sync::Arc;
use tidegate_core::Result;
use tidegate_host::Host;

type World = tidegate_core::World<Host>;
type Stream<'s> = tidegate_core::Stream<'s, Host>;
type On<'s> = tidegate_core::On<'s, Host>;
type Region<'s> = tidegate_core::Region<f64, On<'s>>;
type Part<'s> = tidegate_core::Part<f64, On<'s>>;
type Layout = tidegate_core::Layout<Host>;
type Inbox<'s> = tidegate_core::window::Inbox<'s, f64, BySlot, Host>;
type Outbox<'s> = tidegate_core::window::Outbox<'s, f64, BySlot, Host>;

use tidegate_core::window::BySlot;

/// What a rank needs for all variants.
pub struct Setup<'a> {
    /// The job.
    pub world: &'a World,
    /// What is run; its grid has as many ranks as the job.
    pub params: &'a Params,
    /// This rank's references.
    pub verifier: &'a Verifier,
    /// Leaves this direction out of the unpack kernel: for tests that want a wrong result.
    pub omit: Option<Direction>,
}

/// Measures one variant on this rank; collective. `step` is called after every run.
///
/// # Errors
///
/// What the library refused, or what became of the peers. A wrong result is no error: the sample
/// says so.
pub fn run(setup: &Setup<'_>, variant: Variant, step: &mut dyn FnMut()) -> Result<RankSample> {
    let shape = Arc::new(Shape::new(setup)?);
    match variant {
        Variant::St => st::run(setup, shape, st::Form::BEST, false, step),
        Variant::StGraph => st::run(setup, shape, st::Form::BEST, true, step),
        Variant::StStrided => st::run(setup, shape, st::Form::STRIDED, false, step),
        Variant::StSeparate => st::run(setup, shape, st::Form::SEPARATE, false, step),
        Variant::Rma => host::run(setup, shape, host::Epochs::One, step),
        Variant::P2p => host::run(setup, shape, host::Epochs::Each, step),
    }
}
