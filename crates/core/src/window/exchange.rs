//! Post, complete and wait in one call.

use std::panic::Location;
use std::sync::Arc;

use tidegate_hal::batch::Batch;
use tidegate_hal::device::Device;
use tidegate_hal::site::CallSite;

use super::access::Access;
use super::inbox::Inbox;
use super::outbox::{Outbox, settle};
use super::{Discipline, submit_armed};
use crate::carry::given_up;
use crate::element::Element;
use crate::error::{Rejected, Result};
use crate::half_kind::HalfKind;
use crate::myself::{ACCESS, Act, Myself};
use crate::observe::EpochCall;
use crate::stream::Stream;

/// The error of a refused [`try_exchange`], which contains the inbox and the epoch.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::host::Host;
/// use tidegate::window::{Refused, try_exchange};
///
/// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
/// /// Returns the error, and drops the epoch and the inbox.
/// fn why(refused: Refused<'_, '_, u64, Host, BySlot>) -> Error {
///     refused.error
/// }
/// let halves = try_exchange(s, inbox, outbox.start()).map_err(why)?;
/// # Ok(()) });
/// ```
pub type Refused<'s, 'b, T, D, K> = Rejected<(Inbox<'s, T, D, K>, Access<'s, 'b, T, D, K>)>;

/// Posts the inbox to all its origins, completes the epoch, and waits for the origins, as *one* batch. On a GPU that is
/// one kernel.
///
/// # Errors
///
/// The errors of [`Inbox::post`], [`Access::complete`] and [`Exposed::wait`](super::Exposed::wait). Then the inbox and
/// the epoch are lost, nothing has been enqueued, and the window is revoked on all ranks
/// ([`Cause::NotEnqueued`](crate::error::Cause::NotEnqueued)).
///
/// One case is [`EpochError::SelfDeadlock`](crate::error::EpochError::SelfDeadlock): this rank is an origin itself, and
/// the epoch's group leaves it out. The inbox would wait for a complete that comes later, unless one was enqueued
/// ahead.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
/// let mut epoch = outbox.start();
/// epoch.put(&src, to)?;
/// let (mut inbox, _outbox) = exchange(s, inbox, epoch)?;
/// assert_eq!(inbox.read(s)?.slot(from), [7; 4]);
/// # Ok(()) });
/// ```
#[expect(clippy::type_complexity, reason = "the two halves, plainly")]
#[track_caller]
pub fn exchange<'s, T: Element, K: Discipline, D: Device>(
    stream: &Stream<'s, D>,
    inbox: Inbox<'s, T, D, K>,
    epoch: Access<'s, '_, T, D, K>,
) -> Result<(Inbox<'s, T, D, K>, Outbox<'s, T, D, K>)> {
    try_exchange(stream, inbox, epoch).map_err(|Rejected { error, value }| {
        let (inbox, epoch) = value;
        epoch.give_up(&error);
        given_up(Rejected::new(error, inbox))
    })
}

/// Like [`exchange`], but has no effect if it fails, and returns the inbox and the epoch.
///
/// # Errors
///
/// The same as [`exchange`].
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::{Rejected, try_exchange};
///
/// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
/// let mut epoch = outbox.start();
/// epoch.put(&src, to)?;
/// let (inbox, outbox) = match try_exchange(s, inbox, epoch) {
///     Ok(halves) => halves,
///     Err(Rejected { error, value: (inbox, epoch) }) => {
///         println!("{error}");
///         s.synchronize()?; // makes room, if a queue was full
///         exchange(s, inbox, epoch)?
///     }
/// };
/// # Ok(()) });
/// ```
#[expect(clippy::type_complexity, reason = "the two halves, plainly")]
#[track_caller]
pub fn try_exchange<'s, 'b, T: Element, K: Discipline, D: Device>(
    stream: &Stream<'s, D>,
    mut inbox: Inbox<'s, T, D, K>,
    mut epoch: Access<'s, 'b, T, D, K>,
) -> Result<(Inbox<'s, T, D, K>, Outbox<'s, T, D, K>), Refused<'s, 'b, T, D, K>> {
    match enqueue(stream, &mut inbox, &mut epoch, Location::caller()) {
        Ok(()) => Ok((inbox, epoch.into_outbox())),
        Err(error) => Err(Rejected::new(error, (inbox, epoch))),
    }
}

