//! Joining the job.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use tidegate_boot::{Config, LocalControl, TcpControl};
use tidegate_hal::control::{Control, Event as ControlEvent, PANICKED};
use tidegate_hal::device::Device;
use tidegate_hal::process::Process;
use tidegate_hal::variables;

use super::events::Broken;
use super::inner::{Events, Inner, World};
use super::joined::tell_joined;
use super::known::Known;
use super::meet::{Met, meet};
use super::roster::Roster;
#[cfg(doc)]
use crate::error::Error;
use crate::error::{Result, SettingError};
use crate::ground::variable;
use crate::log;
use crate::nic::{Chunks, Route, WorldOptions};
use crate::observe::{Event, Joined, Observed, now};
use crate::watch::Watch;

impl<D: Device> World<D> {
    /// The environment variable that says which of the machine's devices a rank takes (ranks take them in turn).
    /// Without it, a rank takes the device with its own number among the ranks of its node. The launcher sets it if one
    /// machine acts as several nodes.
    pub const DEVICE: &'static str = variables::DEVICE.name;

    /// Joins the job of this process. The variables RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT describe it, as
    /// `tidegate run` sets them. Without them it is the job of the `mpirun` or `srun` that started the process, by its
    /// key-value store. Without either, it is a job of one rank.
    ///
    /// If the options set no route, `TIDEGATE_ROUTE` does: see [`Route::parse`]. If they do not set how staged puts are
    /// cut, `TIDEGATE_CHUNKS` may: see [`Chunks::parse`]. `TIDEGATE_TRACE`, `TIDEGATE_METRICS` and `TIDEGATE_PROFILER`
    /// add observers: see [`observe`](crate::observe).
    ///
    /// Variables whose names begin with `TIDEGATE_` and that nothing reads are reported on rank 0, with the nearest
    /// name. With `TIDEGATE_LOG=info`, tidegate writes its events to standard error, if the program has set no
    /// subscriber of `tracing` before.
    ///
    /// # Errors
    ///
    /// [`Error::Join`] if the job cannot be joined, [`Error::Device`] if there is no device, [`Error::Setting`] if a
    /// variable cannot be parsed, and the errors of [`World::from_control_with`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use tidegate::{Route, WorldOptions};
    ///
    /// # fn main() -> Result<()> {
    /// let world = World::join(WorldOptions::new().route(Route::Mapped))?;
    /// # Ok(()) }
    /// ```
    pub fn join(mut options: WorldOptions) -> Result<Self> {
        log::start()?;
        options.complete_from_env()?;
        let config = Config::from_env();
        if let Ok(config) = &config {
            log::rank(config.as_ref().map_or(0, |config| config.rank));
        }
        let is_first = match &config {
            Ok(config) => config.as_ref().is_none_or(|config| config.rank == 0),
            // A misspelt name may be the cause.
            Err(_) => variable(variables::RANK.name).is_none_or(|rank| rank.trim() == "0"),
        };
        if is_first {
            say_misspelt();
        }
        let config = config?;
        options.started_alone = config.is_none();
        let control = config.map_or_else(|| Ok(TcpControl::solo()), TcpControl::join)?;
        let control = Arc::new(control);
        // SAFETY: the control plane of `tidegate-boot` carries unchanged what it is given.
        unsafe { Self::join_with(control, options) }
    }

    /// Like [`World::from_control_with`], on the device that [`World::join`] would take: the one that [`World::DEVICE`]
    /// names, or the one with the rank's number among those of its node. The environment sets what the options do not,
    /// as for [`World::join`].
    ///
    /// # Errors
    ///
    /// The errors of [`World::from_control_with`], and [`Error::Setting`] if a variable cannot be parsed.
    ///
    /// # Safety
    ///
    /// The same as [`World::from_control`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use std::sync::Arc;
    /// use tidegate::hal::control::Control;
    /// use tidegate::WorldOptions;
    ///
    /// # fn main() -> Result<()> {
    /// fn meet(control: impl Control) -> Result<World> {
    ///     // SAFETY: it carries what it is given, and no other world is made of it.
    ///     unsafe { World::join_with(Arc::new(control), WorldOptions::new()) }
    /// }
    /// # meet(tidegate_boot::local(1).remove(0))?;
    /// # Ok(()) }
    /// ```
    pub unsafe fn join_with(control: Arc<dyn Control>, mut options: WorldOptions) -> Result<Self> {
        log::start()?;
        log::rank(control.rank());
        options.complete_from_env()?;
        let node = control.node(control.rank());
        let local_rank = (0..control.rank())
            .filter(|rank| control.node(*rank) == node)
            .count();
        let number = match variable(Self::DEVICE) {
            None => local_rank,
            Some(text) => match text.trim().parse() {
                Ok(number) => number,
                Err(_) => {
                    let variable = Self::DEVICE;
                    return Err(SettingError::Number { variable, text }.into());
                }
            },
        };
        // SAFETY: the caller promises what `from_control_with` requires.
        unsafe { Self::from_control_with(control, D::open(number)?, options) }
    }

