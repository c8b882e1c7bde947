//! What peers have of this rank's tokens.

use std::sync::Arc;

use tidegate_hal::device::{Device, Fault, Reclaim as _};

use crate::error::{Cause, Error};
use crate::ground::ReclaimOf;
use crate::world::{Watched, World};

/// What peers have of one half of a window: for calls that fail, and do not give the half back.
pub(crate) struct Stake<D: Device> {
    world: World<D>,
    window: Arc<Watched<D>>,
    home: Arc<ReclaimOf<D>>,
    /// Whether a peer may wait for an epoch that this rank would go on with.
    awaited: bool,
}

impl<D: Device> Stake<D> {
    pub(crate) fn new(
        world: &World<D>,
        window: &Arc<Watched<D>>,
        home: &Arc<ReclaimOf<D>>,
        awaited: bool,
    ) -> Self {
        Stake {
            world: world.clone(),
            window: window.clone(),
            home: home.clone(),
            awaited,
        }
    }

    /// The half is gone, since a call has failed with this error: no peer is to wait for it in vain.
    #[cold]
    pub(crate) fn give_up(&self, error: &Error) {
        if self.awaited {
            let reason = error.to_string();
            self.revoke(|rank| Cause::NotEnqueued { rank, reason });
        }
    }

    /// Revokes the window: by what made the stream fail, if it has, since that came first.
    #[cold]
    pub(crate) fn revoke(&self, cause: impl FnOnce(usize) -> Cause) {
        if !self.world.process().is_this() {
            return;
        }
        let cause = match self.home.fault() {
            Some(Fault::Wait { tag, .. }) => self.world.cause_of(tag),
            Some(fault @ Fault::Kernel(_)) => self.world.cause_of_kernel(&fault),
            _ => cause(self.world.rank()),
        };
        self.world.revoke(&self.window, cause);
    }
}
