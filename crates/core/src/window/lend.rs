//! Lending a half of a window to a kernel.

use std::marker::PhantomData;
use std::panic::Location;

use tidegate_hal::device::{Device, Stream as _};
use tidegate_hal::site::CallSite;

use super::discipline::Kind;
use super::exposure::InboxBody;
use super::fill::LoweredOut;
use super::grants::Grants;
use super::inbox::Inbox;
use super::lent::{Lent, LoweredHalf, admit};
use super::outbox::{Outbox, OutboxBody};
#[cfg(doc)]
use super::within::{KernelInbox, KernelOutbox};
use super::within::{LoweredInbox, LoweredOutbox};
use crate::argument::Argument;
use crate::element::Element;
use crate::error::Result;
#[cfg(doc)]
use crate::error::{EpochError, PutFault, StreamError};
use crate::half_kind::HalfKind;
use crate::stream::Stream;

/// An inbox as the argument of a kernel that makes its epochs. The kernel sees [`KernelInbox`]. See [`Inbox::lend`].
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::host::LentInbox;
///
/// # tidegate::doc::slots(|s, (mut inbox, outbox), (from, to), mut src| {
/// /// Waits for one epoch, and adds what came to `x`.
/// fn receive<'s>(s: &Stream<'s>, lent: LentInbox<'_, 's, u64>, from: In<u64>, x: &mut Region<u64, On<'s>>) -> Result<()> {
///     let kernel = move |inbox: KernelInbox<'_, u64>, x: &mut [u64]| {
///         let inbox = inbox.post().wait();
///         x.iter_mut().zip(inbox.read().slot(from)).for_each(|(x, came)| *x += came);
///     };
///     s.launch(kernel, (lent, x))
/// }
/// # let mut epoch = outbox.start();
/// # epoch.put(&src, to)?;
/// # let _outbox = epoch.complete(s)?;
/// receive(s, inbox.lend(), from, &mut src)?;
/// assert_eq!(src.into_host(s)?[..], [14; 4]);
/// # Ok(()) });
/// ```
#[must_use = "launch the kernel that makes the epochs with it"]
pub struct LentInbox<'b, 's, T, D: Device> {
    inbox: &'b mut Inbox<'s, T, D>,
}

/// An outbox as the argument of a kernel that makes its epochs. The kernel sees [`KernelOutbox`]. See [`Outbox::lend`].
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::host::LentOutbox;
///
/// # tidegate::doc::slots(|s, (inbox, mut outbox), (from, to), mut src| {
/// /// Sends one message from a kernel.
/// fn send<'s>(s: &Stream<'s>, lent: LentOutbox<'_, 's, u64>, to: Out<u64>) -> Result<()> {
///     let kernel = move |outbox: KernelOutbox<'_, u64>| {
///         let mut epoch = outbox.start();
///         epoch.put(to, 0, &[1, 2, 3, 4]);
///         epoch.complete();
///     };
///     s.launch(kernel, lent)
/// }
/// let exposed = inbox.post(s)?;
/// send(s, outbox.lend(), to)?;
/// let mut inbox = exposed.wait(s)?;
/// assert_eq!(inbox.read(s)?.slot(from), [1, 2, 3, 4]);
/// # Ok(()) });
/// ```
#[must_use = "launch the kernel that makes the epochs with it"]
pub struct LentOutbox<'b, 's, T, D: Device> {
    outbox: &'b mut Outbox<'s, T, D>,
}

impl<'s, T: Element, D: Device> Inbox<'s, T, D> {
    /// The inbox as an argument of a kernel on its stream, which makes the epochs by itself: it posts, waits, and reads
    /// what came, as often as it likes, in one launch. The kernel sees [`KernelInbox`]. It must end with the inbox
    /// closed, and for the host the inbox is closed again as soon as the kernel is enqueued. So epochs of kernels and
    /// of the host alternate. The peers need not know which of them are which.
    ///
    /// On a GPU the kernel gets `tidegate::KernelInbox` of `kernels/tidegate.cuh`, and the window is one for such kernels
    /// ([`Window::for_kernels`](super::Window::for_kernels)).
    ///
    /// While a kernel waits in this way, its stream does nothing else. What the peers need from this rank must be
    /// enqueued before, or come from the kernel.
    ///
    /// If the launch fails, nothing was enqueued. It fails with the error of [`Stream::launch`], or with one of these:
    ///
    /// - [`Error::Revoked`](crate::error::Error::Revoked) if the window is revoked.
    /// - [`EpochError::NotByKernels`] if this rank is its own origin, if a NIC reaches an origin, or if the world's
    ///   transport is MPI; on a GPU also if the window is not one for kernels.
    /// - On a GPU, [`DeviceError::Exhausted`](crate::error::DeviceError::Exhausted) if there is no room for all blocks of
    ///   the kernel at the same time, or if they are more than 4096, and
    ///   [`DeviceError::Unsupported`](crate::error::DeviceError::Unsupported) if processes use the GPU in turn, or the
    ///   function may begin early.
    /// - [`CaptureError::Inside`](crate::error::CaptureError::Inside) for the first such launch of an inbox inside a
    ///   capture, since it allocates.
    ///
    /// On a GPU, the room for the blocks stays taken until the stream is dropped, since it may launch the kernel again.
    /// From the first launch on, half of the epochs that the window can have are for kernels, and half for the host:
    /// see [`PutFault::NoEpochLeft`] and [`EpochError::LastEpoch`].
    ///
    /// If the kernel ends while the inbox is exposed, the stream fails behind it with [`StreamError::KernelFault`] and
    /// [`PutFault::LeftExposed`]. A kernel of a GPU must also call `close` of its half before it ends; otherwise the
    /// stream fails with [`PutFault::NotClosed`]. The origins get an error with the same text.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (mut inbox, mut outbox), (from, to), mut src| {
    /// // 1000 epochs in one launch: each rank passes on what it has got.
    /// let relay = move |x: &mut [u64], mut inbox: KernelInbox<'_, u64>, mut outbox: KernelOutbox<'_, u64>| {
    ///     for _ in 0..1000 {
    ///         let exposed = inbox.post(); // before `start`, or two ranks would wait for each other
    ///         let mut epoch = outbox.start();
    ///         epoch.put(to, 0, x);
    ///         outbox = epoch.complete();
    ///         inbox = exposed.wait();
    ///         x.iter_mut().zip(inbox.read().slot(from)).for_each(|(x, came)| *x = came + 1);
    ///     }
    /// };
    /// s.launch(relay, (&mut src, inbox.lend(), outbox.lend()))?;
    /// let (inbox, _outbox) = exchange(s, inbox, outbox.start())?; // an epoch of the host
    /// assert_eq!(src.into_host(s)?[..], [1007; 4]);
    /// # Ok(()) });
    /// ```
    pub fn lend(&mut self) -> LentInbox<'_, 's, T, D> {
        LentInbox { inbox: self }
    }
}

