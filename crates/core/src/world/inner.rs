//! What a rank knows of the job.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, Weak};

use tidegate_hal::control::{Control, PANICKED};
use tidegate_hal::device::Device;
use tidegate_hal::process::Process;

use super::known::Known;
use super::progress::Progress;
use crate::error::Cause;
use crate::ground::{ReclaimOf, lock};
use crate::nic::{Attached, Chunks, Route};
use crate::watch::Watch;

/// One rank's view of the job.
pub struct World<D: Device> {
    pub(super) inner: Arc<Member<D>>,
}

/// What the program holds of the job. Threads of the library hold [`Inner`]: so the rank has left when the *program*
/// has let go of it, and not when a thread that happened to look at it is done, which may be after the end of the
/// process: a loss, to the others.
pub(super) struct Member<D: Device>(Arc<Inner<D>>);

impl<D: Device> std::ops::Deref for Member<D> {
    type Target = Inner<D>;
    fn deref(&self) -> &Inner<D> {
        &self.0
    }
}

impl<D: Device> Clone for World<D> {
    fn clone(&self) -> Self {
        World {
            inner: self.inner.clone(),
        }
    }
}

pub(crate) struct Inner<D: Device> {
    /// The one that has joined the job.
    pub(super) process: Process,
    pub(super) control: Arc<dyn Control>,
    pub(super) device: D,
    /// Every rank's bell, or `None` where it is on another node.
    pub(super) bells: Vec<Option<D::Block>>,
    /// This rank's bell, for streams that may outlive the world.
    pub(super) own_bell: Arc<D::Block>,
    pub(super) events: Mutex<Events<D>>,
    /// Held by who makes exchanges: see [`Agreement`](super::Agreement).
    pub(super) alone: Mutex<()>,
    /// Where the one who makes them is.
    pub(super) progress: Mutex<Progress>,
    pub(super) watch: Watch,
    pub(super) nic: Option<Attached<D>>,
    pub(super) route: Route,
    pub(super) staged: bool,
    pub(super) chunks: Chunks,
    pub(super) started_alone: bool,
}

impl<D: Device> World<D> {
    /// The program's first handle.
    pub(super) fn of(inner: Arc<Inner<D>>) -> Self {
        World {
            inner: Arc::new(Member(inner)),
        }
    }

    /// For who must not keep the rank in the job.
    pub(crate) fn downgrade(&self) -> Weak<Inner<D>> {
        Arc::downgrade(&self.inner.0)
    }

    /// Whether both are views of one rank of one job.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

pub(super) struct Events<D: Device> {
    /// Ranks that died or left, and how.
    pub(super) gone: BTreeMap<usize, Cause>,
    /// Ranks that left before any rank was lost: they did not leave because of a loss.
    pub(super) left_first: BTreeSet<usize>,
    /// Ranks of which a stream has failed by a kernel, of theirs or of another rank, and why: the first of each.
    pub(super) failed: BTreeMap<usize, Cause>,
    /// This rank's NIC is of no more use.
    pub(super) nic_failed: Option<Cause>,
    /// The windows of this job, by number.
    pub(super) windows: Known<D>,
    pub(super) streams: Vec<(String, Weak<ReclaimOf<D>>)>,
}

impl<D: Device> Events<D> {
    /// The lowest rank that has not ended.
    pub(super) fn reporter(&self) -> usize {
        let ended = self.gone.keys().enumerate();
        ended.take_while(|(place, rank)| place == *rank).count()
    }
}

impl<D: Device> Inner<D> {
    pub(crate) fn control(&self) -> &Arc<dyn Control> {
        &self.control
    }
}

impl<D: Device> Drop for Member<D> {
    fn drop(&mut self) {
        if !self.process.is_this() {
            // The control plane, the NIC and the bells are the parent's, and other threads may hold their locks for ever.
            return std::mem::forget(self.0.clone());
        }
        self.watch.stop();
        if std::thread::panicking() {
            // The others must not go on waiting for ranks that wait for this one.
            return self.control.fail(PANICKED);
        }
        if let Some(attached) = &self.nic {
            let lost = |cause: &Cause| matches!(cause, Cause::PeerLost { .. });
            // Let go before the wait: that a peer has left is heard of by those who need the lock.
            let any_lost = lock(&self.events).gone.values().any(lost);
            attached.leave(&*self.control, any_lost);
        }
        self.control.leave();
    }
}
