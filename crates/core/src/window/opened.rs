//! The access epoch that kernels fill.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::panic::Location;

use tidegate_hal::device::Device;
use tidegate_hal::memory::Ptr;
use tidegate_hal::site::CallSite;

#[cfg(doc)]
use super::Access;
#[cfg(doc)]
use super::fill::{LastSlots, OutSlots};
use super::fill::{LoweredLast, LoweredOut};
use super::grants::Grants;
use super::outbox::{Outbox, OutboxBody};
use super::{BySlot, Discipline, Fillable, Held, Kind, Link, Typed, submit_armed};
use crate::argument::Argument;
use crate::carry::given_up;
use crate::element::Element;
#[cfg(doc)]
use crate::error::Cause;
use crate::error::{EpochError, Error, Rejected, Result};
use crate::half_kind::HalfKind;
use crate::myself::Act;
use crate::observe::EpochCall;
use crate::place::Brand;
use crate::stream::Stream;

/// An access epoch that kernels fill. [`Outbox::open`] returns it.
///
/// The stream has been told to wait for the exposures of all targets. Kernels that are launched behind it, with
/// [`Opened::slots`], put straight into the targets' slots. So a kernel sends what it has just computed, without a copy
/// of it in a region. [`Opened::complete`] tells the targets that the data is there.
///
/// Dropping it revokes the window on all ranks, since the targets wait for the completion. It cannot leave a capture.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
/// let exposed = inbox.post(s)?;
/// let mut opened = outbox.open(s)?;
/// let step = move |x: &mut [u64], mut out: OutSlots<'_, u64>| {
///     x.iter_mut().for_each(|x| *x += 1);
///     out.put(to, 0, x);
/// };
/// s.launch(step, (&mut src, opened.slots()))?;
/// let _outbox = opened.complete(s)?;
/// let mut inbox = exposed.wait(s)?;
/// assert_eq!(inbox.read(s)?.slot(from), [8; 4]);
/// # Ok(()) });
/// ```
#[must_use = "dropping an open epoch revokes the window; call `complete`"]
pub struct Opened<'s, T, D: Device, K: Discipline = BySlot> {
    pub(super) held: Held<OutboxBody<D>>,
    /// The targets that kernels complete, in ascending order.
    pub(super) by_kernels: RefCell<Vec<usize>>,
    marker: Typed<'s, T, K>,
}

