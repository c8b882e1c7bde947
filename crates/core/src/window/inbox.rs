//! The target's half of a window.

use std::marker::PhantomData;
use std::panic::Location;
use std::time::Duration;

use tidegate_hal::device::{Device, Stream as _};
use tidegate_hal::ids::WindowId;

use super::Typed;
use super::exposure::{InboxBody, WHOLE};
use super::view::Table;
use super::{BySlot, Discipline, Group, Half, Held};
use crate::carry::{Carry, LeafState, Visitor, given_up};
use crate::element::Element;
#[cfg(doc)]
use crate::error::Cause;
use crate::error::{Error, Rejected, Result, WindowName};
use crate::half_kind::HalfKind;
use crate::myself::Act;
use crate::observe::EpochCall;
use crate::stream::Stream;
use crate::world::Roster;

/// The target's half of a window: the memory that others put into, while it is not exposed. (If slots have two buffers,
/// an origin may fill the other buffer meanwhile. This rank does not see that one.) It is at home on stream `'s`.
///
/// Kernels of the stream get slots by [`Inbox::view`], and the memory of other windows by [`Inbox::memory`] and
/// [`Inbox::memory_mut`]. If the host can access the device's memory
/// ([`HostAccess`](tidegate_hal::device::HostAccess)), it reads slots by [`Inbox::read`], and other memory by
/// [`Inbox::host_mut`]. On GPUs it cannot: let a kernel copy the data to a region, and read that by
/// [`Region::to_vec`](crate::Region::to_vec) or [`Region::into_host`](crate::Region::into_host).
///
/// # Examples
///
/// ```
/// use tidegate::host::prelude::*;
///
/// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
/// let exposed = inbox.post(s)?; // from here on origins may write the slots
/// # let _outbox = outbox.start().complete(s)?;
/// let mut inbox = exposed.wait(s)?; // now they have written them
/// assert_eq!(inbox.read(s)?.slot(from), [0; 4]);
/// # Ok(()) });
/// ```
#[must_use = "a dropped inbox posts no more epochs: an origin that waits for the next post waits for ever"]
pub struct Inbox<'s, T, D: Device, K: Discipline = BySlot> {
    pub(super) held: Held<InboxBody<D>>,
    marker: Typed<'s, T, K>,
}

/// An inbox whose memory is exposed to a group of origins. This rank cannot touch the memory until [`Exposed::wait`]
/// returns the inbox.
///
/// Dropping it revokes the window on all ranks.
///
/// # Examples
///
/// ```
/// use tidegate::host::prelude::*;
///
/// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
/// let exposed: Exposed<'_, u64> = inbox.post(s)?; // reading a slot now does not compile
/// # let _outbox = outbox.start().complete(s)?;
/// let inbox = exposed.wait(s)?;
/// # Ok(()) });
/// ```
#[must_use = "dropping an exposure half-done revokes the window; call `wait`"]
pub struct Exposed<'s, T, D: Device, K: Discipline = BySlot> {
    pub(super) held: Held<InboxBody<D>>,
    marker: Typed<'s, T, K>,
}

impl<'s, T: Element, K: Discipline, D: Device> Inbox<'s, T, D, K> {
    pub(super) fn new(body: InboxBody<D>) -> Self {
        Inbox {
            held: Held::new(body),
            marker: PhantomData,
        }
    }

    pub(super) fn from_held(held: Held<InboxBody<D>>) -> Self {
        Inbox {
            held,
            marker: PhantomData,
        }
    }

    pub(super) fn half(&self) -> &Half<D> {
        &self.held.half
    }

    pub(super) fn table(&self) -> &Table<D> {
        &self.held.table
    }

    pub(super) fn body_mut(&mut self) -> &mut InboxBody<D> {
        &mut self.held
    }

    /// The window's name.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// assert_eq!(inbox.name(), "slots");
    /// # Ok(()) });
    /// ```
    pub fn name(&self) -> &str {
        &self.held.half.window.name
    }

    /// The window's id, which is the same on all ranks. Reports and errors name it.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// println!("reports call it {}", inbox.id());
    /// # Ok(()) });
    /// ```
    pub fn id(&self) -> WindowId {
        self.held.half.window.id
    }

    /// The team that has opened the window.
    pub(crate) fn roster(&self) -> &Roster {
        &self.held.half.roster
    }

    /// The name and id that errors contain.
    pub(crate) fn named(&self) -> WindowName {
        self.held.half.window.named()
    }

    /// Sets a limit for all later waits of the window.
    pub(crate) fn fail_after(&self, limit: Duration) {
        self.held.half.window.fail_after(limit);
    }

    /// Whether an epoch could begin, as far as this rank knows.
    pub(crate) fn ready(&self, stream: &Stream<'_, D>) -> Result<()> {
        self.held.half.ready(stream)
    }

    /// Revokes the window, because this rank could not enqueue the rest of an epoch that it has begun.
    pub(crate) fn revoke(&self, error: &Error) {
        self.held.half.stake(true).give_up(error);
    }

