//! The errors of refused operations of an access epoch.

use tidegate_hal::device::Device;

use super::note::{Draft, What};
use super::outbox::OutboxBody;
use crate::error::{EpochError, Error, Result, SlotName, WindowName};
use crate::layout::Chosen;

#[cold]
pub(super) fn foreign_slot<D: Device>(body: &OutboxBody<D>, slot: u32) -> Error {
    let window = body.half.window.named();
    Error::Epoch(EpochError::ForeignSlot { window, slot })
}

#[cold]
pub(super) fn slot_taken<D: Device>(body: &OutboxBody<D>, slot: u32) -> Error {
    let (window, slot) = named(body, slot);
    Error::Epoch(EpochError::SlotTaken { window, slot })
}

#[cold]
pub(super) fn slot_expired<D: Device>(body: &OutboxBody<D>, slot: u32) -> Error {
    let (window, slot) = named(body, slot);
    Error::Epoch(EpochError::SlotExpired { window, slot })
}

/// The names of the window and of one of its slots.
fn named<D: Device>(body: &OutboxBody<D>, slot: u32) -> (WindowName, Box<SlotName>) {
    let slot = &body.edges[slot as usize];
    (body.half.window.named(), slot.name.clone())
}

/// Checks whether an operation fits an edge that is a layout.
#[cold]
pub(super) fn fits_layout<D: Device>(
    body: &OutboxBody<D>,
    layout: &Chosen,
    draft: &Draft<'_, D>,
) -> Result<()> {
    if draft.remote_layout.is_some() {
        let (window, slot) = named(body, draft.edge);
        return Err(Error::Epoch(EpochError::LayoutOfLayout { window, slot }));
    }
    if matches!(draft.what, What::PutCounted { .. }) {
        let (window, slot) = named(body, draft.edge);
        return Err(Error::Epoch(EpochError::CountedToLayout { window, slot }));
    }
    let (first, len) = (draft.first, layout.count);
    if first > len || draft.count > len - first {
        return Err(too_long(body, draft, draft.count, len));
    }
    if draft.local_layout.is_some() && draft.count != len {
        return Err(Error::Epoch(EpochError::CountMismatch {
            window: body.half.window.named(),
            src: draft.count,
            dst: len,
        }));
    }
    Ok(())
}

/// An operation of `extent` elements, in memory of `len` elements.
#[cold]
pub(super) fn too_long<D: Device>(
    body: &OutboxBody<D>,
    draft: &Draft<'_, D>,
    extent: usize,
    len: usize,
) -> Error {
    let (window, slot) = named(body, draft.edge);
    Error::Epoch(EpochError::OutOfBounds {
        window,
        slot,
        first: draft.first,
        end: draft.first.saturating_add(extent),
        len,
    })
}
