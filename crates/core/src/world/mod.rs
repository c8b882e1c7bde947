//! The job: its ranks, and what happens to them.
//!
//! # Model
//!
//! A [`World`] is one rank's view of the job: its number, the size, the device, and the control plane. It is cheap to clone;
//! the rank leaves the job when the last clone (streams and windows hold some) is gone, and its NIC has sent what was rung for.
//!
//! # Failure
//!
//! When a rank dies, every word that another rank waits on in any window is poisoned, so that every wait which would
//! depend on it ends; the error names the dead rank. When a rank leaves in good order, only waits for that very rank
//! end, unless what they wait for has been done already. Dropping an epoch half-done, or a limit that passes, *revokes*
//! a window on all ranks.
//!
//! A child that is made by `fork` has a copy of the world and none of its threads: every call there is
//! [`Error::Forked`], and a drop is silent.
//!
//! Rank 0 carries the control plane. So when its program has ended without an error, its process waits until all other
//! ranks have left the job. After a second it says so; from then on SIGINT, SIGTERM, SIGHUP and SIGQUIT end it, also where
//! the program handles them. No other thread of it can end it then, because [`std::process::exit`] does not return there.

mod agreement;
mod events;
mod inner;
mod known;
mod overseen;
mod progress;
mod streams;
mod watched;

pub(crate) use agreement::{Agreement, Brought, Which};
pub(crate) use inner::Inner;
pub use inner::World;
pub(crate) use watched::Watched;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tidegate_boot::{Config, LocalControl, TcpControl};
use tidegate_hal::control::{Control, Event, PANICKED, Packet};
use tidegate_hal::device::Device;
use tidegate_hal::memory::{Block as _, Ptr};
use tidegate_hal::process::Process;

use crate::error::{Error, Result};
use crate::meet::Met;
use crate::nic::{Attached, Chunks, Route, WorldOptions};
use crate::watch::Watch;
use events::Broken;
use inner::Events;
use known::Known;

impl<D: Device> World<D> {
    /// The variable that says which of the machine's devices a rank takes (ranks take them by turns), instead of its
    /// number among the ranks of its node. The launcher sets it where one machine acts as several nodes.
    pub const DEVICE: &'static str = "TIDEGATE_DEVICE";

    /// Joins the job that the environment describes (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, as `tidegate run` sets
    /// them), or that of the `mpirun` or `srun` that has started this process, by its key-value store; without any of
    /// these, a job of one rank.
    ///
    /// Where the options choose no route, `TIDEGATE_ROUTE` does: see [`Route::parse`]; and where they do not say how staged
    /// puts are cut, `TIDEGATE_CHUNKS` may: see [`Chunks::parse`].
    ///
    /// # Errors
    ///
    /// [`Error::Join`] if the job cannot be joined, [`Error::Device`] if there is no device; [`Error::Invalid`] if a
    /// variable cannot be read; and as [`World::from_control_with`].
    pub fn join(mut options: WorldOptions) -> Result<Self> {
        options.complete_from_env()?;
        let config = Config::from_env()?;
        options.started_alone = config.is_none();
        let control = config.map_or_else(|| Ok(TcpControl::solo()), TcpControl::join)?;
        let control = Arc::new(control);
        // SAFETY: the control plane of `tidegate-boot` carries what it is given.
        unsafe { Self::join_with(control, options) }
    }

    /// As [`World::from_control_with`], on the device that [`World::join`] would take: the rank's number among those of
    /// its node, or what [`World::DEVICE`] says. What the options leave open the environment says, as for
    /// [`World::join`].
    ///
    /// # Errors
    ///
    /// As [`World::from_control_with`]; [`Error::Invalid`] if one of the variables cannot be read.
    ///
    /// # Safety
    ///
    /// As [`World::from_control`].
    pub unsafe fn join_with(control: Arc<dyn Control>, mut options: WorldOptions) -> Result<Self> {
        options.complete_from_env()?;
        let node = control.node(control.rank());
        let local_rank = (0..control.rank())
            .filter(|rank| control.node(*rank) == node)
            .count();
        let number = match std::env::var(Self::DEVICE) {
            Err(_) => local_rank,
            Ok(text) => text.trim().parse().map_err(|_| {
                Error::Invalid(format!("{} is `{text}`: a number is wanted", Self::DEVICE))
            })?,
        };
        // SAFETY: the caller's promise.
        unsafe { Self::from_control_with(control, D::open(number)?, options) }
    }