/// The slots of an open outbox as a kernel's argument. The kernel sees [`OutSlots`]. See [`Opened::slots`].
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::host::OpenedSlots;
///
/// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
/// # let exposed = inbox.post(s)?;
/// /// Puts the same number everywhere.
/// fn flood<'s>(s: &Stream<'s>, slots: OpenedSlots<'_, 's, u64>, to: Out<u64>) -> Result<()> {
///     s.launch(move |mut out: OutSlots<'_, u64>| out.put(to, 0, &[5; 4]), slots)
/// }
/// let mut opened = outbox.open(s)?;
/// flood(s, opened.slots(), to)?;
/// # let _outbox = opened.complete(s)?;
/// # let mut inbox = exposed.wait(s)?;
/// # assert_eq!(inbox.read(s)?.slot(from), [5; 4]);
/// # Ok(()) });
/// ```
pub struct OpenedSlots<'b, 's, T, D: Device, K: Discipline = BySlot> {
    pub(super) lowered: LoweredOut<T, K>,
    pub(super) marker: PhantomData<(&'b mut T, &'s D, Brand<'s>)>,
}

/// The right to complete one target from inside a kernel, as that kernel's argument. The kernel sees [`LastSlots`]. See
/// [`Opened::last`].
///
/// If it is dropped instead, [`Opened::complete`] completes the target.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::host::Last;
///
/// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
/// # let exposed = inbox.post(s)?;
/// let opened = outbox.open(s)?;
/// let last: Last<'_, '_, u64> = opened.last(1 - s.world().rank())?;
/// s.launch(move |x: &[u64], mut out: LastSlots<'_, u64>| out.put(to, 0, x), (&src, last))?;
/// # let _outbox = opened.complete(s)?;
/// # let mut inbox = exposed.wait(s)?;
/// # assert_eq!(inbox.read(s)?.slot(from), [7; 4]);
/// # Ok(()) });
/// ```
#[must_use = "launch the kernel that completes the target with it"]
pub struct Last<'b, 's, T, D: Device, K: Discipline = BySlot> {
    lowered: LoweredLast<T, K>,
    lane: usize,
    opened: &'b Opened<'s, T, D, K>,
    launched: bool,
}

impl<'s, T: Element, K: Fillable, D: Device> Outbox<'s, T, D, K> {
    /// Opens an epoch for all targets that kernels fill by themselves: the stream waits until all of them have posted.
    /// ([`Outbox::start`] opens an epoch that only notes puts.)
    ///
    /// On a GPU the kernels include `kernels/tidegate.cuh`, which has the puts. A slot that a NIC reaches gets the data
    /// by staged memory, so the world needs [`WorldOptions::staged`](crate::WorldOptions::staged). All slots to such a
    /// target are sent. Ranges that a NIC reaches, and layouts, cannot be filled by kernels.
    ///
    /// The first call of an outbox allocates what kernels look at, so it cannot be inside a capture.
    ///
    /// # Errors
    ///
    /// - [`EpochError::NotByKernels`] if kernels cannot put to a target: a NIC reaches it, and the window is by range
    ///   or the world is not staged; or MPI's windows reach it; or it was declared by
    ///   [`layout_to`](super::Window::layout_to).
    /// - [`EpochError::SelfDeadlock`] if this rank is its own target, its post has not been enqueued (with two buffers:
    ///   the post of the epoch before), and its inbox is at home on this stream or was dropped.
    /// - [`CaptureError::Inside`](crate::error::CaptureError::Inside) for the first call inside a capture.
    /// - [`Error::Revoked`], [`EpochError::LastEpoch`], [`Error::Device`], [`Error::Nic`], or the error that made the
    ///   stream fail.
    ///
    /// The outbox is then lost, and the window is revoked on all ranks ([`Cause::NotEnqueued`]).
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// let exposed = inbox.post(s)?; // before `open`, or two ranks would wait for each other
    /// let mut opened = outbox.open(s)?;
    /// s.launch(move |mut out: OutSlots<'_, u64>| out.put_one(to, 0, 1), opened.slots())?;
    /// let _outbox = opened.complete(s)?;
    /// # let mut inbox = exposed.wait(s)?;
    /// # assert_eq!(inbox.read(s)?.slot(from), [1, 0, 0, 0]);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn open(self, stream: &Stream<'s, D>) -> Result<Opened<'s, T, D, K>> {
        self.try_open(stream).map_err(given_up)
    }

    /// Like [`Outbox::open`], but has no effect if it fails, and returns the outbox.
    ///
    /// # Errors
    ///
    /// The same as [`Outbox::open`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use tidegate::Rejected;
    ///
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// # let exposed = inbox.post(s)?;
    /// let opened = match outbox.try_open(s) {
    ///     Ok(opened) => opened,
    ///     Err(Rejected { error, value: outbox }) => {
    ///         println!("{error}");
    ///         s.synchronize()?; // makes room, if a queue was full
    ///         outbox.open(s)?
    ///     }
    /// };
    /// # let (_outbox, _inbox) = (opened.complete(s)?, exposed.wait(s)?);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn try_open(
        mut self,
        stream: &Stream<'s, D>,
    ) -> Result<Opened<'s, T, D, K>, Rejected<Self>> {
        match self.held.open(stream, K::KIND, Location::caller()) {
            Ok(()) => Ok(Opened {
                held: self.held.take(),
                by_kernels: RefCell::default(),
                marker: PhantomData,
            }),
            Err(error) => Err(Rejected::new(error, self)),
        }
    }
}

impl<D: Device> OutboxBody<D> {
    fn open(&mut self, stream: &Stream<'_, D>, kind: Kind, site: CallSite) -> Result<()> {
        self.half.ready(stream)?;
        self.groups.choose_all();
        if let Some(myself) = self.own() {
            myself.admit(stream, &[Act::Open])?;
        }
        self.half.epochs.admit(None)?;
        if self.grants.is_none() {
            stream.not_capturing("the first `open` of an outbox")?;
            self.grants = Some(Box::new(Grants::new(&self.half, &self.edges, kind)?));
        }
        let grants = self.grants.as_ref().expect("they were just made");
        submit_armed(stream, &[], &grants.open, EpochCall::Open, site)?;
        self.begin();
        self.half.window.waits_at(HalfKind::Outbox, site);
        if let Some(myself) = self.own() {
            myself.done(stream, &[Act::Open]);
        }
        Ok(())
    }

