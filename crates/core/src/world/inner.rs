//! One rank's knowledge of the job.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use tidegate_hal::control::{Control, PANICKED};
use tidegate_hal::device::{Device, StreamName};
use tidegate_hal::memory::Ptr;
use tidegate_hal::process::Process;
use tidegate_hal::site::CallSite;

use super::known::Known;
use super::meet::Bells;
use super::members::Members;
use super::progress::Progress;
use super::roster::Roster;
#[cfg(doc)]
use crate::error::Error;
use crate::error::{Cause, Result};
use crate::ground::{ReclaimOf, lock};
use crate::nic::{Attached, Chunks, Route};
use crate::observe::Observed;
use crate::replays::{Proved, Replays};
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

/// The program's share of the world. The library's threads hold [`Inner`] instead. So the rank leaves when the
/// *program* has dropped its last share, and not when a thread that happened to look at the world is done. That might
/// be after the end of the process, which the others would see as a loss.
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
    /// The process that joined the job.
    pub(super) process: Process,
    pub(super) control: Arc<dyn Control>,
    pub(super) device: D,
    /// The bells of this node. Streams hold them, since they may outlive the world.
    pub(super) bells: Arc<Bells<D::Block>>,
    pub(super) events: Mutex<Events<D>>,
    /// The team of all ranks.
    pub(super) everyone: Arc<Roster>,
    /// Held while this rank makes a team: it makes one at a time.
    pub(super) making: Mutex<()>,
    /// How far the rank has come in the calls of its teams.
    pub(super) progress: Mutex<Progress>,
    pub(super) watch: Watch,
    /// The proved recordings that the program has replayed.
    pub(super) replays: Mutex<Replays>,
    /// If somebody observes this rank.
    pub(super) observed: Option<Arc<Observed>>,
    pub(super) nic: Option<Attached<D>>,
    pub(super) route: Route,
    pub(super) staged: bool,
    pub(super) chunks: Chunks,
    pub(super) started_alone: bool,
    /// The stream that a panic has unwound past, if one has. The waits of all streams that the rank had have ended
    /// then.
    pub(super) unwound: OnceLock<StreamName>,
    /// Whether the program of a rank that is a thread has returned. The rank is in the job for as long as a clone of
    /// its world exists.
    pub(super) returned: AtomicBool,
}

impl<D: Device> World<D> {
    /// The program's first share.
    pub(super) fn of(inner: Arc<Inner<D>>) -> Self {
        World {
            inner: Arc::new(Member(inner)),
        }
    }

    /// The number of this rank, from 0.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// let ranks = World::local(3, |world| world.rank());
    /// assert_eq!(ranks, [0, 1, 2]);
    /// ```
    pub fn rank(&self) -> usize {
        self.inner.control.rank()
    }

    /// The number of ranks in the job.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// World::local(3, |world| assert_eq!(world.size(), 3));
    /// ```
    pub fn size(&self) -> usize {
        self.inner.control.size()
    }

    /// The neighbours of this rank in a ring of all ranks, as `(left, right)`: the rank before this one and the rank
    /// after it. Rank 0 follows the last rank. With two ranks, both neighbours are the same rank. A rank that is alone
    /// is its own neighbour.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// let neighbours = World::local(3, |world| world.ring());
    /// assert_eq!(neighbours, [(2, 1), (0, 2), (1, 0)]);
    /// ```
    pub fn ring(&self) -> (usize, usize) {
        let (rank, size) = (self.rank(), self.size());
        ((rank + size - 1) % size, (rank + 1) % size)
    }

    /// The node of a rank, as a number. Ranks on one node map each other's memory.
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

    /// The process that joined the job. In its children, no call is possible.
    pub(crate) fn process(&self) -> Process {
        self.inner.process
    }

    /// The device of this rank.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use tidegate::generic::Device;
    /// use tidegate::hal::memory::Sharing;
    ///
    /// # tidegate::doc::ranks(1, |world| {
    /// let block = world.device().alloc(64, Sharing::Private)?;
    /// # drop(block);
    /// # Ok(()) });
    /// ```
    pub fn device(&self) -> &D {
        &self.inner.device
    }

    fn check_rank(&self, rank: usize) -> Result<()> {
        self.roster().in_job(rank).map(drop)
    }

    /// The team of all ranks.
    pub(crate) fn roster(&self) -> &Arc<Roster> {
        &self.inner.everyone
    }

    /// The bell of a rank, if it is on this node.
    pub(crate) fn bell(&self, rank: usize) -> Option<Ptr> {
        self.inner.bells.of(rank)
    }

    /// The NIC, if there is one. A child of the process has none.
    pub(crate) fn nic(&self) -> Option<&Attached<D>> {
        let nic = self.inner.nic.as_ref();
        nic.filter(|_| self.inner.process.is_this())
    }

    /// Whether a peer is to be reached by the NIC. `near` says whether it could be mapped.
    pub(crate) fn by_nic(&self, peer: usize, near: bool) -> bool {
        self.inner.route.by_nic(peer, near)
    }

    /// Whether this is a test with a deliberate fault, which goes on without waiting for the NIC.
    #[inline]
    pub(crate) fn ignores_tickets(&self) -> bool {
        #[cfg(test)]
        if let Some(attached) = self.nic() {
            let ignores = &attached.ignore_tickets;
            return ignores.load(std::sync::atomic::Ordering::Relaxed);
        }
        false
    }

