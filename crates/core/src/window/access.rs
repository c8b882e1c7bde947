//! The access epoch.

use std::marker::PhantomData;
use std::panic::Location;

use tidegate_hal::batch::Op;
use tidegate_hal::device::Device;
use tidegate_hal::site::CallSite;

use super::Typed;
use super::handle::{Dest, IntoDest, Out, OutOnce};
use super::note::{Draft, What};
use super::outbox::{Outbox, OutboxBody, settle};
use super::refused::{fits_layout, foreign_slot, slot_expired, slot_taken, too_long};
use super::source::{IntoSource, IntoSourceMut, Source};
use super::{ByRange, BySlot, Discipline, Held, submit_armed};
use crate::element::{Arithmetic, Element};
#[cfg(doc)]
use crate::error::Cause;
use crate::error::{EpochError, Error, Rejected, Result, WindowName};
use crate::half_kind::HalfKind;
use crate::layout::Layout;
use crate::myself::ACCESS;
use crate::nic::Touch;
use crate::observe::EpochCall;
use crate::region::RegionBody;
use crate::stream::Stream;

/// An epoch in which this rank accesses its targets' memory. It only notes operations; [`Access::complete`] enqueues
/// them.
///
/// `'b` is the borrow of the sources and destinations: the program can neither write nor free them until the epoch is
/// complete. Dropping the epoch revokes the window on all ranks, since the targets wait for its completion.
///
/// # Examples
///
/// ```
/// use tidegate::host::prelude::*;
///
/// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
/// let exposed = inbox.post(s)?;
/// let mut epoch = outbox.start();
/// epoch.put(src.slice(0..2)?, to)?; // `src` is borrowed until the epoch is complete
/// epoch.put(src.slice(2..4)?, to.at(2))?;
/// let _outbox = epoch.complete(s)?;
/// let mut inbox = exposed.wait(s)?;
/// assert_eq!(inbox.read(s)?.slot(from), [7; 4]);
/// # Ok(()) });
/// ```
#[must_use = "dropping an epoch half-done revokes the window; call `complete`"]
pub struct Access<'s, 'b, T, D: Device, K: Discipline = BySlot> {
    pub(super) held: Held<OutboxBody<D>>,
    borrow: PhantomData<fn(&'b ()) -> &'b ()>,
    marker: Typed<'s, T, K>,
}

impl<'s, 'b, T: Element, K: Discipline, D: Device> Access<'s, 'b, T, D, K> {
    pub(super) fn new(held: Held<OutboxBody<D>>) -> Self {
        Access {
            held,
            borrow: PhantomData,
            marker: PhantomData,
        }
    }

    pub(super) fn body_mut(&mut self) -> &mut OutboxBody<D> {
        &mut self.held
    }

    /// The outbox as it was, if nothing of the epoch has been enqueued.
    pub(crate) fn into_outbox(mut self) -> Outbox<'s, T, D, K> {
        Outbox::from_held(self.held.take())
    }