    /// Runs `n` ranks as threads of this process, each calling `program` with its world; returns what they
    /// return, in order of ranks. For tests and for getting to know the library.
    ///
    /// # Panics
    ///
    /// If a rank panics (the other ranks see it as dead, also where a clone of its world lives on), with its panic; if the
    /// device cannot be opened; if `n` is 0.
    pub fn local<R: Send>(n: usize, program: impl Fn(World<D>) -> R + Sync) -> Vec<R> {
        Self::local_with(n, |_| WorldOptions::new(), program)
    }

    /// As [`World::local`], with options for each rank.
    ///
    /// # Panics
    ///
    /// As [`World::local`].
    pub fn local_with<R: Send>(
        n: usize,
        options: impl Fn(usize) -> WorldOptions + Sync,
        program: impl Fn(World<D>) -> R + Sync,
    ) -> Vec<R> {
        let controls = tidegate_boot::local(n);
        std::thread::scope(|scope| {
            let ranks: Vec<_> = controls
                .into_iter()
                .map(|control| {
                    let (program, options) = (&program, &options);
                    scope.spawn(move || {
                        let device = D::open_local(control.rank()).expect("the device opens");
                        let options = options(control.rank());
                        let control = Arc::new(control);
                        // SAFETY: as for `join`.
                        let world =
                            unsafe { Self::from_control_with(control.clone(), device, options) }
                                .expect("the ranks meet");
                        let _end = OnPanic(control, world.downgrade());
                        program(world)
                    })
                })
                .collect();
            let results: Vec<_> = ranks.into_iter().map(|rank| rank.join()).collect();
            let unwind = |panic| std::panic::resume_unwind(panic);
            results
                .into_iter()
                .map(|result| result.unwrap_or_else(unwind))
                .collect()
        })
    }

    /// Makes a world of a control plane and a device: the way for bootstraps of other kinds. Collective.
    ///
    /// # Errors
    ///
    /// [`Error::Control`], [`Error::Device`].
    ///
    /// # Safety
    ///
    /// [`Control::exchange`] gives each rank what the others contributed, unchanged: two handles that a window or a
    /// barrier is made with never name one memory. Only one world is made of a control plane.
    pub unsafe fn from_control(control: Arc<dyn Control>, device: D) -> Result<Self> {
        // SAFETY: the caller's promise.
        unsafe { Self::from_control_with(control, device, WorldOptions::new()) }
    }

