//! What a rank knows of the job.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tidegate_hal::control::{Control, PANICKED};
use tidegate_hal::device::Device;
use tidegate_hal::memory::{Block as _, Ptr};
use tidegate_hal::process::Process;

use super::known::Known;
use super::progress::Progress;
use crate::error::{Cause, Error, Result};
use crate::ground::{ReclaimOf, lock};
use crate::nic::{Attached, Chunks, Route};
use crate::watch::Watch;

/// One rank's view of the job.
///
/// # Examples
///
/// ```
/// use tidegate::host::prelude::*;
///
/// # fn main() -> Result<()> {
/// let world = World::init()?; // of the job that `tidegate run`, `mpirun` or `srun` has started
/// let (left, right) = world.ring();
/// println!("rank {} of {}, between {left} and {right}", world.rank(), world.size());
/// # Ok(()) }
/// ```
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

    /// This rank, `0..size`.
    pub fn rank(&self) -> usize {
        self.inner.control.rank()
    }

    /// How many ranks the job has.
    pub fn size(&self) -> usize {
        self.inner.control.size()
    }

    /// The neighbours of this rank if the ranks stand in a ring, `(left, right)`: the rank before this one and the rank
    /// behind it, where rank 0 is behind the last one. A job of two ranks has one rank on both sides, and a rank that is
    /// alone is its own neighbour.
    pub fn ring(&self) -> (usize, usize) {
        let (rank, size) = (self.rank(), self.size());
        ((rank + size - 1) % size, (rank + 1) % size)
    }

    /// Which node a rank is on; ranks of one node map each other's memory.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchRank`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(2, |world| {
    /// assert_eq!(world.node(0)?, world.node(1)?); // ranks that are threads
    /// assert!(world.node(2).is_err());
    /// # Ok(()) });
    /// ```
    pub fn node(&self, rank: usize) -> Result<usize> {
        self.check_rank(rank)?;
        Ok(self.inner.control.node(rank))
    }

    /// The process that has joined the job; in its children, nothing is possible.
    pub(crate) fn process(&self) -> Process {
        self.inner.process
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.inner.device
    }

    pub(crate) fn check_rank(&self, rank: usize) -> Result<()> {
        let size = self.size();
        if rank < size {
            Ok(())
        } else {
            Err(Error::NoSuchRank { rank, size })
        }
    }

    /// The bell of a rank, if it is on this node.
    pub(crate) fn bell(&self, rank: usize) -> Option<Ptr> {
        self.inner.bells[rank].as_ref().map(|block| block.base())
    }

    /// The NIC, if there is one. A child of the process has none.
    pub(crate) fn nic(&self) -> Option<&Attached<D>> {
        let nic = self.inner.nic.as_ref();
        nic.filter(|_| self.inner.process.is_this())
    }

    /// Whether a peer is to be reached by the NIC, where `near` says whether it could be mapped.
    pub(crate) fn by_nic(&self, peer: usize, near: bool) -> bool {
        self.inner.route.by_nic(peer, near)
    }

    /// Whether this is the mutant that goes on without waiting for its NIC.
    #[inline]
    pub(crate) fn ignores_tickets(&self) -> bool {
        #[cfg(test)]
        if let Some(attached) = self.nic() {
            let ignores = &attached.ignore_tickets;
            return ignores.load(std::sync::atomic::Ordering::Relaxed);
        }
        false
    }

    /// Whether what goes by the NIC lies in memory of its own.
    pub(crate) fn staged(&self) -> bool {
        self.inner.staged
    }

    /// Whether it is a job of one rank because nobody has said that there is another.
    pub(crate) fn started_alone(&self) -> bool {
        self.inner.started_alone
    }

    /// How staged puts are cut.
    pub(crate) fn chunks(&self) -> Chunks {
        self.inner.chunks
    }

    /// Whether windows of this rank reach another (or itself) by the NIC: each epoch takes a trigger slot a post, and
    /// one a complete, for each such rank then.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchRank`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(2, |world| {
    /// assert!(!world.reaches_by_nic(1 - world.rank())?); // its memory is mapped
    /// # Ok(()) });
    /// ```
    pub fn reaches_by_nic(&self, rank: usize) -> Result<bool> {
        self.check_rank(rank)?;
        Ok(self.by_nic(rank, self.bell(rank).is_some()))
    }

    /// Waits until so many trigger slots of this rank's NIC are free (all of them, if it has no more), but no longer
    /// than `limit`; returns whether they are. True where there is no NIC.
    ///
    /// What a stream has rung for gives its slots back in bounded time after
    /// [`Stream::synchronize`](crate::Stream::synchronize). For
    /// [`Throttle::Application`](crate::Throttle::Application).
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use std::time::Duration;
    ///
    /// # tidegate::doc::ranks(1, |world| {
    /// if !world.nic_room(8, Duration::from_secs(1)) {
    ///     println!("the NIC still has the slots of earlier epochs");
    /// }
    /// # Ok(()) });
    /// ```
    pub fn nic_room(&self, slots: usize, limit: Duration) -> bool {
        self.nic()
            .is_none_or(|attached| attached.has_room_for(slots, limit))
    }

    /// How many trigger slots of the NIC this rank has, and how many of them are free; nothing if there is no NIC.
    pub fn nic_slots(&self) -> Option<(usize, usize)> {
        self.nic()
            .map(|attached| (attached.nic.budget(), attached.room()))
    }

    /// The last wait-for report that this rank has seen or made. It has no more than 321 KiB: where there is more to be
    /// said, it says how much it leaves out, and says what has lasted longest first.
    pub fn last_report(&self) -> Option<String> {
        self.inner.process.check().ok()?;
        self.inner.watch.last_report()
    }

    /// Sets after how long a wait is reported (30 s at first): that of a stream; that of the program in a collective call,
    /// as [`World::all_gather`] and the opening of a window; or that of the program for a stream of its own, as
    /// [`Stream::synchronize`](crate::Stream::synchronize), if the stream was not seen to go on meanwhile (what a GPU does is
    /// not seen: there all of the call counts). The report fails nothing. It is a warning of `tracing`
    /// (target `tidegate_core::watch`) on the lowest rank that has not left the job, on standard error where no subscriber
    /// takes that, and [`World::last_report`] on all ranks.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use std::time::Duration;
    ///
    /// # tidegate::doc::ranks(1, |world| {
    /// world.report_waits_after(Duration::from_secs(5));
    /// # Ok(()) });
    /// ```
    pub fn report_waits_after(&self, deadline: Duration) {
        if self.inner.process.is_this() {
            self.inner.watch.set_deadline(deadline);
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

impl<D: Device> std::fmt::Debug for World<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World")
            .field("rank", &self.inner.control.rank())
            .field("size", &self.inner.control.size())
            .field("device", &D::NAME)
            .finish_non_exhaustive()
    }
}
