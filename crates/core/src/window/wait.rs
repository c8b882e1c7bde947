//! Waiting for the origins of an exposed inbox.

use std::panic::Location;

use tidegate_hal::device::{Device, Reclaim};

use super::inbox::{Exposed, Inbox};
use super::{BySlot, Discipline};
use crate::carry::given_up;
use crate::element::Element;
#[cfg(doc)]
use crate::error::{Cause, Error};
use crate::error::{Rejected, Result};
use crate::myself::Act;
use crate::stream::Stream;

/// The result of [`Exposed::test`].
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::generic::Tested;
///
/// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
/// let mut exposed = inbox.post(s)?;
/// # let _outbox = outbox.start().complete(s)?;
/// let inbox = loop {
///     match exposed.test(s)? {
///         Tested::Done(inbox) => break inbox,
///         Tested::Pending(still) => exposed = still, // something else can be done here
///     }
/// };
/// # Ok(()) });
/// ```
#[derive(Debug)]
pub enum Tested<'s, T, D: Device, K: Discipline = BySlot> {
    /// All origins have completed, or one of them never will: then the stream fails with the reason. Contains the
    /// inbox.
    Done(Inbox<'s, T, D, K>),
    /// Some origins have not completed yet. Contains the exposure.
    Pending(Exposed<'s, T, D, K>),
}

impl<'s, T: Element, K: Discipline, D: Device> Exposed<'s, T, D, K> {
    /// Enqueues the wait until all origins of the epoch have completed (MPI: `MPI_Win_wait`). Work that is enqueued
    /// later sees what the origins put. Where they put nothing, or less than the slot, it sees what an earlier epoch
    /// left there. (With a header in every epoch, the reader knows how much has come: see [`Slots`](super::Slots).)
    ///
    /// # Errors
    ///
    /// - [`EpochError::SelfDeadlock`](crate::error::EpochError::SelfDeadlock) if this rank is an origin itself, its
    ///   complete has not been enqueued, and its outbox is at home on this stream (so the complete would come behind
    ///   the wait) or was dropped.
    /// - [`Error::Revoked`], [`Error::Device`], or the error that made the stream fail.
    ///
    /// The exposure is then lost, and the window is revoked on all ranks ([`Cause::NotEnqueued`]).
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// let exposed = inbox.post(s)?;
    /// # let _outbox = outbox.start().complete(s)?;
    /// let inbox = exposed.wait(s)?; // enqueued: the host goes on
    /// # let mut sum = Region::<u64>::zeroed(s.world(), 1)?.on(s)?;
    /// let add = move |inbox: Slots<'_, u64>, sum: &mut [u64]| sum[0] = inbox[from].iter().sum();
    /// s.launch(add, (inbox.view(), &mut sum))?; // sees what came
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn wait(self, stream: &Stream<'s, D>) -> Result<Inbox<'s, T, D, K>> {
        self.try_wait(stream).map_err(given_up)
    }

    /// Like [`Exposed::wait`], but has no effect if it fails, and returns the exposure. (Dropping that revokes the
    /// window.)
    ///
    /// # Errors
    ///
    /// The same as [`Exposed::wait`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(1, |world| {
    /// # stream!(let s = world.stream()?);
    /// let mut window = SlotWindow::<u64>::new("loop"); // from this rank to itself
    /// let (from, to) = (window.slot_from(0, 0, 1), window.slot_to(0, 0));
    /// let (inbox, outbox) = window.open(&s)?;
    /// let refused = inbox.post(&s)?.try_wait(&s).unwrap_err(); // it would wait for what comes behind it
    /// let _outbox = outbox.start().complete(&s)?;
    /// let inbox = refused.value.wait(&s)?;
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn try_wait(
        mut self,
        stream: &Stream<'s, D>,
    ) -> Result<Inbox<'s, T, D, K>, Rejected<Self>> {
        let site = Location::caller();
        let body = &mut *self.held;
        let waited = (body.half.ready(stream))
            .and_then(|()| body.admit(stream, &[Act::Wait]))
            .and_then(|()| body.wait(stream, site));
        self.closed(waited)
    }

    /// Returns the inbox if the wait was enqueued, and otherwise the exposure.
    fn closed(mut self, waited: Result<()>) -> Result<Inbox<'s, T, D, K>, Rejected<Self>> {
        match waited {
            Ok(()) => Ok(Inbox::from_held(self.held.take())),
            Err(error) => Err(Rejected::new(error, self)),
        }
    }

    /// Tests whether all origins have completed, without waiting (MPI: `MPI_Win_test`). If they have, it returns the
    /// inbox, like [`Exposed::wait`]. If one of them never will, it returns the inbox, too, and the stream fails with
    /// the reason. The result is pending until the stream has passed this inbox's last epoch.
    ///
    /// # Errors
    ///
    /// [`CaptureError::Inside`](crate::error::CaptureError::Inside), and the errors of [`Exposed::wait`] but for
    /// [`EpochError::SelfDeadlock`](crate::error::EpochError::SelfDeadlock).
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use tidegate::generic::Tested;
    ///
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// let exposed = inbox.post(s)?;
    /// # let _outbox = outbox.start().complete(s)?;
    /// let inbox = match exposed.test(s)? {
    ///     Tested::Done(inbox) => inbox, // all have come
    ///     Tested::Pending(exposed) => exposed.wait(s)?,
    /// };
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn test(self, stream: &Stream<'s, D>) -> Result<Tested<'s, T, D, K>> {
        self.try_test(stream).map_err(given_up)
    }

    /// Like [`Exposed::test`], but has no effect if it fails, and returns the exposure.
    ///
    /// # Errors
    ///
    /// The same as [`Exposed::test`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use tidegate::generic::Tested;
    ///
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// let exposed = inbox.post(s)?;
    /// # let _outbox = outbox.start().complete(s)?;
    /// let inbox = match exposed.try_test(s) {
    ///     Ok(Tested::Done(inbox)) => inbox,
    ///     Ok(Tested::Pending(exposed)) => exposed.wait(s)?,
    ///     Err(refused) => refused.value.wait(s)?, // it is still exposed
    /// };
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn try_test(
        mut self,
        stream: &Stream<'s, D>,
    ) -> Result<Tested<'s, T, D, K>, Rejected<Self>> {
        let half = &self.held.half;
        if let Err(error) = stream
            .not_capturing("a test")
            .and_then(|()| half.ready(stream))
        {
            return Err(Rejected::new(error, self));
        }
        // Until the stream has passed the last wait, the operands belong to an earlier epoch.
        if half.home.passed() < self.held.mark {
            return Ok(Tested::Pending(self));
        }
        // A wait that can never be satisfied is enqueued, so that the stream fails and its error names the reason. So
        // this does not check whether this rank's own complete can still come: such a wait ends by itself.
        if self.held.is_decided() {
            let waited = self.held.wait(stream, Location::caller());
            self.closed(waited).map(Tested::Done)
        } else {
            Ok(Tested::Pending(self))
        }
    }
}
