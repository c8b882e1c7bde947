//! When memory that peers' NICs write to may be unregistered.
//!
//! # Model
//!
//! After the halves of a window are gone on this rank, peers' NICs may still write to its block. An exposure may have
//! been given in advance, and a stream that failed has not waited. Ending the registration does not end a write that
//! has begun (`tcp;ofi_rxm` writes on what it has begun to receive). So a block stays registered after its halves are
//! dropped ([`Reach`]), until each neighbour with a NIC has said that it is *through* with the window. That means: the
//! neighbour's halves are gone, its NIC has given up all queues towards its own neighbours, and everything that was
//! fired there has arrived. A rank says so once, over the control plane, when its last queue goes ([`Farewell`]).
//!
//! # Failure
//!
//! If all ranks have agreed that a window is not open, nobody has put anything, and its memory goes at once. If the
//! agreement itself failed, a peer may have the window. Then the memory stays until the neighbours are through, or
//! until the endpoint is closed. (Memory that a peer has mapped needs no such care, because the peer's mapping keeps
//! it.)
//!
//! If a window is revoked, or if its queue has given up, a rank does not say that it is through. An operation that was
//! reported as failed may still be on its way. So the block stays until the endpoint is closed.

use std::sync::{Arc, Weak};

use tidegate_hal::batch::POISON;
use tidegate_hal::device::Device;
use tidegate_hal::memory::Ptr;
use tidegate_hal::nic::Keep;
use tidegate_words::Word;

use crate::message::Message;
use crate::world::{Inner, Watched, World};

/// Lets peers reach this rank's block through the NIC. Both halves hold it.
pub(super) struct Reach<D: Device> {
    pub(super) world: World<D>,
    pub(super) window: Arc<Watched<D>>,
    /// The neighbours with a NIC, which may access the block.
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

/// Tells the neighbours that this rank is through with a window, when it is dropped. The halves hold it, and the NIC's
/// queues do.
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
        // If the world is gone, this rank has left the job.
        let Some(world) = self.world.upgrade() else {
            return;
        };
        let gave_up = |sent: &Ptr| {
            // SAFETY: the window keeps the words. They lie in memory of the host, as NICs require.
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
            // If the control plane is closed, this rank has left the job.
            let _ = world.control().notify(Some(&others), &message.encode());
        }
        if others.len() < self.neighbours.len() {
            world.on_through(rank, window);
        }
    }
}
