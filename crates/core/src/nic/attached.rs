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

/// The NIC of a world, connected with those of the other ranks.
pub(crate) struct Attached<D: Device> {
    pub(crate) nic: Arc<dyn Nic>,
    /// The bell that streams ring after they have added to a doorbell.
    pub(crate) doorbells: Arc<D::Block>,
    /// This rank's bell, which NICs ring.
    pub(crate) rung: Arc<D::Block>,
    /// The bells of the ranks that have a NIC.
    pub(crate) bells: Vec<Option<RemoteMemory>>,
    /// Held while arming, so that no other arms come between those of a batch, or between them and the check for room.
    pub(crate) arming: Mutex<()>,
    /// The peers that must hear that this rank leaves.
    pub(crate) parting: Parting,
    /// Lets peers ring this rank's bell.
    pub(crate) _registration: Keep,
    /// In a test with a deliberate fault: goes on without waiting for tickets.
    #[cfg(test)]
    pub(crate) ignore_tickets: std::sync::atomic::AtomicBool,
}

/// How long a rank that leaves lets its NIC finish. If a peer is lost, some operations may never finish, so the second,
/// shorter time applies.
const QUIESCE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(1));

/// How long this takes before it is reported.
const SAID_AFTER: Duration = Duration::from_secs(1);

impl<D: Device> Attached<D> {
    pub(crate) fn bell(&self) -> Ptr {
        self.doorbells.base()
    }

    /// How many programs would have a slot if they were armed now. (The last of them gets its slot when it is rung
    /// for.)
    pub(crate) fn room(&self) -> usize {
        self.nic.budget().saturating_sub(self.nic.armed())
    }

    /// Waits at most `limit` until there is room for `needed` programs, or until all slots are free if there are fewer.
    /// Returns whether there is room.
    pub(crate) fn has_room_for(&self, needed: usize, limit: Duration) -> bool {
        let most = self.nic.budget().saturating_sub(needed);
        self.nic.await_armed(most, limit) <= most
    }

    /// Lets the NIC finish before the rank leaves, and tells the peers that it leaves. `lost` says whether a peer is
    /// lost.
    pub(crate) fn leave(&self, control: &dyn Control, lost: bool) {
        let limit = if lost { QUIESCE.1 } else { QUIESCE.0 };
        let (rank, peers) = (control.rank(), self.parting.peers(control));
        let said = say_unless_done(format!(
            "rank {rank} is leaving the job, and waits (at most {limit:?}) until its NIC has sent everything to {peers}"
        ));
        let done = self.nic.quiesce(limit);
        drop(said);
        if !done {
            tell(|| tracing::warn!("the NIC has not sent everything, so peers may miss data"));
        }
        self.parting.leave(control);
    }
}

/// Reports `text` after [`SAID_AFTER`], unless the returned sender is dropped before.
fn say_unless_done(text: String) -> Sender<()> {
    let (done, wait) = channel();
    let speak = move || {
        if wait.recv_timeout(SAID_AFTER) == Err(RecvTimeoutError::Timeout) {
            tidegate_hal::say!(text, std::io::stderr());
        }
    };
    let name = "tidegate-report".to_owned();
    if let Err(error) = std::thread::Builder::new().name(name).spawn(speak) {
        tell(
            || tracing::debug!(%error, "no thread could be started to report what a leaving rank waits for"),
        );
    }
    done
}
