//! The outbound slots, ranges and layouts of an outbox, and the regions that an open epoch sends to them.

use std::sync::Arc;

use tidegate_hal::batch::Landing;
use tidegate_hal::memory::Ptr;

use crate::error::SlotName;
use crate::layout::Chosen;
use crate::nic::{Tickets, Touch};

/// An outbound slot, range or layout: memory of a target that this rank may access.
pub(super) struct Edge {
    /// The index of the target among the peers.
    pub(super) lane: usize,
    /// The address of the first byte, if the target is mapped.
    pub(super) base: Ptr,
    /// The offset of the first byte in the target's block.
    pub(super) offset: usize,
    /// Whether the target is reached by the NIC.
    pub(super) by_nic: bool,
    /// The landing of the slot, if it has one and the target is mapped.
    pub(super) landing: Option<Landing>,
    /// If the NIC sends staged data: the memory where this rank's streams put it.
    pub(super) staging: Option<Staging>,
    /// The distance in bytes from the buffer of even epochs to that of odd ones, or from one buffer of a ring to the next.
    pub(super) flip: usize,
    /// How many buffers a ring has; otherwise 2.
    pub(super) buffers: u32,
    /// The number of elements, or 0 for a layout. So every operation on a layout takes the slow path of the length
    /// check, and other operations need no second check.
    pub(super) len: usize,
    /// For a layout, the elements of the target's memory that it chooses.
    pub(super) layout: Option<Box<Chosen>>,
    /// The last epoch that took the handle, to use it once.
    pub(super) taken: u64,
    /// Its name in errors. It has a place of its own, since no epoch without an error looks at it.
    pub(super) name: Box<SlotName>,
}

/// The staged memory of an edge: as long as the edge, with the same number of buffers.
#[derive(Clone, Copy)]
pub(super) struct Staging {
    pub(super) base: Ptr,
    /// The distance in bytes from the buffer of even epochs to that of odd ones.
    pub(super) flip: usize,
}

impl Edge {
    /// The layout, unless NICs access copies of its elements, which lie in its order.
    pub(super) fn in_place(&self) -> Option<&Chosen> {
        self.layout.as_deref().filter(|_| self.staging.is_none())
    }

    /// Whether the NIC accesses the program's own regions.
    pub(super) fn is_direct(&self) -> bool {
        self.by_nic && self.staging.is_none()
    }
}

/// A region that the open epoch uses.
pub(super) struct Touched {
    pub(super) tickets: Arc<Tickets>,
    pub(super) touch: Touch,
    /// The target's index, if the NIC accesses the region directly for it.
    pub(super) lane: Option<usize>,
}