    fn close(
        &mut self,
        stream: &Stream<'_, D>,
        by_kernels: &[usize],
        site: CallSite,
    ) -> Result<()> {
        self.half.ready(stream)?;
        let grants = self.grants.as_mut().expect("`open` has made them");
        let batch = grants.complete(&self.half, by_kernels);
        submit_armed(stream, &[&grants.arms], &batch, EpochCall::Complete, site)?;
        self.half.epochs.took(stream, None);
        if let Some(myself) = self.own() {
            myself.done(stream, &[Act::Complete]);
        }
        Ok(())
    }
}

impl<'s, T: Element, D: Device> Opened<'s, T, D> {
    /// All slots as an argument of a kernel on the outbox's stream. The kernel sees [`OutSlots`]. Launch as many
    /// kernels with it as you like; each has the slots for itself.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// # let exposed = inbox.post(s)?;
    /// let mut opened = outbox.open(s)?;
    /// for index in 0..4 {
    ///     let put = move |mut out: OutSlots<'_, u64>, x: &[u64]| out.put_one(to, index, x[index] + index as u64);
    ///     s.launch(put, (opened.slots(), &src))?;
    /// }
    /// let _outbox = opened.complete(s)?;
    /// # let mut inbox = exposed.wait(s)?;
    /// assert_eq!(inbox.read(s)?.slot(from), [7, 8, 9, 10]);
    /// # Ok(()) });
    /// ```
    pub fn slots(&mut self) -> OpenedSlots<'_, 's, T, D> {
        OpenedSlots {
            lowered: self.lowered(),
            marker: PhantomData,
        }
    }
}

impl<'s, T: Element, K: Fillable, D: Device> Opened<'s, T, D, K> {
    /// The right to complete one target from inside a kernel, for the kernel that is launched with it. The target has
    /// its data as soon as that kernel says so, and need not wait for the kernel's end.
    ///
    /// # Errors
    ///
    /// - [`EpochError::NotInGroup`] if the rank is not a target, and [`Error::NoSuchRank`] if the team does not have
    ///   it.
    /// - [`EpochError::LastTaken`] if the right was taken before in this epoch, and not dropped.
    /// - [`EpochError::NotByKernels`] if a NIC reaches the target.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// # let exposed = inbox.post(s)?;
    /// let opened = outbox.open(s)?;
    /// let finish = move |x: &[u64], mut out: LastSlots<'_, u64>| {
    ///     out.put(to, 0, x);
    ///     out.complete();
    /// };
    /// s.launch(finish, (&src, opened.last(1 - s.world().rank())?))?;
    /// let _outbox = opened.complete(s)?; // completes the others
    /// # let mut inbox = exposed.wait(s)?;
    /// # assert_eq!(inbox.read(s)?.slot(from), [7; 4]);
    /// # Ok(()) });
    /// ```
    pub fn last(&self, rank: usize) -> Result<Last<'_, 's, T, D, K>> {
        let half = &self.held.half;
        let rank = half.roster.in_job(rank)?;
        let window = || half.window.named();
        let lane = half.peers.binary_search_by_key(&rank, |peer| peer.rank);
        let Ok(lane) = lane else {
            return Err(Error::Epoch(EpochError::NotInGroup {
                window: window(),
                rank,
                role: "a target",
            }));
        };
        self.completes_by_kernel(lane)?;
        let mut by_kernels = self.by_kernels.borrow_mut();
        let Err(place) = by_kernels.binary_search(&lane) else {
            return Err(Error::Epoch(EpochError::LastTaken {
                window: window(),
                rank,
            }));
        };
        by_kernels.insert(place, lane);
        let slots = self.lowered();
        Ok(Last {
            lowered: LoweredLast {
                slots,
                cell: slots.place.cell(lane),
                stop: Ptr::NULL,
            },
            lane,
            opened: self,
            launched: false,
        })
    }

    /// Refuses a target that kernels cannot complete.
    pub(super) fn completes_by_kernel(&self, lane: usize) -> Result<()> {
        let half = &self.held.half;
        match half.peers[lane].link {
            Link::Mapped { .. } => Ok(()),
            Link::Nic(_) => Err(Error::Epoch(EpochError::NotByKernels {
                window: half.window.named(),
                rank: half.peers[lane].rank,
                what: "complete",
                reason: "a NIC reaches it; `Opened::complete` completes it",
            })),
        }
    }

    pub(super) fn lowered(&self) -> LoweredOut<T, K> {
        LoweredOut {
            place: self.held.grants().place(),
            declaration: self.held.half.declaration,
            marker: PhantomData,
        }
    }