    /// Turns each handle into one that the compiler lets you use only once, so that no two operations of the epoch use
    /// the same slot. (You can use a plain [`Out`] several times; [`Access::complete`] refuses operations that
    /// overlap.) A handle that is taken and not used puts nothing.
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(1, |world| {
    /// # stream!(let s = world.stream()?);
    /// # let src = Region::from_slice(&world, &[1, 2, 3])?.on(&s)?;
    /// let mut window = SlotWindow::<u64>::new("two");
    /// let (from, at_end) = (window.slot_from(0, 0, 3), window.slot_from(0, 1, 4));
    /// let (a, b) = (window.slot_to(0, 0), window.slot_to(0, 1));
    /// let (inbox, outbox) = window.open(&s)?;
    ///
    /// let mut epoch = outbox.start();
    /// let [a, b] = epoch.take([a, b])?;
    /// epoch.put(&src, a)?; // `a` once more would not compile
    /// epoch.put(&src, b.at(1))?;
    /// let (mut inbox, _outbox) = exchange(&s, inbox, epoch)?;
    /// let came = inbox.read(&s)?;
    /// assert_eq!((came.slot(from), came.slot(at_end)), (&[1, 2, 3][..], &[0, 1, 2, 3][..]));
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    ///
    /// [`EpochError::ForeignSlot`](crate::error::EpochError::ForeignSlot) for a handle of another window, and
    /// [`EpochError::SlotTaken`](crate::error::EpochError::SlotTaken) for one that occurs twice or was taken before in
    /// this epoch. Nothing is taken then.
    pub fn take<const N: usize>(&mut self, slots: [Out<T>; N]) -> Result<[OutOnce<T>; N]> {
        let body = &mut *self.held;
        let epoch = body.epoch;
        for (position, slot) in slots.iter().enumerate() {
            let refused = if slot.declaration != body.half.declaration {
                foreign_slot(body, slot.index)
            } else if body.edges[slot.index as usize].taken == epoch {
                slot_taken(body, slot.index)
            } else {
                body.edges[slot.index as usize].taken = epoch;
                continue;
            };
            for earlier in &slots[..position] {
                body.edges[earlier.index as usize].taken = 0;
            }
            return Err(body.refuse(refused));
        }
        Ok(slots.map(|slot| slot.once(epoch)))
    }

    /// Refuses what the device cannot do with this element type at all.
    #[inline]
    pub(super) fn check_carried(&self, reduction: Option<Op>) -> Result<()>
    where
        T: Arithmetic,
    {
        let half = &self.held.half;
        match half.world.device().refuses(reduction, T::SCALAR) {
            None => Ok(()),
            Some(why) => Err(Error::Epoch(EpochError::NotByDevice {
                window: half.window.named(),
                reason: why.to_string(),
            })),
        }
    }

    /// Checks what a single operation shows, and notes the operation.
    #[inline]
    pub(super) fn note(
        &mut self,
        what: What,
        source: &Source<'b, 's, T, D>,
        dest: &Dest<'b, T, D>,
    ) -> Result<()> {
        let noted = self.try_note(what, source, dest);
        noted.map_err(|error| self.held.refuse(error))
    }

    #[inline]
    fn try_note(
        &mut self,
        what: What,
        source: &Source<'b, 's, T, D>,
        dest: &Dest<'b, T, D>,
    ) -> Result<()> {
        let body = &mut *self.held;
        if dest.declaration != body.half.declaration {
            return Err(foreign_slot(body, dest.edge));
        }
        if dest.epoch != 0 && dest.epoch != body.epoch {
            return Err(slot_expired(body, dest.edge));
        }
        let edge = &body.edges[dest.edge as usize];
        // This is built only where it is needed, so that an epoch that repeats a plan does not write it to memory.
        let draft = || Draft {
            what,
            edge: dest.edge,
            first: dest.first,
            count: source.count,
            local: source.local,
            local_layout: source.layout,
            remote_layout: dest.layout,
        };
        let extent = dest.layout.map_or(source.count, Layout::extent);
        if dest.first > edge.len || extent > edge.len - dest.first {
            match &edge.layout {
                Some(layout) => fits_layout(body, layout, &draft())?,
                None => return Err(too_long(body, &draft(), extent, edge.len)),
            }
        }
        let direct = edge.is_direct();
        if let Some(layout) = dest.layout {
            layout.as_destination()?;
            if layout.count() != source.count {
                return Err(Error::Epoch(EpochError::CountMismatch {
                    window: body.half.window.named(),
                    src: source.count,
                    dst: layout.count(),
                }));
            }
        }
        if !body.plans.repeats(&draft()) {
            body.plans.departs(&draft());
        }
        if direct || source.body.outstanding().is_some() {
            let touch = match what {
                What::Get => Touch::Write,
                _ => Touch::Read,
            };
            body.touch(dest.edge, source.body.tickets(), touch);
        }
        Ok(())
    }

    /// Like [`note`](Self::note), for a put whose elements are counted.
    fn note_counted(
        &mut self,
        source: &Source<'b, 's, T, D>,
        count: &Source<'b, 's, u64, D>,
        dest: &Dest<'b, T, D>,
    ) -> Result<()> {
        if count.count != 1 {
            let (window, count) = (self.held.half.window.named(), count.count);
            let error = EpochError::NotOneCount { window, count };
            return Err(self.held.refuse(error.into()));
        }
        let layouts = [source.layout, count.layout, dest.layout];
        if layouts.iter().any(Option::is_some) {
            let window = self.held.half.window.named();
            let error = EpochError::CountedLayout { window };
            return Err(self.held.refuse(error.into()));
        }
        let count_at = count.local;
        self.note(What::PutCounted { count: count_at }, source, dest)?;
        // A NIC does not read the count. But an earlier operation of a NIC may still write it.
        let body = &mut *self.held;
        if !body.edges[dest.edge as usize].is_direct() && count.body.outstanding().is_some() {
            body.touch(dest.edge, count.body.tickets(), Touch::Read);
        }
        Ok(())
    }

    /// Notes how the epoch uses a region that a NIC reads or writes.
    #[inline]
    pub(super) fn touch(&mut self, dest: &Dest<'b, T, D>, region: &RegionBody<D>, touch: Touch) {
        let body = &mut *self.held;
        if body.edges[dest.edge as usize].is_direct() || region.outstanding().is_some() {
            body.touch(dest.edge, region.tickets(), touch);
        }
    }

    /// Validates the epoch as a whole, and enqueues it. For each target, the stream waits until the target has posted,
    /// moves the data, and signals (MPI: `MPI_Win_complete`). Work that is enqueued later may write the sources.
    ///
    /// # Errors
    ///
    /// - [`EpochError::Overlap`](crate::error::EpochError::Overlap) if two operations touch the same elements. Gets
    ///   may, and so may accumulates with the same operation, and all operations of an atomic window.
    /// - [`EpochError::OutsideGroup`](crate::error::EpochError::OutsideGroup) if an operation goes to a rank outside of the
    ///   epoch's group.
    /// - [`EpochError::OtherDevice`](crate::error::EpochError::OtherDevice) if a layout's table is in memory of another
    ///   device.
    /// - [`Error::Nic`] if a NIC cannot carry out an operation, or has no room for it.
    /// - [`EpochError::SelfDeadlock`](crate::error::EpochError::SelfDeadlock) if this rank is its own target, its post
    ///   has not been enqueued (with two buffers: the post of the epoch before), and its inbox is at home on this
    ///   stream or was dropped.
    /// - [`Error::Revoked`], [`EpochError::LastEpoch`](crate::error::EpochError::LastEpoch), [`Error::Device`], or the
    ///   error that made the stream fail.
    ///
    /// The epoch is then lost, and the window is revoked on all ranks, so that no target waits for it
    /// ([`Cause::NotEnqueued`]).
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// let exposed = inbox.post(s)?;
    /// let mut epoch = outbox.start();
    /// epoch.put(&src, to)?;
    /// let _outbox = epoch.complete(s)?; // enqueued
    /// s.launch(|src: &mut [u64]| src.fill(8), &mut src)?; // the target still gets 7
    /// # let mut inbox = exposed.wait(s)?;
    /// # assert_eq!(inbox.read(s)?.slot(from), [7; 4]);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn complete(self, stream: &Stream<'s, D>) -> Result<Outbox<'s, T, D, K>> {
        self.try_complete(stream)
            .map_err(|Rejected { error, value }| {
                value.give_up(&error);
                error
            })
    }

    /// Like [`Access::complete`], but has no effect if it fails, and returns the epoch, which is still open. (Dropping
    /// that revokes the window.)
    ///
    /// # Errors
    ///
    /// The same as [`Access::complete`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use tidegate::Rejected;
    ///
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// # let exposed = inbox.post(s)?;
    /// let mut epoch = outbox.start();
    /// epoch.put(&src, to)?;
    /// let _outbox = match epoch.try_complete(s) {
    ///     Ok(outbox) => outbox,
    ///     Err(Rejected { error, value: epoch }) => {
    ///         println!("{error}");
    ///         s.synchronize()?; // makes room, if a queue was full
    ///         epoch.complete(s)?
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
        match self.enqueue(stream, Location::caller()) {
            Ok(()) => Ok(self.into_outbox()),
            Err(error) => Err(Rejected::new(error, self)),
        }
    }

