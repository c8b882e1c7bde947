//! The halves of a window inside the kernel that owns them.

use std::marker::PhantomData;

use tidegate_hal::device::{Issues, Parameters};
use tidegate_hal::memory::Ptr;

use super::fill::{LoweredOut, OutSlots};
use super::handle::Out;
use super::lent::{LoweredHalf, Owned, RawHalf};
use super::view::Slots;
use crate::argument::{Lowered, OfSlots};
use crate::element::Element;

/// The target's half of a window, inside the kernel that owns it, while it is not exposed: see
/// [`Inbox::lend`](super::Inbox::lend). It is [`Inbox`](super::Inbox) for kernels, with the calls for all origins.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// # tidegate::doc::slots(|s, (mut inbox, mut outbox), (from, to), mut src| {
/// let kernel = move |x: &mut [u64], inbox: KernelInbox<'_, u64>, outbox: KernelOutbox<'_, u64>| {
///     let exposed = inbox.post();
///     let mut epoch = outbox.start();
///     epoch.put(to, 0, x);
///     let _outbox = epoch.complete();
///     let inbox = exposed.wait();
///     x.copy_from_slice(inbox.read().slot(from));
/// };
/// s.launch(kernel, (&mut src, inbox.lend(), outbox.lend()))?;
/// assert_eq!(inbox.read(s)?.slot(from), [7; 4]);
/// # Ok(()) });
/// ```
pub struct KernelInbox<'k, T> {
    half: Owned<'k>,
    /// The address and the number of the table's entries.
    slots: (Ptr, usize),
    /// The number of the window's declaration.
    declaration: u64,
    marker: PhantomData<fn(T) -> T>,
}

/// An inbox that is exposed to all of its origins, inside the kernel that owns it. The kernel cannot touch the slots
/// until [`KernelExposed::wait`] returns the inbox.
///
/// A kernel that ends with it has broken its contract: the stream fails with
/// [`PutFault::LeftExposed`](crate::error::PutFault::LeftExposed), and the peers hear of that.
///
/// # Examples
///
/// See [`KernelInbox`].
#[must_use = "a kernel that ends before `wait` makes the stream fail"]
pub struct KernelExposed<'k, T>(KernelInbox<'k, T>);

/// The origin's half of a window, inside the kernel that owns it: see [`Outbox::lend`](super::Outbox::lend). It is
/// [`Outbox`](super::Outbox) for kernels, with the calls for all targets.
///
/// # Examples
///
/// See [`KernelInbox`].
pub struct KernelOutbox<'k, T> {
    half: Owned<'k>,
    slots: LoweredOut<T>,
}

/// An access epoch inside the kernel that owns the outbox. All targets have posted, so each put stores to the target's
/// memory at once.
///
/// A kernel that ends with it has broken its contract: the stream fails with
/// [`PutFault::LeftOpen`](crate::error::PutFault::LeftOpen), and the peers hear of that.
///
/// # Examples
///
/// See [`KernelInbox`].
#[must_use = "a kernel that ends before `complete` makes the stream fail"]
pub struct KernelAccess<'k, T> {
    outbox: KernelOutbox<'k, T>,
    slots: OutSlots<'k, T>,
}

impl<'k, T: Element> KernelInbox<'k, T> {
    /// Exposes the slots to all origins (MPI: `MPI_Win_post`). It does not wait.
    ///
    /// # Panics
    ///
    /// If the window can have no more epochs: see [`EpochError::LastEpoch`](crate::error::EpochError::LastEpoch).
    ///
    /// If the stream was told to stop, this unwinds.
    ///
    /// # Examples
    ///
    /// See [`KernelInbox`].
    #[track_caller]
    pub fn post(self) -> KernelExposed<'k, T> {
        self.half.begin();
        KernelExposed(self)
    }

    /// The slots after the last wait, as a kernel sees those of [`Inbox::view`](super::Inbox::view).
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// # let mut epoch = outbox.start();
    /// # epoch.put(&src, to)?;
    /// # let (mut inbox, _outbox) = exchange(s, inbox, epoch)?;
    /// // What the host's last epoch has brought.
    /// let kernel = move |inbox: KernelInbox<'_, u64>| assert_eq!(inbox.read().slot(from), [7; 4]);
    /// s.launch(kernel, inbox.lend())?;
    /// s.synchronize()
    /// # });
    /// ```
    pub fn read(&self) -> Slots<'_, T> {
        // SAFETY: the table belongs to the half, which is retired in stream order. This kernel owns the half, which is
        // not exposed as long as it is borrowed here. What the last wait was for has come.
        unsafe { Slots::new(self.slots, self.declaration) }
    }
}

impl<'k, T: Element> KernelExposed<'k, T> {
    /// Waits until all origins have completed (MPI: `MPI_Win_wait`). The kernel then sees what they have put.
    ///
    /// # Panics
    ///
    /// If an origin's complete will never come, since a rank has ended, or the window was revoked, this unwinds. The
    /// stream fails with the same error as after a wait that the host has enqueued, and nothing is printed. If the
    /// kernel unwinds already, and a guard calls this in its `drop`, it returns an inbox whose slots are empty.
    ///
    /// # Examples
    ///
    /// See [`KernelInbox`].
    pub fn wait(mut self) -> KernelInbox<'k, T> {
        if !self.0.half.end() {
            // Origins may still be writing the slots.
            self.0.slots = (Ptr::NULL, 0);
        }
        self.0
    }
}