    /// Completes the epoch: all targets get what the kernels have put, except those that a kernel has completed
    /// ([`Opened::last`]). Kernels that are enqueued later cannot put.
    ///
    /// # Errors
    ///
    /// [`Error::Nic`] if a NIC has no room; [`Error::Revoked`], [`Error::Device`], or the error that made the stream
    /// fail. The epoch is then lost, and the window is revoked on all ranks ([`Cause::NotEnqueued`]).
    ///
    /// If the program took the [`Last`] of a target, and no kernel has completed that target, the stream fails with
    /// [`Cause::NotCompleted`]: the kernel forgot its [`LastSlots`](super::LastSlots) (`std::mem::forget`), say, or the
    /// program its [`Last`].
    ///
    /// # Examples
    ///
    /// See [`Opened`].
    #[track_caller]
    pub fn complete(self, stream: &Stream<'s, D>) -> Result<Outbox<'s, T, D, K>> {
        self.try_complete(stream)
            .map_err(|Rejected { error, value }| {
                // (The drop of the epoch revokes the window, too. But the first cause counts.)
                value.held.half.stake(true).give_up(&error);
                error
            })
    }

    /// Like [`Opened::complete`], but has no effect if it fails, and returns the epoch, which is still open.
    ///
    /// # Errors
    ///
    /// The same as [`Opened::complete`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use tidegate::Rejected;
    ///
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// # let exposed = inbox.post(s)?;
    /// let opened = outbox.open(s)?;
    /// let _outbox = match opened.try_complete(s) {
    ///     Ok(outbox) => outbox,
    ///     Err(Rejected { error, value: opened }) => {
    ///         println!("{error}");
    ///         s.synchronize()?; // makes room, if a queue was full
    ///         opened.complete(s)?
    ///     }
    /// };
    /// # let _inbox = exposed.wait(s)?;
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn try_complete(
        mut self,
        stream: &Stream<'s, D>,
    ) -> Result<Outbox<'s, T, D, K>, Rejected<Self>> {
        let by_kernels = self.by_kernels.get_mut();
        match self.held.close(stream, by_kernels, Location::caller()) {
            Ok(()) => Ok(Outbox::from_held(self.held.take())),
            Err(error) => Err(Rejected::new(error, self)),
        }
    }
}

impl<D: Device> OutboxBody<D> {
    pub(super) fn grants(&self) -> &Grants<D> {
        self.grants.as_ref().expect("`open` has made them")
    }
}

impl<T, K: Discipline, D: Device> Drop for Opened<'_, T, D, K> {
    fn drop(&mut self) {
        if !self.held.is_taken() {
            self.held.half.revoke("an `Opened` before its complete");
        }
    }
}

impl<T, K: Discipline, D: Device> Drop for Last<'_, '_, T, D, K> {
    fn drop(&mut self) {
        if !self.launched {
            let mut by_kernels = self.opened.by_kernels.borrow_mut();
            by_kernels.retain(|lane| *lane != self.lane);
        }
    }
}

// SAFETY: the outbox is at home on the stream, and the argument borrows its epoch exclusively.
unsafe impl<'s, T: Element, K: Discipline, D: Device> Argument<'s, D>
    for OpenedSlots<'_, 's, T, D, K>
{
    type Lowered = LoweredOut<T, K>;

    fn lower(&mut self, _stream: &Stream<'s, D>) -> Result<LoweredOut<T, K>> {
        Ok(self.lowered)
    }
}

// SAFETY: the outbox is at home on the stream. No other argument that exists meanwhile is for this target: `last` notes
// it in `by_kernels`, and refuses a second one; and `slots` needs the `Opened`, which this borrows.
unsafe impl<'s, T: Element, K: Discipline, D: Device> Argument<'s, D> for Last<'_, 's, T, D, K> {
    type Lowered = LoweredLast<T, K>;

    fn lower(&mut self, stream: &Stream<'s, D>) -> Result<LoweredLast<T, K>> {
        use tidegate_hal::device::Stream as _;
        self.lowered.stop = stream.raw().reports()?.stop;
        Ok(self.lowered)
    }

    fn launched(mut self, stream: &Stream<'s, D>) {
        self.launched = true;
        let batch = self.opened.held.grants().by_kernel(self.lane);
        stream.note_by_kernel(batch, Location::caller());
    }
}

impl<T, K: Discipline, D: Device> std::fmt::Debug for Opened<'_, T, D, K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.held.debug::<T>("Opened", f)
    }
}
