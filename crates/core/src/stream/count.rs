//! Counts what is enqueued: epochs, and what a rank does towards itself. While the stream is captured, it notes them
//! instead, and each replay counts them.

use std::sync::Arc;

use tidegate_hal::device::{Device, Stream as _};

use super::queue::Stream;
use crate::epochs::Epochs;
use crate::error::Result;
use crate::half_kind::HalfKind;
use crate::myself::{Act, Myself};

impl Epochs {
    /// Enqueues an epoch with some of the peers, or with all. Refuses an epoch that would be one too many.
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

    /// Notes that a kernel has been enqueued that owns the half. Each replay counts its epochs as they are made.
    pub(crate) fn lent<D: Device>(self: &Arc<Self>, stream: &Stream<'_, D>) {
        self.note_lent();
        if stream.raw().capturing() {
            stream.note_lent(self);
        }
    }

    /// Counts an epoch that has been enqueued. If it was recorded, it counts with each replay.
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

/// A number that no other stream has while this one lives.
pub(crate) fn home_number<D: Device>(stream: &Stream<'_, D>) -> usize {
    Arc::as_ptr(stream.raw().reclaim()).addr()
}

impl<D: Device> Myself<D> {
    /// Refuses acts that would wait for ever if they were enqueued here now, in this order. It counts nothing. For
    /// recorded acts the replay makes this check.
    pub(crate) fn admit(&self, stream: &Stream<'_, D>, acts: &[Act]) -> Result<()> {
        if stream.raw().capturing() {
            return Ok(());
        }
        self.admit_on(home_number(stream), acts)
    }

    /// Refuses to let a half come to another stream if one of the two streams would then wait for ever: see
    /// [`Myself::admit_coming_to`].
    pub(crate) fn admit_coming(
        &self,
        half: HalfKind,
        to: &Stream<'_, D>,
        alive: [bool; 2],
    ) -> Result<()> {
        if to.raw().capturing() {
            return Ok(());
        }
        self.admit_coming_to(half, home_number(to), alive)
    }

    /// Counts acts that have been enqueued, and notes acts that have been recorded.
    pub(crate) fn done(self: &Arc<Self>, stream: &Stream<'_, D>, acts: &[Act]) {
        if stream.raw().capturing() {
            let recorded = self.recorded(home_number(stream), acts);
            recorded.for_each(|act| stream.note_act(act));
        } else {
            self.count_acts(acts);
        }
    }
}
