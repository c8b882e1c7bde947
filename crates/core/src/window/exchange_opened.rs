//! Post, complete and wait in one call, for an epoch that kernels have filled.

use std::panic::Location;
use std::sync::Arc;

use tidegate_hal::batch::Batch;
use tidegate_hal::device::Device;
use tidegate_hal::site::CallSite;

use super::exchange::own_acts;
use super::inbox::Inbox;
use super::opened::Opened;
use super::outbox::{Outbox, OutboxBody};
use super::{BySlot, submit_armed};
use crate::carry::given_up;
use crate::element::Element;
use crate::error::{Rejected, Result};
use crate::half_kind::HalfKind;
use crate::myself::Act;
use crate::observe::EpochCall;
use crate::stream::Stream;

impl<'s, T: Element, D: Device> Opened<'s, T, D> {
    /// Posts the inbox to all its origins, completes the epoch, and waits for the origins, as *one* batch. On a GPU that
    /// is one kernel. It is like [`exchange`](super::exchange()), for an epoch that kernels have filled.
    ///
    /// The post comes behind the kernels, and so behind [`Outbox::open`], which waits for the targets' posts. So ranks
    /// that send to each other by this call need two buffers, or must have posted before. With one buffer, each would
    /// wait for the other's post.
    ///
    /// # Errors
    ///
    /// The errors of [`Inbox::post`], [`Opened::complete`] and [`Exposed::wait`](super::Exposed::wait). Then the inbox
    /// and the epoch are lost, nothing has been enqueued, and the window is revoked on all ranks
    /// ([`Cause::NotEnqueued`](crate::error::Cause::NotEnqueued)).
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// let mut opened = outbox.open(s)?; // the slots have two buffers, of which the first is exposed from the start
    /// s.launch(move |x: &[u64], mut out: OutSlots<'_, u64>| out.put(to, 0, x), (&src, opened.slots()))?;
    /// let (mut inbox, _outbox) = opened.exchange(s, inbox)?;
    /// assert_eq!(inbox.read(s)?.slot(from), [7; 4]);
    /// # Ok(()) });
    /// ```
    #[expect(clippy::type_complexity, reason = "the two halves, plainly")]
    #[track_caller]
    pub fn exchange(
        self,
        stream: &Stream<'s, D>,
        inbox: Inbox<'s, T, D, BySlot>,
    ) -> Result<(Inbox<'s, T, D, BySlot>, Outbox<'s, T, D>)> {
        self.try_exchange(stream, inbox)
            .map_err(|Rejected { error, value }| {
                let (inbox, opened) = value;
                opened.held.half.stake(true).give_up(&error);
                given_up(Rejected::new(error, inbox))
            })
    }

    /// Like [`Opened::exchange`], but has no effect if it fails, and returns the inbox and the epoch, which is still
    /// open.
    ///
    /// # Errors
    ///
    /// The same as [`Opened::exchange`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use tidegate::Rejected;
    ///
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// let opened = outbox.open(s)?;
    /// let (inbox, outbox) = match opened.try_exchange(s, inbox) {
    ///     Ok(halves) => halves,
    ///     Err(Rejected { error, value: (inbox, opened) }) => {
    ///         println!("{error}");
    ///         s.synchronize()?; // makes room, if a queue was full
    ///         opened.exchange(s, inbox)?
    ///     }
    /// };
    /// # Ok(()) });
    /// ```
    #[expect(clippy::type_complexity, reason = "the two halves, plainly")]
    #[track_caller]
    pub fn try_exchange(
        mut self,
        stream: &Stream<'s, D>,
        mut inbox: Inbox<'s, T, D, BySlot>,
    ) -> Result<
        (Inbox<'s, T, D, BySlot>, Outbox<'s, T, D>),
        Rejected<(Inbox<'s, T, D, BySlot>, Self)>,
    > {
        let by_kernels = self.by_kernels.get_mut();
        match (self.held).exchange(stream, &mut inbox, by_kernels, Location::caller()) {
            Ok(()) => Ok((inbox, Outbox::from_held(self.held.take()))),
            Err(error) => Err(Rejected::new(error, (inbox, self))),
        }
    }
}

impl<D: Device> OutboxBody<D> {
    fn exchange<'s, T: Element>(
        &mut self,
        stream: &Stream<'s, D>,
        inbox: &mut Inbox<'s, T, D, BySlot>,
        by_kernels: &[usize],
        site: CallSite,
    ) -> Result<()> {
        use tidegate_hal::device::Stream as _;
        let inbox = inbox.body_mut();
        inbox.half.ready(stream)?;
        self.half.ready(stream)?;
        inbox.groups.choose_all();
        const CLOSE: &[Act] = &[Act::Complete];
        const ALL: &[Act] = &[Act::Post, Act::Complete, Act::Wait];
        let own = own_acts(inbox.own(), self.own(), (CLOSE, ALL));
        for (myself, acts) in own.iter().flatten() {
            myself.admit(stream, acts)?;
        }
        inbox.half.epochs.admit(None)?;
        let epoch = inbox.epoch_key();
        let grants = self.grants.as_mut().expect("`open` has made them");
        let known = grants.exchange.as_ref();
        if known.is_none_or(|((other, kernels), _)| *other != epoch || kernels != by_kernels) {
            let complete = grants.complete(&self.half, by_kernels);
            // SAFETY: the three batches touch different words and different memory. Kernels have stored to the slots of
            // peers before. Posts come first, so that none of them is behind a wait.
            let batch =
                unsafe { Batch::join(&[inbox.post_batch(), &complete, inbox.wait_batch()]) };
            grants.exchange = Some(((epoch, by_kernels.to_vec()), Arc::new(batch)));
        }
        let (_, batch) = grants.exchange.as_ref().expect("it was just made");
        let arms = [inbox.arms(), &grants.arms];
        submit_armed(stream, &arms, batch, EpochCall::Exchange, site)?;
        inbox.half.window.waits_at(HalfKind::Inbox, site);
        inbox.half.epochs.took(stream, None);
        self.half.epochs.took(stream, None);
        inbox.passed_at(stream.raw().mark());
        for (myself, acts) in own.iter().flatten() {
            myself.done(stream, acts);
        }
        Ok(())
    }
}
