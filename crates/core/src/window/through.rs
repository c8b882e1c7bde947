//! When memory that peers' NICs have written to may go.
//!
//! # Model
//!
//! That the halves of a window are gone at one rank says nothing of its peers' NICs: an exposure that was given in
//! advance is still one, a stream that has failed has waited for nothing, and to end a registration does not end a
//! write that has begun (what `tcp;ofi_rxm` has begun to receive it goes on to write). So a block stays registered,
//! behind the halves' backs ([`Reach`]), until each neighbour with a NIC has said that it is *through* with the window:
//! its own halves are gone, its NIC has let go of all queues towards its neighbours, and all that was fired there has
//! come. It says so once, by the control plane, when the last queue goes ([`Farewell`]).
//!
//! # Failure
//!
//! If all ranks have agreed that a window is not open, nobody has put anything, and its memory goes at once. If the
//! agreement itself failed, a peer may have the window, and the memory stays until the endpoint is closed, or the
//! neighbours are through. (Memory that a peer has mapped needs no such care: the peer's mapping keeps it.)
//!
//! A rank says nothing of a window that is revoked, nor if a queue has given up: an operation that is reported as
//! failed may still be on its way. Then the block stays until the endpoint is closed.

use std::sync::{Arc, Weak};

use tidegate_hal::batch::POISON;
use tidegate_hal::device::Device;
use tidegate_hal::memory::Ptr;
use tidegate_hal::nic::Keep;
use tidegate_words::Word;

use crate::message::Message;
use crate::world::{Inner, Watched, World};

/// What lets peers reach this rank's block through the NIC; both halves hold it.
pub(super) struct Reach<D: Device> {
    pub(super) world: World<D>,
    pub(super) window: Arc<Watched<D>>,
    /// Who may: the neighbours with a NIC.
    pub(super) neighbours: Vec<usize>,
    pub(super) registration: Option<Keep>,
}

impl<D: Device> Drop for Reach<D> {
    fn drop(&mut self) {
        if let Some(registration) = self.registration.take()
            && self.window.may_be_open()
        {
            let neighbours = std::mem::take(&mut self.neighbours);
            self.world.outlive(self.window.id, neighbours, registration);
        }
    }
}

/// Says that this rank is through with a window, when nobody holds it any more: neither a half, nor the NIC for a queue.
pub(super) struct Farewell<D: Device> {
    world: Weak<Inner<D>>,
    window: Arc<Watched<D>>,
    neighbours: Vec<usize>,
}

impl<D: Device> Farewell<D> {
    pub(super) fn new(
        world: &World<D>,
        window: &Arc<Watched<D>>,
        neighbours: Vec<usize>,
    ) -> Arc<Self> {
        Arc::new(Farewell {
            world: world.downgrade(),
            window: window.clone(),
            neighbours,
        })
    }
}

impl<D: Device> Drop for Farewell<D> {
    fn drop(&mut self) {
        // A world that is gone has left the job.
        let Some(world) = self.world.upgrade() else {
            return;
        };
        let gave_up = |sent: &Ptr| {
            // SAFETY: the window keeps the words, which are in memory of the host, as the NIC wants them.
            unsafe { &*sent.0.cast::<Word>() }.load() & POISON != 0
        };
        if !self.window.may_be_open()
            || self.window.usable().is_err()
            || self.window.sent().iter().any(gave_up)
        {
            return;
        }
        let window = self.window.id;
        let rank = world.control().rank();
        let others = self.neighbours.iter().copied();
        let others: Vec<_> = others.filter(|other| *other != rank).collect();
        if !others.is_empty() {
            let message = Message::Through { window };
            // If the control plane is closed, this rank has left.
            let _ = world.control().notify(Some(&others), &message.encode());
        }
        if others.len() < self.neighbours.len() {
            world.on_through(rank, window);
        }
    }
}