    /// Revokes the window, because a call failed with this error and does not return the epoch.
    #[cold]
    pub(super) fn give_up(self, error: &Error) {
        if self.is_awaited() {
            self.held.half.stake(true).give_up(error);
        }
    }

    fn enqueue(&mut self, stream: &Stream<'s, D>, site: CallSite) -> Result<()> {
        let body = &mut *self.held;
        body.half.ready(stream)?;
        if let Some(myself) = body.own() {
            myself.admit(stream, &ACCESS)?;
        }
        body.half.epochs.admit(body.groups.some())?;
        let members = &body.groups.current().members;
        let plan = body
            .plans
            .plan(&body.half, &body.edges, members, &body.touched)?;
        settle(stream, &body.touched, site)?;
        submit_armed(
            stream,
            &[&plan.arms],
            &plan.batch,
            EpochCall::Complete,
            site,
        )?;
        let unput = || plan.unput(&body.edges, members).clone();
        stream.note_unput(body.half.window.id, unput, site);
        body.half.window.waits_at(HalfKind::Outbox, site);
        body.half.epochs.took(stream, body.groups.some());
        body.leave_tickets();
        if let Some(myself) = body.own() {
            myself.done(stream, &ACCESS);
        }
        Ok(())
    }
}

macro_rules! put {
    ($kind:ty) => {
        impl<'s, 'b, T: Element, D: Device> Access<'s, 'b, T, D, $kind> {
            /// Notes a put: the elements of `source` replace those of `dest`, from the first element of `dest` on.
            /// Elements that an epoch does not put keep the data of an earlier epoch, and the target is not told. If
            /// messages vary, put a header in every epoch ([`Slots`](super::Slots)).
            ///
            /// # Errors
            ///
            /// Nothing is noted if the call fails. Its errors are:
            ///
            /// - [`EpochError::ForeignSlot`](crate::error::EpochError::ForeignSlot) for a handle of another window.
            /// - [`EpochError::SlotExpired`](crate::error::EpochError::SlotExpired) for a handle that was taken in
            ///   another epoch.
            /// - [`EpochError::OutOfBounds`](crate::error::EpochError::OutOfBounds) if the slot or range is too short.
            /// - [`EpochError::CountMismatch`](crate::error::EpochError::CountMismatch),
            ///   [`EpochError::NotDistinct`](crate::error::EpochError::NotDistinct) or
            ///   [`EpochError::LayoutOfLayout`](crate::error::EpochError::LayoutOfLayout) for a layout that does not
            ///   fit the destination.
            ///
            /// # Examples
            ///
            /// ```
            /// # use tidegate::host::prelude::*;
            /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
            /// let mut epoch = outbox.start();
            /// epoch.put(src.slice(0..3)?, to)?; // to the first 3 elements of the slot
            /// epoch.put(src.slice(3..4)?, to.at(3))?; // to the last one
            /// let (mut inbox, _outbox) = exchange(s, inbox, epoch)?;
            /// assert_eq!(inbox.read(s)?.slot(from), [7; 4]);
            /// # Ok(()) });
            /// ```
            #[inline]
            pub fn put(
                &mut self,
                source: impl IntoSource<'b, 's, T, D>,
                dest: impl IntoDest<'b, T, D>,
            ) -> Result<()> {
                self.note(What::Put, &source.into(), &dest.into())
            }

            /// Notes a put of the first elements of `source`, as many as `count` says. `count` is a region of one
            /// `u64`. A kernel that was enqueued before writes it, and it stays borrowed until the epoch is complete.
            /// So the kernel that packs the message decides how long it is, and the host need not know. Each replay of
            /// a recording reads the number again. If the count is greater than the source, the whole source is put.
            ///
            /// The target is not told the number: let the first element say it (see `tidegate::guide::messages`). The
            /// rest of the slot, up to the length of the whole source, is not specified. It may keep its old data, or
            /// get data of this or an earlier source. (A NIC ignores the number, and sends the whole source.)
            ///
            /// # Errors
            ///
            /// The errors of [`Access::put`](Self::put) for the whole source, and:
            ///
            /// - [`EpochError::NotOneCount`](crate::error::EpochError::NotOneCount) if `count` is not one element.
            /// - [`EpochError::CountedLayout`](crate::error::EpochError::CountedLayout) if `source`, `count` or `dest`
            ///   has a layout.
            /// - [`EpochError::CountedToLayout`](crate::error::EpochError::CountedToLayout) if `dest` was declared as a
            ///   layout.
            ///
            /// # Examples
            ///
            /// ```
            /// # use tidegate::host::prelude::*;
            /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
            /// # let mut count = Region::<u64>::zeroed(s.world(), 1)?.on(s)?;
            /// s.launch(|count: &mut [u64]| count[0] = 2, &mut count)?; // a kernel finds how much there is
            /// let mut epoch = outbox.start();
            /// epoch.put_counted(&src, &count, to)?;
            /// let (mut inbox, _outbox) = exchange(s, inbox, epoch)?;
            /// assert_eq!(inbox.read(s)?.slot(from)[..2], [7, 7]);
            /// # Ok(()) });
            /// ```
            #[inline]
            pub fn put_counted(
                &mut self,
                source: impl IntoSource<'b, 's, T, D>,
                count: impl IntoSource<'b, 's, u64, D>,
                dest: impl IntoDest<'b, T, D>,
            ) -> Result<()> {
                self.note_counted(&source.into(), &count.into(), &dest.into())
            }
        }
    };
}
put!(BySlot);
put!(ByRange);

