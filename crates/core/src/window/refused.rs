//! The errors of refused operations of an access epoch.

use tidegate_hal::device::Device;

use super::Kind;
use super::note::{Draft, What};
use super::outbox::OutboxBody;
use crate::error::{EpochError, Error, Result};
use crate::layout::Chosen;

#[cold]
pub(super) fn foreign_slot<D: Device>(body: &OutboxBody<D>, slot: u32) -> Error {
    let window = body.half.window.named();
    Error::Epoch(EpochError::ForeignSlot { window, slot })
}

#[cold]
pub(super) fn slot_taken<D: Device>(body: &OutboxBody<D>, slot: u32) -> Error {
    let window = body.half.window.named();
    let rank = body.half.peers[body.edges[slot as usize].lane].rank;
    Error::Epoch(EpochError::SlotTaken { window, rank, slot })
}

#[cold]
pub(super) fn slot_expired<D: Device>(body: &OutboxBody<D>, slot: u32) -> Error {
    let window = body.half.window.named();
    let rank = body.half.peers[body.edges[slot as usize].lane].rank;
    Error::Epoch(EpochError::SlotExpired { window, rank, slot })
}

/// Checks whether an operation fits an edge that is a layout.
#[cold]
pub(super) fn fits_layout<D: Device>(
    body: &OutboxBody<D>,
    layout: &Chosen,
    draft: &Draft<'_, D>,
) -> Result<()> {
    let (window, slot) = (|| body.half.window.named(), draft.edge);
    if draft.remote_layout.is_some() {
        let window = window();
        return Err(Error::Epoch(EpochError::LayoutOfLayout { window, slot }));
    }
    if matches!(draft.what, What::PutCounted { .. }) {
        let window = window();
        return Err(Error::Epoch(EpochError::CountedToLayout { window, slot }));
    }
    let (first, len) = (draft.first, layout.count);
    if first > len || draft.count > len - first {
        let rank = body.half.peers[body.edges[slot as usize].lane].rank;
        return Err(Error::Epoch(EpochError::OutOfBounds {
            window: window(),
            what: format!("outbound slot {slot} (a layout of rank {rank})"),
            first,
            end: first.saturating_add(draft.count),
            len,
        }));
    }
    if draft.local_layout.is_some() && draft.count != len {
        return Err(Error::Epoch(EpochError::CountMismatch {
            window: window(),
            src: draft.count,
            dst: len,
        }));
    }
    Ok(())
}

#[cold]
pub(super) fn too_long<D: Device>(
    body: &OutboxBody<D>,
    kind: Kind,
    draft: &Draft<'_, D>,
    extent: usize,
) -> Error {
    let edge = &body.edges[draft.edge as usize];
    let (slot, rank) = (draft.edge, body.half.peers[edge.lane].rank);
    let what = match kind {
        Kind::Slot => format!("outbound slot {slot} (declared by rank {rank})"),
        Kind::Range => format!("outbound slot {slot} (a range of rank {rank})"),
        Kind::Atomic => format!("the memory of rank {rank}"),
    };
    Error::Epoch(EpochError::OutOfBounds {
        window: body.half.window.named(),
        what,
        first: draft.first,
        end: draft.first.saturating_add(extent),
        len: edge.len,
    })
}