    /// Runs `n` ranks as threads of this process, for tests and for trying the library. Each rank calls `program` with
    /// its world. Returns the results in the order of the ranks. The variables that [`World::join`] reads have no
    /// effect.
    ///
    /// # Panics
    ///
    /// If `n` is 0, if the device cannot be opened, or if the ranks cannot meet (a NIC of the options cannot be opened,
    /// say). If ranks panic, this panics with the message of the lowest of them, and the other ranks see them as dead,
    /// even if a clone of their world still exists. (If its program returns, a rank stays in the job for as long as a
    /// clone exists.)
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::host::prelude::*;
    ///
    /// let ranks = World::local(3, |world| world.rank());
    /// assert_eq!(ranks, [0, 1, 2]);
    /// ```
    pub fn local<R: Send>(n: usize, program: impl Fn(World<D>) -> R + Sync) -> Vec<R> {
        Self::local_with(n, |_| WorldOptions::new(), program)
    }

    /// Like [`World::local`], with options for each rank.
    ///
    /// # Panics
    ///
    /// Like [`World::local`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::host::prelude::*;
    /// use tidegate::{Route, WorldOptions};
    ///
    /// let options = |rank| match rank {
    ///     0 => WorldOptions::new().route(Route::Mapped),
    ///     _ => WorldOptions::new(),
    /// };
    /// World::local_with(2, options, |world| assert_eq!(world.size(), 2));
    /// ```
    pub fn local_with<R: Send>(
        n: usize,
        options: impl Fn(usize) -> WorldOptions + Sync,
        program: impl Fn(World<D>) -> R + Sync,
    ) -> Vec<R> {
        Self::local_from(tidegate_boot::local(n), options, program)
    }

    /// Like [`World::local_with`], as if rank `r` were on node `nodes[r]`.
    #[cfg(test)]
    pub(crate) fn local_on<R: Send>(
        nodes: &[usize],
        options: impl Fn(usize) -> WorldOptions + Sync,
        program: impl Fn(World<D>) -> R + Sync,
    ) -> Vec<R> {
        Self::local_from(tidegate_boot::local_on(nodes), options, program)
    }