impl<'k, T: Element> KernelOutbox<'k, T> {
    /// Waits until all targets have posted, and begins an epoch with them (MPI: `MPI_Win_start`). Post before, or two
    /// ranks wait for each other. (With two buffers, the post of the epoch before is enough.)
    ///
    /// # Panics
    ///
    /// If the window can have no more epochs. If a target's post will never come, this unwinds: see
    /// [`KernelExposed::wait`].
    ///
    /// # Examples
    ///
    /// See [`KernelInbox`].
    #[track_caller]
    pub fn start(self) -> KernelAccess<'k, T> {
        self.half.begin();
        KernelAccess {
            // SAFETY: the table belongs to the half, which is retired in stream order. This kernel owns the half, and
            // has no other view of it.
            slots: unsafe { OutSlots::new(self.slots.place, self.slots.declaration) },
            outbox: self,
        }
    }
}

impl<'k, T: Element> KernelAccess<'k, T> {
    /// Puts elements to a slot, from its element `first` on. They replace the elements of the slot; those that the
    /// epoch does not put keep the data of an earlier epoch. If two puts name the same element, the later one counts.
    ///
    /// # Panics
    ///
    /// If the elements do not fit in the slot, or if the handle belongs to another window. As with every panic of a
    /// kernel, the stream fails, and the peers hear of that.
    ///
    /// # Examples
    ///
    /// See [`KernelInbox`].
    #[track_caller]
    pub fn put(&mut self, slot: Out<T>, first: usize, elements: &[T]) {
        self.slots.put(slot, first, elements);
    }

    /// Puts one element to a slot.
    ///
    /// # Panics
    ///
    /// As [`KernelAccess::put`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (mut inbox, mut outbox), (from, to), mut src| {
    /// let kernel = move |inbox: KernelInbox<'_, u64>, outbox: KernelOutbox<'_, u64>| {
    ///     let exposed = inbox.post();
    ///     let mut epoch = outbox.start();
    ///     epoch.put_one(to, 2, 5);
    ///     epoch.complete();
    ///     exposed.wait();
    /// };
    /// s.launch(kernel, (inbox.lend(), outbox.lend()))?;
    /// assert_eq!(inbox.read(s)?.slot(from), [0, 0, 5, 0]);
    /// # Ok(()) });
    /// ```
    #[inline]
    #[track_caller]
    pub fn put_one(&mut self, slot: Out<T>, index: usize, element: T) {
        self.slots.put_one(slot, index, element);
    }

    /// Completes the epoch (MPI: `MPI_Win_complete`): all targets have what was put.
    ///
    /// # Panics
    ///
    /// If the stream was told to stop, this unwinds.
    ///
    /// # Examples
    ///
    /// See [`KernelInbox`].
    pub fn complete(self) -> KernelOutbox<'k, T> {
        // If it fails while the kernel unwinds, each later call fails, too.
        let _ = self.outbox.half.end();
        self.outbox
    }
}

/// A lent inbox as it is enqueued.
pub struct LoweredInbox<T> {
    pub(super) half: LoweredHalf,
    pub(super) slots: (Ptr, usize),
    pub(super) declaration: u64,
    pub(super) marker: PhantomData<fn(T) -> T>,
}

/// A lent outbox as it is enqueued.
pub struct LoweredOutbox<T> {
    pub(super) half: LoweredHalf,
    pub(super) slots: LoweredOut<T>,
}

impl<T> LoweredInbox<T> {
    /// The bytes of the parameter.
    pub(crate) const SIZE: usize = size_of::<RawHalf>();
}

impl<T> LoweredOutbox<T> {
    /// The bytes of the parameter.
    pub(crate) const SIZE: usize = size_of::<RawHalf>();
}

impl<T> Clone for LoweredInbox<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for LoweredInbox<T> {}

impl<T> Clone for LoweredOutbox<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for LoweredOutbox<T> {}

// SAFETY: see `view`.
unsafe impl<T: Element> Lowered for LoweredInbox<T> {
    type View<'k> = KernelInbox<'k, T>;
    const WAITS: bool = true;

    unsafe fn view<'k>(self, stream: &'k dyn Issues) -> KernelInbox<'k, T> {
        KernelInbox {
            // SAFETY: the caller promises that the kernel runs. The argument was borrowed exclusively.
            half: unsafe { self.half.own(stream) },
            slots: self.slots,
            declaration: self.declaration,
            marker: PhantomData,
        }
    }

    fn of_slots(&self) -> OfSlots {
        OfSlots::Table(self.declaration)
    }

    fn push(self, parameters: &mut Parameters) {
        let (slots, count) = self.slots;
        parameters.push(&self.half.raw(slots, count));
    }
}

// SAFETY: see `view`.
unsafe impl<T: Element> Lowered for LoweredOutbox<T> {
    type View<'k> = KernelOutbox<'k, T>;
    const WAITS: bool = true;

    unsafe fn view<'k>(self, stream: &'k dyn Issues) -> KernelOutbox<'k, T> {
        KernelOutbox {
            // SAFETY: as for an inbox.
            half: unsafe { self.half.own(stream) },
            slots: self.slots,
        }
    }

    fn of_slots(&self) -> OfSlots {
        OfSlots::OutTable(self.slots.declaration)
    }

    fn push(self, parameters: &mut Parameters) {
        let place = self.slots.place;
        parameters.push(&self.half.raw(place.head, place.slots));
    }
}