    /// Whether data that goes through the NIC is staged.
    pub(crate) fn staged(&self) -> bool {
        self.inner.staged
    }

    /// Whether this is a job of one rank because the environment names no job.
    pub(crate) fn started_alone(&self) -> bool {
        self.inner.started_alone
    }

    /// How staged puts are cut.
    pub(crate) fn chunks(&self) -> Chunks {
        self.inner.chunks
    }

    /// Whether windows of this rank reach another rank (or this rank itself) by the NIC. Each epoch then takes one
    /// trigger slot for a post, and one for a complete, for each such rank.
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

    /// Waits at most `limit` until `slots` trigger slots of this rank's NIC are free, or all slots if it has fewer.
    /// Returns whether they are. Without a NIC it returns `true`.
    ///
    /// After [`Stream::synchronize`](crate::Stream::synchronize), the slots of everything that the stream has rung for
    /// become free in bounded time. Use this with [`Throttle::Application`](crate::Throttle::Application).
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

    /// The number of trigger slots that this rank has, and the number of those that are free. `None` without a NIC.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(1, |world| {
    /// match world.nic_slots() {
    ///     Some((all, free)) => println!("{free} of {all} slots are free"),
    ///     None => println!("there is no NIC"),
    /// }
    /// # Ok(()) });
    /// ```
    pub fn nic_slots(&self) -> Option<(usize, usize)> {
        self.nic()
            .map(|attached| (attached.nic.budget(), attached.room()))
    }

    /// The last report of long waits that this rank has made or received. It has at most 321 KiB. If there is more to
    /// say, it begins with what has lasted longest, and says how much it leaves out.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(1, |world| {
    /// if let Some(report) = world.last_report() {
    ///     println!("{report}");
    /// }
    /// # Ok(()) });
    /// ```
    pub fn last_report(&self) -> Option<String> {
        self.inner.process.check().ok()?;
        self.inner.watch.last_report()
    }

    /// Sets the deadline after which a wait is reported (30 s by default). It applies to:
    ///
    /// - the waits of streams
    /// - collective calls of the program, such as [`World::all_gather`] and opening a window
    /// - calls in which the program waits for a stream of its own, such as
    ///   [`Stream::synchronize`](crate::Stream::synchronize), from when the stream was last seen to make progress. (A
    ///   GPU's progress is not visible; there the whole call counts.)
    ///
    /// A report makes nothing fail. It is a `tracing` warning (target `tidegate_core::watch`) on the lowest rank that
    /// is still in the job, or goes to standard error there if no subscriber takes it. [`World::last_report`] returns
    /// it on all ranks.
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

    /// Gives a recording that all ranks have proved a number, which is the same on all of them.
    pub(crate) fn proved(&self, streams: &[usize], site: CallSite) -> Proved {
        lock(&self.inner.replays).proved(streams, site)
    }

    /// Notes replays of a proved recording of this stream.
    pub(crate) fn replayed(&self, recording: Proved, stream: usize, times: u64) {
        lock(&self.inner.replays).note(recording, stream, times);
    }

    /// If somebody observes this rank: what tells them.
    pub(crate) fn observed(&self) -> Option<&Arc<Observed>> {
        self.inner.observed.as_ref()
    }

    /// What the library's threads hold in place of the world.
    pub(super) fn shared(&self) -> &Arc<Inner<D>> {
        &self.inner.0
    }

    /// A reference for those that must not keep the rank in the job.
    pub(crate) fn downgrade(&self) -> Weak<Inner<D>> {
        Arc::downgrade(&self.inner.0)
    }

    /// Whether both are views of the same rank of the same job.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

pub(super) struct Events<D: Device> {
    /// Ranks that died or left, and how.
    pub(super) gone: BTreeMap<usize, Cause>,
    /// The ranks that are lost, the first one first. Later losses usually follow from it.
    pub(super) lost: Vec<usize>,
    /// Ranks that left before any rank was lost, and so not because of a loss.
    pub(super) left_first: BTreeSet<usize>,
    /// Ranks with a stream that a kernel made to fail (their own, or one of another rank), and the first cause for
    /// each.
    pub(super) failed: BTreeMap<usize, Cause>,
    /// The failure of this rank's NIC.
    pub(super) nic_failed: Option<Cause>,
    /// The windows of this job, by id.
    pub(super) windows: Known<D>,
    pub(super) streams: Vec<(StreamName, Weak<ReclaimOf<D>>)>,
}

impl<D: Device> Events<D> {
    /// The first loss of one of these ranks.
    pub(super) fn first_lost(&self, members: &Members) -> Option<&Cause> {
        let rank = self.lost.iter().find(|rank| members.contains(**rank))?;
        self.gone.get(rank)
    }

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
            // The control plane, the NIC and the bells belong to the parent process, and other threads may hold their
            // locks for ever.
            return std::mem::forget(self.0.clone());
        }
        self.watch.stop();
        let panics = std::thread::panicking();
        if panics {
            // The others must not wait for ranks that wait for this one, nor for its observers.
            self.control.fail(PANICKED);
        }
        if let Some(observed) = &self.observed {
            observed.end();
        }
        if panics {
            return;
        }
        if let Some(attached) = &self.nic {
            // The lock is released before the wait, because a thread needs it to note that a peer has left.
            let any_lost = !lock(&self.events).lost.is_empty();
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