    /// The ranks that put into this inbox, in ascending order.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// assert!(inbox.origins().eq([1 - s.world().rank()]));
    /// # Ok(()) });
    /// ```
    pub fn origins(&self) -> impl Iterator<Item = usize> + '_ {
        self.held.half.peer_ranks()
    }

    /// Enqueues the exposure of the memory to all origins (MPI: `MPI_Win_post`). Work that was enqueued before may
    /// still read the memory: the exposure comes after it.
    ///
    /// # Errors
    ///
    /// [`Error::Revoked`], [`EpochError::LastEpoch`](crate::error::EpochError::LastEpoch), [`Error::Device`],
    /// [`Error::Nic`], or the error that made the stream fail. The inbox is then lost, and the window is revoked on all
    /// ranks, so that no origin waits for this rank ([`Cause::NotEnqueued`]).
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// let exposed = inbox.post(s)?;
    /// let mut epoch = outbox.start();
    /// epoch.put(&src, to)?;
    /// let _outbox = epoch.complete(s)?;
    /// let mut inbox = exposed.wait(s)?;
    /// assert_eq!(inbox.read(s)?.slot(from), [7; 4]);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn post(self, stream: &Stream<'s, D>) -> Result<Exposed<'s, T, D, K>> {
        self.try_post(stream).map_err(given_up)
    }

    /// Like [`Inbox::post`], but has no effect if it fails, and returns the inbox.
    ///
    /// # Errors
    ///
    /// The same as [`Inbox::post`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// let exposed = match inbox.try_post(s) {
    ///     Ok(exposed) => exposed,
    ///     Err(refused) => refused.value.post(s)?, // the inbox is as it was
    /// };
    /// # let (_outbox, _inbox) = (outbox.start().complete(s)?, exposed.wait(s)?);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn try_post(self, stream: &Stream<'s, D>) -> Result<Exposed<'s, T, D, K>, Rejected<Self>> {
        self.post_group(stream, None)
    }

    /// Like [`Inbox::post`], for some of the origins. Each of them must start an epoch that names this rank.
    ///
    /// # Errors
    ///
    /// [`EpochError::NotInGroup`](crate::error::EpochError::NotInGroup) if a member of the group is not an origin,
    /// [`Error::NoSuchRank`] if the team that opened the window does not have that rank, and the errors of
    /// [`Inbox::post`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// let peer = Group::new([1 - s.world().rank()]);
    /// let exposed = inbox.post_to(s, &peer)?;
    /// let _outbox = outbox.start_to(&peer)?.complete(s)?; // on the peer, for this rank
    /// let inbox = exposed.wait(s)?;
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn post_to(self, stream: &Stream<'s, D>, group: &Group) -> Result<Exposed<'s, T, D, K>> {
        self.try_post_to(stream, group).map_err(given_up)
    }

    /// Like [`Inbox::post_to`], but has no effect if it fails, and returns the inbox.
    ///
    /// # Errors
    ///
    /// The same as [`Inbox::post_to`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// let refused = inbox.try_post_to(s, &Group::new([9])).unwrap_err(); // rank 9 is no origin
    /// let exposed = refused.value.post(s)?;
    /// # let (_outbox, _inbox) = (outbox.start().complete(s)?, exposed.wait(s)?);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn try_post_to(
        self,
        stream: &Stream<'s, D>,
        group: &Group,
    ) -> Result<Exposed<'s, T, D, K>, Rejected<Self>> {
        self.post_group(stream, Some(group))
    }

    #[track_caller]
    fn post_group(
        mut self,
        stream: &Stream<'s, D>,
        group: Option<&Group>,
    ) -> Result<Exposed<'s, T, D, K>, Rejected<Self>> {
        let site = Location::caller();
        let body = &mut *self.held;
        let posted = body
            .half
            .ready(stream)
            .and_then(|()| body.choose(group))
            .and_then(|()| body.submit(stream, body.post_batch(), EpochCall::Post, site));
        match posted {
            Ok(()) => {
                body.done(stream, &[Act::Post]);
                Ok(Exposed {
                    held: self.held.take(),
                    marker: PhantomData,
                })
            }
            Err(error) => Err(Rejected::new(error, self)),
        }
    }

    /// Enqueues a whole exposure epoch, [`post`](Inbox::post) and [`wait`](Exposed::wait), as *one* batch. On a GPU
    /// that is one kernel instead of two. Use it on a rank that only receives, or that has nothing to do between the
    /// two calls. To send on the same stream as well, use [`exchange`](super::exchange).
    ///
    /// No later work on this stream, or behind a hand-off from it, begins before all origins have completed. So their
    /// completes must not depend on such work:
    ///
    /// - If this rank is an origin itself, enqueue its complete before (which takes two buffers), or on another stream.
    /// - If two ranks send to each other, at least one of them must complete before it exposes.
    ///
    /// # Errors
    ///
    /// The errors of [`Inbox::post`], and:
    ///
    /// - [`EpochError::SelfDeadlock`](crate::error::EpochError::SelfDeadlock) if this rank is an origin itself, its
    ///   complete has not been enqueued, and its outbox is at home on this stream or was dropped.
    /// - [`Error::Device`] if the batch has more lanes than the stream can carry out at a time. Post and wait apart
    ///   need half as many.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// let mut epoch = outbox.start();
    /// epoch.put(&src, to)?;
    /// let _outbox = epoch.complete(s)?; // first: so the peer does not wait for this rank
    /// let mut inbox = inbox.expose(s)?;
    /// assert_eq!(inbox.read(s)?.slot(from), [7; 4]);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn expose(self, stream: &Stream<'s, D>) -> Result<Self> {
        self.try_expose(stream).map_err(given_up)
    }

    /// Like [`Inbox::expose`], but has no effect if it fails, and returns the inbox.
    ///
    /// # Errors
    ///
    /// The same as [`Inbox::expose`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// # let _outbox = outbox.start().complete(s)?;
    /// let inbox = match inbox.try_expose(s) {
    ///     Ok(inbox) => inbox,
    ///     Err(refused) => refused.value.post(s)?.wait(s)?, // by two smaller batches
    /// };
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn try_expose(self, stream: &Stream<'s, D>) -> Result<Self, Rejected<Self>> {
        self.expose_group(stream, None)
    }

    /// Like [`Inbox::expose`], for some of the origins: see [`Inbox::post_to`].
    ///
    /// # Errors
    ///
    /// Those of [`Inbox::post_to`] and [`Inbox::expose`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// let peer = Group::new([1 - s.world().rank()]);
    /// let _outbox = outbox.start_to(&peer)?.complete(s)?;
    /// let inbox = inbox.expose_to(s, &peer)?;
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn expose_to(self, stream: &Stream<'s, D>, group: &Group) -> Result<Self> {
        self.try_expose_to(stream, group).map_err(given_up)
    }

    /// Like [`Inbox::expose_to`], but has no effect if it fails, and returns the inbox.
    ///
    /// # Errors
    ///
    /// The same as [`Inbox::expose_to`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// # let _outbox = outbox.start().complete(s)?;
    /// let refused = inbox.try_expose_to(s, &Group::new([9])).unwrap_err(); // rank 9 is no origin
    /// let inbox = refused.value.expose(s)?;
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn try_expose_to(
        self,
        stream: &Stream<'s, D>,
        group: &Group,
    ) -> Result<Self, Rejected<Self>> {
        self.expose_group(stream, Some(group))
    }

    #[track_caller]
    fn expose_group(
        mut self,
        stream: &Stream<'s, D>,
        group: Option<&Group>,
    ) -> Result<Self, Rejected<Self>> {
        let site = Location::caller();
        let body = &mut *self.held;
        let exposed = body
            .half
            .ready(stream)
            .and_then(|()| body.choose(group))
            .and_then(|()| body.admit(stream, &WHOLE))
            .and_then(|()| body.expose(stream, site));
        match exposed {
            Ok(()) => {
                body.done(stream, &WHOLE);
                body.passed_at(stream.raw().mark());
                Ok(self)
            }
            Err(error) => Err(Rejected::new(error, self)),
        }
    }
}