    fn local_from<R: Send>(
        controls: Vec<tidegate_boot::LocalControl>,
        options: impl Fn(usize) -> WorldOptions + Sync,
        program: impl Fn(World<D>) -> R + Sync,
    ) -> Vec<R> {
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
                        let _end = OnEnd(control, world.downgrade());
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

    /// Makes a world from a control plane and a device, for other ways to start a job. The call is collective.
    ///
    /// # Errors
    ///
    /// [`Error::Control`], [`Error::Device`] or [`Error::Forked`]; [`Error::Meet`] if the ranks use different devices.
    ///
    /// # Safety
    ///
    /// [`Control::exchange`] gives each rank the contributions of the others unchanged: two handles with which a window
    /// or a barrier is made never name the same memory. Only one world is made from a control plane.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use std::sync::Arc;
    /// use tidegate::hal::control::Control;
    /// use tidegate::generic::Device;
    /// use tidegate::host::Host;
    ///
    /// # fn main() -> Result<()> {
    /// fn meet(control: impl Control) -> Result<World> {
    ///     // SAFETY: it carries what it is given, and no other world is made of it.
    ///     unsafe { World::from_control(Arc::new(control), Host::open(0)?) }
    /// }
    /// # meet(tidegate_boot::local(1).remove(0))?;
    /// # Ok(()) }
    /// ```
    pub unsafe fn from_control(control: Arc<dyn Control>, device: D) -> Result<Self> {
        // SAFETY: the caller promises the same.
        unsafe { Self::from_control_with(control, device, WorldOptions::new()) }
    }

    /// Like [`World::from_control`], with options, which may bring a NIC. It does not read the environment.
    ///
    /// # Errors
    ///
    /// [`Error::Control`], [`Error::Device`], [`Error::Nic`] or [`Error::Forked`]; [`Error::Meet`] if the ranks use
    /// different devices or NICs, or cannot read each other's messages. If a rank could not open the NIC that is
    /// needed, all ranks get [`MeetError::NoNic`](crate::error::MeetError::NoNic).
    ///
    /// # Safety
    ///
    /// The same as [`World::from_control`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use std::sync::Arc;
    /// use tidegate::hal::control::Control;
    /// use tidegate::generic::Device;
    /// use tidegate::host::Host;
    /// use tidegate::WorldOptions;
    ///
    /// # fn main() -> Result<()> {
    /// fn meet(control: impl Control, options: WorldOptions) -> Result<World> {
    ///     // SAFETY: it carries what it is given, and no other world is made of it.
    ///     unsafe { World::from_control_with(Arc::new(control), Host::open(0)?, options) }
    /// }
    /// # meet(tidegate_boot::local(1).remove(0), WorldOptions::new())?;
    /// # Ok(()) }
    /// ```
    pub unsafe fn from_control_with(
        control: Arc<dyn Control>,
        device: D,
        options: WorldOptions,
    ) -> Result<Self> {
        let broken = Arc::new(Broken::default());
        let Met { bells, nic, rounds } = {
            let (asked, broken) = (broken.clone(), broken.clone());
            let failed = Box::new(move |reason| broken.note(reason));
            let asks = Box::new(move |peer, number| asked.ask(peer, number));
            let route = options.route.as_ref().unwrap_or(&Route::Auto);
            let nic = options.nic.open(route.needs_nic(several_nodes(&*control)));
            let observed = !options.observers.0.is_empty();
            meet(&*control, &device, nic, (failed, asks), observed)?
        };
        let observed = match options.observers.0 {
            observers if observers.is_empty() => None,
            observers => Some(Observed::new(observers)?),
        };
        if let Some(observed) = &observed {
            observed.tell(&Event::Joined(Joined {
                rank: control.rank() as u32,
                ranks: control.size() as u32,
                node: control.node(control.rank()) as u32,
                host: rustix::system::uname()
                    .nodename()
                    .to_string_lossy()
                    .into_owned(),
                process: std::process::id(),
                device: D::NAME.to_owned(),
                at: now(),
                rounds,
            }));
        }
        if let Some(streams) = options.waiting_streams {
            device.expect_waiting(streams);
        }
        let staged = options.staged || device.staged();
        // Streams that drive the NIC's engine themselves cannot fill a chunk meanwhile.
        let best = || {
            if device.staged() {
                Chunks::default()
            } else {
                Chunks::NEVER
            }
        };
        let chunks = options.chunks.unwrap_or_else(best);
        let events = Events {
            gone: BTreeMap::new(),
            lost: Vec::new(),
            left_first: BTreeSet::new(),
            failed: BTreeMap::new(),
            nic_failed: None,
            windows: Known::default(),
            streams: Vec::new(),
        };
        let everyone = Roster::everyone(control.rank(), control.size());
        let inner = Arc::new(Inner {
            process: Process::this(),
            control,
            device,
            bells,
            events: Mutex::new(events),
            everyone,
            making: Mutex::new(()),
            progress: Mutex::default(),
            watch: Watch::default(),
            replays: Mutex::default(),
            observed,
            nic,
            route: options.route.unwrap_or_default(),
            staged,
            chunks,
            started_alone: options.started_alone,
            unwound: OnceLock::new(),
            returned: AtomicBool::new(false),
        });
        broken.hand_over(&inner);
        let weak = Arc::downgrade(&inner);
        inner.control.subscribe(Arc::new(move |event| {
            if let Some(inner) = weak.upgrade() {
                inner.on_event(event);
            }
        }));
        Watch::start(&inner)?;
        let world = World::of(inner);
        tell_joined(&world);
        Ok(world)
    }
}

/// Says which variables of tidegate's are misspelt. They are no error, since another program may read them.
fn say_misspelt() {
    let names = std::env::vars_os().map(|(name, _)| name);
    let found: Vec<_> = variables::misspelt(names)
        .iter()
        .map(ToString::to_string)
        .collect();
    if !found.is_empty() {
        tidegate_hal::say!(found.join("; "), std::io::stderr());
    }
}

/// Whether the ranks of the job are on more than one node.
fn several_nodes(control: &dyn Control) -> bool {
    let own = control.node(control.rank());
    (0..control.size()).any(|rank| control.node(rank) != own)
}

/// Sees the program of a rank that is a thread end, though a clone of its world may still exist (in a static, say).
///
/// If the program panics, the rank ends. Waits that use the clone end, too, because the rank hears no more of its
/// peers. If the program returns, the clone may still be of use, and the rank stays. Reports of long waits say so.
struct OnEnd<D: Device>(Arc<LocalControl>, Weak<Inner<D>>);

impl<D: Device> Drop for OnEnd<D> {
    fn drop(&mut self) {
        let panics = std::thread::panicking();
        if panics {
            self.0.fail(PANICKED);
        }
        let Some(inner) = self.1.upgrade() else {
            return;
        };
        if !panics {
            inner.returned.store(true, Ordering::Relaxed);
        } else if inner.process.is_this() {
            let (rank, reason) = (self.0.rank(), PANICKED.into());
            inner.on_event(ControlEvent::Lost { rank, reason });
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    use std::process::Command;

    use tidegate_host::Host;

    use super::*;
    use crate::error::Error;

    /// The test starts itself as a child process, because a process with threads must not change its environment.
    #[test]
    fn a_variable_that_is_no_text_is_refused() {
        const CHILD: &str = "TEST_VARIABLE_NO_TEXT";
        let name = "world::join::tests::a_variable_that_is_no_text_is_refused";
        if std::env::var_os(CHILD).is_none() {
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", name]).env(CHILD, "1");
            child.env(World::<Host>::DEVICE, OsStr::from_bytes(b"\xff"));
            assert!(child.status().unwrap().success());
            return;
        }
        match World::<Host>::join(WorldOptions::new()) {
            Err(Error::Setting(SettingError::Number { variable, .. })) => {
                assert_eq!(variable, World::<Host>::DEVICE);
            }
            other => panic!("{other:?}"),
        }
    }
}
