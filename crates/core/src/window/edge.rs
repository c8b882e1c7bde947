//! The ways of an outbox: the slots, ranges and layouts that it leads to, and the regions that an epoch sends along them.

use std::sync::Arc;

use tidegate_hal::batch::Landing;
use tidegate_hal::memory::Ptr;

use crate::layout::Chosen;
use crate::nic::{Tickets, Touch};

/// A slot, range or layout of a target.
pub(super) struct Edge {
    /// The target, among the peers.
    pub(super) lane: usize,
    /// Its first byte, if the target is mapped.
    pub(super) base: Ptr,
    /// The same, in bytes from the beginning of the target's block.
    pub(super) offset: usize,
    /// Whether the target is reached by the NIC.
    pub(super) by_nic: bool,
    /// The landing of the slot, if it has one and the target is mapped.
    pub(super) landing: Option<Landing>,
    /// Where this rank's streams put what the NIC is to send, if that is staged.
    pub(super) staging: Option<Staging>,
    /// Bytes from the buffer of even epochs to that of odd ones.
    pub(super) flip: usize,
    /// Elements; 0 if it is a layout, so that every operation on one is looked at twice, and others are not.
    pub(super) len: usize,
    /// Which elements of the target's memory they are, if it is a layout.
    pub(super) layout: Option<Box<Chosen>>,
    /// The last epoch that has taken it, to use it once.
    pub(super) taken: u64,
}

/// Staged memory of an edge: as long as the edge, with as many buffers.
#[derive(Clone, Copy)]
pub(super) struct Staging {
    pub(super) base: Ptr,
    /// Bytes from the buffer of even epochs to that of odd ones.
    pub(super) flip: usize,
}

impl Edge {
    /// Whether the NIC works on the program's own regions.
    pub(super) fn is_direct(&self) -> bool {
        self.by_nic && self.staging.is_none()
    }
}

/// A region of the open epoch.
pub(super) struct Touched {
    pub(super) tickets: Arc<Tickets>,
    pub(super) touch: Touch,
    /// The target, if the NIC reaches it directly from the region.
    pub(super) lane: Option<usize>,
}