impl<'s, T: Element, D: Device> Outbox<'s, T, D> {
    /// The outbox as an argument of a kernel on its stream, which makes the epochs by itself: it starts an epoch, puts,
    /// and completes, as often as it likes, in one launch. The kernel sees [`KernelOutbox`]. Everything else is as for
    /// [`Inbox::lend`]. A kernel that ends in the middle of an epoch makes the stream fail with
    /// [`PutFault::LeftOpen`].
    ///
    /// # Examples
    ///
    /// See [`Inbox::lend`].
    pub fn lend(&mut self) -> LentOutbox<'_, 's, T, D> {
        LentOutbox { outbox: self }
    }
}

impl<D: Device> InboxBody<D> {
    fn lend(&mut self, stream: &Stream<'_, D>, site: CallSite) -> Result<LoweredHalf> {
        self.half.ready(stream)?;
        let lent = match &mut self.lent {
            Some(lent) => lent,
            none => {
                admit(&self.half)?;
                stream.not_capturing("the first launch with an inbox that is lent")?;
                self.groups.choose_all();
                let (post, wait) = self.groups.current().own.batches();
                none.insert(Lent::new(&self.half, HalfKind::Inbox, post, wait)?)
            }
        };
        lent.lower(stream, HalfKind::Inbox, site)
    }

    fn launched(&mut self, stream: &Stream<'_, D>, site: CallSite) {
        let lent = self.lent.as_ref().expect("it was lowered");
        lent.launched(&self.half, HalfKind::Inbox, stream, site);
        self.passed_at(stream.raw().mark());
    }
}

impl<D: Device> OutboxBody<D> {
    fn lend(&mut self, stream: &Stream<'_, D>, site: CallSite) -> Result<LoweredHalf> {
        self.half.ready(stream)?;
        let lent = match &mut self.lent {
            Some(lent) => lent,
            none => {
                admit(&self.half)?;
                stream.not_capturing("the first launch with an outbox that is lent")?;
                let grants = match &mut self.grants {
                    Some(grants) => grants,
                    none => {
                        none.insert(Box::new(Grants::new(&self.half, &self.edges, Kind::Slot)?))
                    }
                };
                let (open, complete) = (grants.open.clone(), grants.complete(&self.half, &[]));
                none.insert(Lent::new(&self.half, HalfKind::Outbox, open, complete)?)
            }
        };
        lent.lower(stream, HalfKind::Outbox, site)
    }
}

// SAFETY: the inbox is at home on the stream, and the argument borrows it exclusively. It is closed.
unsafe impl<'s, T: Element, D: Device> Argument<'s, D> for LentInbox<'_, 's, T, D> {
    type Lowered = LoweredInbox<T>;

    fn lower(&mut self, stream: &Stream<'s, D>) -> Result<LoweredInbox<T>> {
        let body = self.inbox.body_mut();
        Ok(LoweredInbox {
            half: body.lend(stream, Location::caller())?,
            slots: body.table.slots(),
            declaration: body.half.declaration,
            marker: PhantomData,
        })
    }

    fn launched(self, stream: &Stream<'s, D>) {
        let body = self.inbox.body_mut();
        body.launched(stream, Location::caller());
    }
}

// SAFETY: the outbox is at home on the stream, and the argument borrows it exclusively. It is closed.
unsafe impl<'s, T: Element, D: Device> Argument<'s, D> for LentOutbox<'_, 's, T, D> {
    type Lowered = LoweredOutbox<T>;

    fn lower(&mut self, stream: &Stream<'s, D>) -> Result<LoweredOutbox<T>> {
        let body = &mut *self.outbox.held;
        Ok(LoweredOutbox {
            half: body.lend(stream, Location::caller())?,
            slots: LoweredOut {
                place: body.grants().place(),
                declaration: body.half.declaration,
                marker: PhantomData,
            },
        })
    }

    fn launched(self, stream: &Stream<'s, D>) {
        let body = &*self.outbox.held;
        let lent = body.lent.as_ref().expect("it was lowered");
        lent.launched(&body.half, HalfKind::Outbox, stream, Location::caller());
    }
}