impl<'s, T: Element, K: Discipline, D: Device> Exposed<'s, T, D, K> {
    pub(super) fn body(&self) -> &InboxBody<D> {
        &self.held
    }
}

impl<T, K: Discipline, D: Device> Drop for Exposed<'_, T, D, K> {
    fn drop(&mut self) {
        if !self.held.is_taken() {
            self.held.half.revoke("an `Exposed` before its wait");
        }
    }
}

// SAFETY: the one leaf is visited; the marker is the only mention of the brand.
unsafe impl<'s, T: Element, K: Discipline, D: Device> Carry<'s, D> for Inbox<'s, T, D, K> {
    type At<'t> = Inbox<'t, T, D, K>;

    fn visit(&mut self, visitor: &mut Visitor<'_, D>) {
        let InboxBody { half, mark, .. } = &mut *self.held;
        visitor.leaf(half.id, &mut half.home, Some(mark));
        visitor.own(HalfKind::Inbox, half.myself.as_ref());
        visitor.stake(|| half.stake(false));
    }
}

// SAFETY: the one leaf is visited; the marker is the only mention of the brand.
unsafe impl<'s, T: Element, K: Discipline, D: Device> Carry<'s, D> for Exposed<'s, T, D, K> {
    type At<'t> = Exposed<'t, T, D, K>;

    fn visit(&mut self, visitor: &mut Visitor<'_, D>) {
        let body = &mut *self.held;
        let state = LeafState::Exposed(body.groups.current().id);
        let (half, mark) = (&mut body.half, &mut body.mark);
        visitor.leaf_in(state, half.id, &mut half.home, Some(mark));
        visitor.own(HalfKind::Inbox, half.myself.as_ref());
        visitor.stake(|| half.stake(true));
    }
}

impl<T, K: Discipline, D: Device> std::fmt::Debug for Inbox<'_, T, D, K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.held.debug::<T>("Inbox", f)
    }
}

impl<T, K: Discipline, D: Device> std::fmt::Debug for Exposed<'_, T, D, K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.held.debug::<T>("Exposed", f)
    }
}