impl<'s, 'b, T: Element, D: Device> Access<'s, 'b, T, D, ByRange> {
    /// Notes a get: as many elements as `into` has are copied to it, from the first element of `from` on.
    ///
    /// # Errors
    ///
    /// The same as [`Access::put`](Self::put).
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranges(|s, (inbox, outbox), to, src| {
    /// let mut got = Region::<u64>::zeroed(s.world(), 2)?.on(s)?;
    /// let mut epoch = outbox.start();
    /// epoch.get(&mut got, to.at(1))?; // elements 1 and 2 of what this rank may access
    /// let (inbox, _outbox) = exchange(s, inbox, epoch)?;
    /// assert_eq!(got.into_host(s)?[..], [0, 0]);
    /// # Ok(()) });
    /// ```
    pub fn get(
        &mut self,
        into: impl IntoSourceMut<'b, 's, T, D>,
        from: impl IntoDest<'b, T, D>,
    ) -> Result<()> {
        self.note(What::Get, &into.into().source, &from.into())
    }
}

impl<'s, 'b, T: Arithmetic, D: Device> Access<'s, 'b, T, D, ByRange> {
    /// Notes an accumulate: each element of the range is replaced by `op` of itself and the element of the source.
    ///
    /// # Errors
    ///
    /// The errors of [`Access::put`](Self::put), and:
    ///
    /// - [`EpochError::NotForFloats`](crate::error::EpochError::NotForFloats) for a bitwise operation on floats.
    /// - [`EpochError::NotByDevice`](crate::error::EpochError::NotByDevice) if the device cannot carry the operation
    ///   out in peers' memory.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranges(|s, (inbox, outbox), to, src| {
    /// let mut epoch = outbox.start();
    /// epoch.accumulate(&src, to, Op::Sum)?;
    /// let (mut inbox, outbox) = exchange(s, inbox, epoch)?;
    /// let mut epoch = outbox.start();
    /// epoch.accumulate(&src, to, Op::Sum)?;
    /// let (mut inbox, _outbox) = exchange(s, inbox, epoch)?;
    /// assert_eq!(inbox.host_mut(s)?[..5], [14, 14, 14, 14, 0]);
    /// # Ok(()) });
    /// ```
    pub fn accumulate(
        &mut self,
        source: impl IntoSource<'b, 's, T, D>,
        dest: impl IntoDest<'b, T, D>,
        op: Op,
    ) -> Result<()> {
        check_op::<T>(op, || self.held.half.window.named())?;
        self.check_carried(Some(op))?;
        let what = What::Accumulate {
            op,
            scalar: T::SCALAR,
            atomic: false,
        };
        self.note(what, &source.into(), &dest.into())
    }
}

/// Refuses a bitwise operation on floats. The error names the window.
pub(crate) fn check_op<T: Arithmetic>(op: Op, window: impl FnOnce() -> WindowName) -> Result<()> {
    if T::FLOAT && op.is_bitwise() {
        let window = window();
        return Err(Error::Epoch(EpochError::NotForFloats { window, op }));
    }
    Ok(())
}

impl<T, K: Discipline, D: Device> Access<'_, '_, T, D, K> {
    /// Whether a target may wait for this epoch. Behind the last epoch with all of its targets, none of them waits any
    /// more.
    fn is_awaited(&self) -> bool {
        !self.held.half.epochs.are_over(self.held.groups.some())
    }
}

impl<T, K: Discipline, D: Device> Drop for Access<'_, '_, T, D, K> {
    fn drop(&mut self) {
        if !self.held.is_taken() && self.is_awaited() {
            let mut token = String::from("an `Access` before its complete");
            if let Some(refused) = &self.held.refused {
                token.push_str(", after an operation was refused: ");
                token.push_str(refused);
            }
            self.held.half.revoke(&token);
        }
    }
}

impl<T, K: Discipline, D: Device> std::fmt::Debug for Access<'_, '_, T, D, K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.held.debug::<T>("Access", f)
    }
}
