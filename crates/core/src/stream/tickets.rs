//! Waiting for operations of a NIC that still use a region.

use std::sync::Arc;

use tidegate_hal::device::{Device, Stream as _};
use tidegate_hal::site::CallSite;

use super::queue::Stream;
use crate::error::Result;
use crate::nic::{NicLine, Tickets, Touch, waits};
use crate::observe::EpochCall;

impl Tickets {
    /// Enqueues the wait for the tickets that conflict with `touch`.
    #[cold]
    pub(crate) fn settle<D: Device>(
        &self,
        stream: &Stream<'_, D>,
        touch: Touch,
        site: CallSite,
    ) -> Result<()> {
        settle_all(stream, [(self, touch)], site)
    }
}

/// Enqueues the wait for the tickets that conflict with several touches.
pub(crate) fn settle_all<'a, D: Device>(
    stream: &Stream<'_, D>,
    touched: impl IntoIterator<Item = (&'a Tickets, Touch)> + Clone,
    site: CallSite,
) -> Result<()> {
    let mut lines = Vec::new();
    for (tickets, touch) in touched.clone() {
        tickets.gather(touch, &mut lines);
    }
    wait_for(stream, &lines, site)?;
    for (tickets, touch) in touched {
        tickets.clear(touch);
    }
    Ok(())
}

/// Enqueues the wait for the tickets of some lines.
pub(crate) fn wait_for<D: Device>(
    stream: &Stream<'_, D>,
    lines: &[Arc<NicLine>],
    site: CallSite,
) -> Result<()> {
    if stream.world().ignores_tickets() {
        return Ok(());
    }
    waits(lines).try_for_each(|wait| {
        // SAFETY: the words are valid, as promised where the waits were made, and a batch keeps its words alive.
        unsafe { stream.submit(&wait, EpochCall::Tickets, site) }
    })
}

/// Lets the device refuse that wait now, if it would, and returns how many items the wait takes. A line may be named
/// more than once.
pub(crate) fn prepare_wait<D: Device>(
    stream: &Stream<'_, D>,
    lines: impl IntoIterator<Item = Arc<NicLine>>,
) -> Result<usize> {
    if stream.world().ignores_tickets() {
        return Ok(0);
    }
    let mut different: Vec<Arc<NicLine>> = Vec::new();
    for line in lines {
        if !different.iter().any(|other| other.is(&line)) {
            different.push(line);
        }
    }
    waits(&different).try_fold(0, |before, wait| {
        stream.raw().prepare(&wait, 1)?;
        Ok(before + 1)
    })
}
