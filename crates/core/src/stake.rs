//! What peers may wait for from this rank's tokens.

use std::fmt::Write as _;
use std::sync::Arc;

use tidegate_hal::device::{Device, Fault, Reclaim as _};

use crate::error::{Cause, Error};
use crate::ground::ReclaimOf;
use crate::world::{Watched, World};

/// What peers may wait for from one half of a window. A call that fails, and does not return the half, uses it to
/// revoke the window.
pub(crate) struct Stake<D: Device> {
    world: World<D>,
    window: Arc<Watched<D>>,
    home: Arc<ReclaimOf<D>>,
    /// Whether a peer may wait for an epoch that this rank would continue.
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

    /// Revokes the window if peers may wait: the half is lost, because a call failed with this error.
    #[cold]
    pub(crate) fn give_up(&self, error: &Error) {
        if self.awaited {
            let reason = said(error);
            self.revoke(|rank| Cause::NotEnqueued { rank, reason });
        }
    }

    /// Revokes the window if peers may wait: the half is lost, because the step that it was lent to panicked.
    #[cold]
    pub(crate) fn panicked(&self) {
        if self.awaited {
            let token = "something that was lent to a capture".to_owned();
            self.revoke(|rank| Cause::Panicked { rank, token });
        }
    }

    /// Revokes the window. If the stream has failed, the cause is that failure, since it came first.
    #[cold]
    pub(crate) fn revoke(&self, cause: impl FnOnce(usize) -> Cause) {
        if !self.world.process().is_this() {
            return;
        }
        let cause = match self.home.fault() {
            Some(Fault::Wait { tag, .. }) => self.world.cause_of(tag),
            Some(fault @ (Fault::Kernel(_) | Fault::Count { .. })) => {
                self.world.cause_of_kernel(&fault)
            }
            _ => cause(self.world.rank()),
        };
        self.world.revoke(&self.window, cause);
    }
}

/// The text of an error. An error of the program may panic or fail when it is displayed; peers must hear of it even
/// then.
fn said(error: &Error) -> String {
    let (mut text, mut whole) = (String::new(), false);
    tidegate_hal::tell(|| whole = write!(text, "{error}").is_ok());
    if whole {
        text
    } else {
        "an error that cannot be displayed".to_owned()
    }
}
