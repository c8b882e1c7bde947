//! What peers have of this rank's tokens.

use std::fmt::Write as _;
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
            let reason = said(error);
            self.revoke(|rank| Cause::NotEnqueued { rank, reason });
        }
    }

    /// The half is gone, since the step that it was lent to has panicked: no peer is to wait for it in vain.
    #[cold]
    pub(crate) fn panicked(&self) {
        if self.awaited {
            let token = "what a capture had been lent".to_owned();
            self.revoke(|rank| Cause::Panicked { rank, token });
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

/// What an error says. One of the program's may panic when it is asked, or fail, and peers are to hear of it all the same.
fn said(error: &Error) -> String {
    let (mut text, mut whole) = (String::new(), false);
    tidegate_hal::tell(|| whole = write!(text, "{error}").is_ok());
    match whole {
        true => text,
        false => "an error that cannot be displayed".to_owned(),
    }
}
