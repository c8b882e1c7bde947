//! Counting what is enqueued: epochs, and what a rank does towards itself. What is recorded is noted instead, and counted
//! by each replay.

use std::sync::Arc;

use tidegate_hal::device::{Device, Stream as _};

use super::queue::Stream;
use crate::epochs::Epochs;
use crate::error::Result;
use crate::myself::{Act, Myself};
use crate::side::Side;

impl Epochs {
    /// Enqueues an epoch with some of the peers, or with all; refuses it if it would be one too many.
    pub(crate) fn enqueue<D: Device>(
        self: &Arc<Self>,
        stream: &Stream<'_, D>,
        members: Option<&[usize]>,
        submit: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        self.admit(members)?;
        submit()?;
        self.took(stream, members);
        Ok(())
    }

    /// Counts an epoch that has been enqueued; if it was recorded, with each replay.
    pub(crate) fn took<D: Device>(
        self: &Arc<Self>,
        stream: &Stream<'_, D>,
        members: Option<&[usize]>,
    ) {
        if stream.raw().capturing() {
            return stream.note_epoch(self, members);
        }
        self.count(members);
    }
}

/// A number for a stream that is not another's while it lives.
pub(crate) fn home_number<D: Device>(stream: &Stream<'_, D>) -> usize {
    Arc::as_ptr(stream.raw().reclaim()).addr()
}

impl<D: Device> Myself<D> {
    /// Refuses what would wait for ever if it were enqueued here now, in this order; counts nothing. What is recorded
    /// is refused by the replay.
    pub(crate) fn admit(&self, stream: &Stream<'_, D>, acts: &[Act]) -> Result<()> {
        if stream.raw().capturing() {
            return Ok(());
        }
        self.admit_on(home_number(stream), acts)
    }

    /// Refuses to let a half come to another stream if one of the two streams would wait for ever: see
    /// [`Myself::admit_coming_to`].
    pub(crate) fn admit_coming(
        &self,
        side: Side,
        to: &Stream<'_, D>,
        alive: [bool; 2],
    ) -> Result<()> {
        if to.raw().capturing() {
            return Ok(());
        }
        self.admit_coming_to(side, home_number(to), alive)
    }

    /// Counts what has been enqueued; notes what has been recorded.
    pub(crate) fn done(self: &Arc<Self>, stream: &Stream<'_, D>, acts: &[Act]) {
        if stream.raw().capturing() {
            let recorded = self.recorded(home_number(stream), acts);
            recorded.for_each(|act| stream.note_act(act));
        } else {
            self.count_acts(acts);
        }
    }
}
