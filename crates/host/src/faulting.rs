//! Movers that can say why they did not go on.

use std::time::Duration;

use tidegate_hal::device::Fault;
use tidegate_words::Mover;

use crate::far::Far;
use crate::moves::HostMover;
use crate::stamps::Stamped;

/// How many milliseconds it may take until the failure of a bus is known here.
const NEWS: u32 = 50;

/// A mover that can say why it did not go on.
pub(crate) trait Faulting: Mover {
    fn fault(&self) -> Fault {
        Fault::Aborted
    }

    /// The cause of a poison, if the mover knows it better than the tag of the wait tells.
    fn behind_poison(&self) -> Option<Fault> {
        None
    }
}

impl Faulting for HostMover {}

impl<M: Faulting> Faulting for Stamped<'_, M> {
    fn fault(&self) -> Fault {
        self.mover.fault()
    }

    fn behind_poison(&self) -> Option<Fault> {
        self.mover.behind_poison()
    }
}

impl Faulting for Far {
    fn fault(&self) -> Fault {
        let failure = self.failure();
        failure.map_or(Fault::Aborted, |error| Fault::Transport(error.to_string()))
    }

    /// A peer that knows of the bus's failure may poison a word before this rank learns of the failure. So this waits
    /// for a while.
    fn behind_poison(&self) -> Option<Fault> {
        for _ in 0..NEWS {
            if self.failure().is_some() {
                return Some(self.fault());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }
}