fn enqueue<'s, T: Element, K: Discipline, D: Device>(
    stream: &Stream<'s, D>,
    inbox: &mut Inbox<'s, T, D, K>,
    epoch: &mut Access<'s, '_, T, D, K>,
    site: CallSite,
) -> Result<()> {
    use tidegate_hal::device::Stream as _;
    let (inbox, outbox) = (inbox.body_mut(), epoch.body_mut());
    inbox.half.ready(stream)?;
    outbox.half.ready(stream)?;
    inbox.groups.choose_all();
    const ALL: &[Act] = &[Act::Post, Act::Open, Act::Complete, Act::Wait];
    let own = own_acts(inbox.own(), outbox.own(), (&ACCESS, ALL));
    for (myself, acts) in own.iter().flatten() {
        myself.admit(stream, acts)?;
    }
    inbox.half.epochs.admit(None)?;
    outbox.half.epochs.admit(outbox.groups.some())?;
    let key = inbox.epoch_key();
    let members = &outbox.groups.current().members;
    let (half, edges, touched) = (&outbox.half, &outbox.edges, &outbox.touched);
    let plan = outbox.plans.plan(half, edges, members, touched)?;
    if plan
        .exchange
        .as_ref()
        .is_none_or(|(other, _)| *other != key)
    {
        // SAFETY: the three batches touch different words and different memory. The moves of the outbox write slots or
        // landings of peers, and results to regions, which are not in the window's block. Copies of ranges for the
        // inbox touch its own block. The waits write slots of this rank, where data lands, for the epoch that is
        // exposed. If a peer is this rank itself, the moves and the waits are ordered by the exposure that the moves
        // wait for, and by the completion that the inbox waits for. Posts come first, so that none of them is behind a
        // wait.
        let batch = unsafe { Batch::join(&[inbox.post_batch(), &plan.batch, inbox.wait_batch()]) };
        plan.exchange = Some((key, Arc::new(batch)));
    }
    let (_, batch) = plan.exchange.as_ref().expect("it was just made");
    settle(stream, touched, site)?;
    let arms = [inbox.arms(), &plan.arms];
    submit_armed(stream, &arms, batch, EpochCall::Exchange, site)?;
    stream.note_unput(half.window.id, || plan.unput(edges, members).clone(), site);
    inbox.half.window.waits_at(HalfKind::Inbox, site);
    outbox.half.window.waits_at(HalfKind::Outbox, site);
    inbox.half.epochs.took(stream, None);
    outbox.half.epochs.took(stream, outbox.groups.some());
    outbox.leave_tickets();
    inbox.passed_at(stream.raw().mark());
    for (myself, acts) in own.iter().flatten() {
        myself.done(stream, acts);
    }
    Ok(())
}

/// A window in which this rank is its own peer, and what the batch does in it towards this rank.
type Own<D> = (Arc<Myself<D>>, &'static [Act]);

/// What the batch does towards this rank itself: in one window, or in each of two if the halves belong to different
/// windows. The acts are those of the outbox, and those of both halves.
pub(super) fn own_acts<D: Device>(
    inbox: Option<&Arc<Myself<D>>>,
    outbox: Option<&Arc<Myself<D>>>,
    (access, all): (&'static [Act], &'static [Act]),
) -> [Option<Own<D>>; 2] {
    let one_window = match (inbox, outbox) {
        (Some(inbox), Some(outbox)) => Arc::ptr_eq(inbox, outbox),
        _ => false,
    };
    let with = |myself: Option<&Arc<Myself<D>>>, acts| Some((myself?.clone(), acts));
    if one_window {
        return [with(inbox, all), None];
    }
    [with(inbox, &[Act::Post, Act::Wait]), with(outbox, access)]
}
