//! The NIC of a world.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_hal::control::Control;
use tidegate_hal::device::Device;
use tidegate_hal::memory::{Block as _, Ptr};
use tidegate_hal::nic::{Keep, Nic, RemoteMemory};
use tidegate_hal::tell;

use super::parting::Parting;

/// The NIC of a world.
pub(crate) struct Attached<D: Device> {
    pub(crate) nic: Arc<dyn Nic>,
    /// What streams ring after they have added to a doorbell.
    pub(crate) doorbells: Arc<D::Block>,
    /// This rank's bell, for NICs.
    pub(crate) rung: Arc<D::Block>,
    /// The bells of the ranks that have a NIC.
    pub(crate) bells: Vec<Option<RemoteMemory>>,
    /// Held by who arms, so that nobody's arms come between those of a batch, or between the look for room and them.
    pub(crate) arming: Mutex<()>,
    /// Who is to hear that this rank leaves.
    pub(crate) parting: Parting,
    /// Lets peers ring this rank's bell.
    pub(crate) _registration: Keep,
    /// The mutant that goes on without waiting for tickets.
    #[cfg(test)]
    pub(crate) ignore_tickets: std::sync::atomic::AtomicBool,
}

/// How long a rank that ends its part lets its NIC finish; where a peer is lost, some of it never may.
const QUIESCE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(1));

/// After how long that is said.
const SAID_AFTER: Duration = Duration::from_secs(1);

impl<D: Device> Attached<D> {
    pub(crate) fn bell(&self) -> Ptr {
        self.doorbells.base()
    }

    /// How many programs would have a slot that were armed now (the last of them when it is rung for).
    pub(crate) fn room(&self) -> usize {
        self.nic.budget().saturating_sub(self.nic.armed())
    }

    /// Waits until there is room for so many programs (or for none but them, if there are more than slots), but no longer
    /// than `limit`; whether there is.
    pub(crate) fn has_room_for(&self, needed: usize, limit: Duration) -> bool {
        let most = self.nic.budget().saturating_sub(needed);
        self.nic.await_armed(most, limit) <= most
    }

    /// Lets the NIC finish, before the rank leaves, and tells the peers that it does; `lost` if some peer is.
    pub(crate) fn leave(&self, control: &dyn Control, lost: bool) {
        let limit = if lost { QUIESCE.1 } else { QUIESCE.0 };
        let (rank, peers) = (control.rank(), self.parting.peers(control));
        let said = say_unless_done(format!(
            "rank {rank} leaves the job, and waits (for {limit:?} at most) until its NIC has sent what is for {peers}"
        ));
        let done = self.nic.quiesce(limit);
        drop(said);
        if !done {
            tell(|| tracing::warn!("the NIC has not sent everything; peers may miss it"));
        }
        self.parting.leave(control);
    }
}

/// Says this after [`SAID_AFTER`], unless what it returns was dropped by then.
fn say_unless_done(text: String) -> Sender<()> {
    let (done, wait) = channel();
    let speak = move || {
        if wait.recv_timeout(SAID_AFTER) == Err(RecvTimeoutError::Timeout) {
            tidegate_hal::say!(text, std::io::stderr());
        }
    };
    let name = "tidegate-report".to_owned();
    if let Err(error) = std::thread::Builder::new().name(name).spawn(speak) {
        tell(|| tracing::debug!(%error, "no thread to say what a rank that leaves waits for"));
    }
    done
}