    /// As [`World::from_control`], with a NIC perhaps. The environment is not looked at.
    ///
    /// # Errors
    ///
    /// [`Error::Control`], [`Error::Device`], [`Error::Nic`]; [`Error::Invalid`] if the ranks use different devices or NICs;
    /// [`Error::NoNic`], on all ranks alike, if one of them could not open the NIC that is needed.
    ///
    /// # Safety
    ///
    /// As [`World::from_control`].
    pub unsafe fn from_control_with(
        control: Arc<dyn Control>,
        device: D,
        options: WorldOptions,
    ) -> Result<Self> {
        let broken = Arc::new(Broken::default());
        let Met {
            own_bell,
            bells,
            nic,
        } = {
            let (asked, broken) = (broken.clone(), broken.clone());
            let failed = Box::new(move |reason| broken.note(reason));
            let asks = Box::new(move |peer, number| asked.ask(peer, number));
            let route = options.route.as_ref().unwrap_or(&Route::Auto);
            let nic = options.nic.open(route.needs_nic(several_nodes(&*control)));
            crate::meet::meet(&*control, &device, nic, (failed, asks))?
        };
        let staged = options.staged || device.staged();
        // Streams that turn the NIC's engine themselves cannot fill a chunk meanwhile.
        let best = || match device.staged() {
            true => Chunks::default(),
            false => Chunks::NEVER,
        };
        let chunks = options.chunks.unwrap_or_else(best);
        let events = Events {
            gone: BTreeMap::new(),
            left_first: BTreeSet::new(),
            failed: BTreeMap::new(),
            nic_failed: None,
            windows: Known::default(),
            streams: Vec::new(),
        };
        let inner = Arc::new(Inner {
            process: Process::this(),
            control,
            device,
            bells,
            own_bell,
            events: Mutex::new(events),
            alone: Mutex::new(()),
            progress: Mutex::default(),
            watch: Watch::default(),
            nic,
            route: options.route.unwrap_or_default(),
            staged,
            chunks,
            started_alone: options.started_alone,
        });
        broken.hand_over(&inner);
        let weak = Arc::downgrade(&inner);
        inner.control.subscribe(Arc::new(move |event| {
            if let Some(inner) = weak.upgrade() {
                inner.on_event(event);
            }
        }));
        Watch::start(&inner)?;
        Ok(World::of(inner))
    }

    /// This rank, `0..size`.
    pub fn rank(&self) -> usize {
        self.inner.control.rank()
    }

    /// How many ranks the job has.
    pub fn size(&self) -> usize {
        self.inner.control.size()
    }

    /// Which node a rank is on; ranks of one node map each other's memory.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchRank`].
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

    /// Gives every rank every rank's bytes, in order of ranks: for results and set-up, not for the data path. Collective; `label`
    /// names the call, and is compared between ranks. A rank brings 1 MiB at most (1048576 bytes; 4096 less over windows
    /// of MPI), and each gets all of them: what is larger goes through a window, to a rank that writes it, or by several calls.
    ///
    /// # Errors
    ///
    /// [`Error::Control`]: a rank ended meanwhile, is in another collective call, or the bytes are too many (on the rank
    /// that brings them; the others wait for its next call). [`Error::Forked`].
    pub fn gather(&self, label: &str, bytes: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        let handles = Vec::new();
        let packet = Packet { bytes, handles };
        let label = format!("gather `{label}`");
        let packets = self.agreement(label.clone())?.exchange(&label, packet)?;
        Ok(packets.into_iter().map(|packet| packet.bytes).collect())
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
    /// as [`World::gather`] and the opening of a window; or that of the program for a stream of its own, as
    /// [`Stream::synchronize`](crate::Stream::synchronize), if the stream was not seen to go on meanwhile (what a GPU does is
    /// not seen: there all of the call counts). The report fails nothing. It is a warning of `tracing`
    /// (target `tidegate_core::watch`) on the lowest rank that has not left the job, on standard error where no subscriber
    /// takes that, and [`World::last_report`] on all ranks.
    pub fn report_waits_after(&self, deadline: Duration) {
        if self.inner.process.is_this() {
            self.inner.watch.set_deadline(deadline);
        }
    }
}

/// Whether the ranks of the job are on more than one node.
fn several_nodes(control: &dyn Control) -> bool {
    let own = control.node(control.rank());
    (0..control.size()).any(|rank| control.node(rank) != own)
}

/// Ends a rank that is a thread when its program panics: a clone of the world that lives on (in a static, say) must not
/// keep it in the job. What waits by that clone ends, too: nobody tells this rank of its peers any more.
struct OnPanic<D: Device>(Arc<LocalControl>, Weak<Inner<D>>);

impl<D: Device> Drop for OnPanic<D> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        self.0.fail(PANICKED);
        if let Some(inner) = self.1.upgrade()
            && inner.process.is_this()
        {
            let (rank, reason) = (self.0.rank(), PANICKED.into());
            inner.on_event(Event::Lost { rank, reason });
        }
    }
}
