//! Options of a world: the routes to peers, and what windows do when the NIC is short of slots.

use std::sync::Arc;

use tidegate_hal::nic::{Nic, NicError};
use tidegate_hal::variables::{self, Variable};

use super::chunks::Chunks;
use crate::error::{Result, SettingError};
use crate::ground::variable;
#[cfg(feature = "prometheus")]
use crate::observe::Counters;
#[cfg(feature = "profiler")]
use crate::observe::Profiler;
use crate::observe::{Observer, Recorder};

/// Says which peers are mapped, and which are reached by the NIC. Each rank may choose for itself. But with
/// [staged](WorldOptions::staged) memory, two ranks reach each other by their NICs if either of them wants that.
///
/// # Examples
///
/// ```
/// use tidegate::{Route, WorldOptions};
///
/// // Rank 3 is reached by the NIC, even if it is on this node.
/// let options = WorldOptions::new().route(Route::NicTo([3].into()));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Route {
    /// Peers on the same node are mapped, and others are reached by the NIC.
    #[default]
    Auto,
    /// All peers are mapped. Windows that would need a NIC are refused.
    Mapped,
    /// All peers are reached by the NIC, including this rank itself. This is for tests, and no faster.
    Nic,
    /// These peers are reached by the NIC, and the others as with [`Route::Auto`].
    NicTo(Arc<[usize]>),
}

impl Route {
    /// The name of the environment variable that [`World::join`](crate::World::join) reads.
    pub const VARIABLE: &'static str = tidegate_hal::variables::ROUTE.name;

    /// Parses `auto`, `mapped`, `nic`, or `nic:` and a list of ranks with commas (`nic:1,3`).
    ///
    /// # Errors
    ///
    /// [`SettingError::Route`] for any other text.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::Route;
    ///
    /// assert_eq!(Route::parse("mapped").unwrap(), Route::Mapped);
    /// assert_eq!(Route::parse("nic:1,3").unwrap(), Route::NicTo([1, 3].into()));
    /// ```
    pub fn parse(text: &str) -> Result<Self> {
        let invalid = || SettingError::Route {
            variable: Self::VARIABLE,
            text: text.to_owned(),
        };
        match text {
            "auto" => Ok(Route::Auto),
            "mapped" => Ok(Route::Mapped),
            "nic" => Ok(Route::Nic),
            _ => {
                let ranks = text.strip_prefix("nic:").ok_or_else(invalid)?;
                let ranks = ranks.split(',').map(|rank| rank.trim().parse());
                let ranks = ranks.collect::<Result<Vec<usize>, _>>();
                Ok(Route::NicTo(ranks.map_err(|_| invalid())?.into()))
            }
        }
    }

    pub(crate) fn from_env() -> Result<Self> {
        variable(Self::VARIABLE).map_or(Ok(Route::Auto), |text| Self::parse(&text))
    }

    /// Whether this rank needs a NIC, in a job on one node or on several.
    pub(crate) fn needs_nic(&self, several_nodes: bool) -> bool {
        match self {
            Route::Auto => several_nodes,
            Route::Mapped => false,
            Route::Nic | Route::NicTo(_) => true,
        }
    }

    /// Whether a peer is reached by the NIC. `near` says whether it could be mapped.
    pub(crate) fn by_nic(&self, peer: usize, near: bool) -> bool {
        match self {
            Route::Auto => !near,
            Route::Mapped => false,
            Route::Nic => true,
            Route::NicTo(ranks) => !near || ranks.contains(&peer),
        }
    }
}

/// Where the NIC of a world comes from.
#[derive(Clone, Default)]
pub(crate) enum NicSource {
    /// The world has no NIC.
    #[default]
    None,
    /// The program has opened it.
    Opened(Arc<dyn Nic>),
    /// It is opened if the ranks of the job need one.
    WhenNeeded(Arc<Opener>),
}

/// A function that opens a NIC.
type Opener = dyn Fn() -> Result<Arc<dyn Nic>, NicError> + Send + Sync;

impl std::fmt::Debug for NicSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            NicSource::None => "none",
            NicSource::Opened(nic) => nic.name(),
            NicSource::WhenNeeded(_) => "when needed",
        })
    }
}

impl NicSource {
    /// The NIC, if there is one. `needed` says whether the job needs it.
    pub(crate) fn open(self, needed: bool) -> Result<Option<Arc<dyn Nic>>, NicError> {
        match self {
            NicSource::Opened(nic) => Ok(Some(nic)),
            NicSource::WhenNeeded(opener) if needed => opener().map(Some),
            NicSource::None | NicSource::WhenNeeded(_) => Ok(None),
        }
    }
}

/// Who gets the events of a rank.
#[derive(Clone, Default)]
pub(crate) struct Observers(pub(crate) Vec<Arc<dyn Observer>>);

impl std::fmt::Debug for Observers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0.len())
    }
}

impl Observers {
    /// Adds an observer that writes to a folder, if a variable names one.
    fn add<O: Observer>(
        &mut self,
        folder: &Variable,
        make: impl FnOnce(String) -> std::io::Result<O>,
    ) -> Result<()> {
        let name = folder.name;
        if let Some(folder) = variable(name) {
            let made = make(folder.clone()).map_err(|error| SettingError::Folder {
                variable: name,
                folder,
                error,
            })?;
            self.0.push(Arc::new(made));
        }
        Ok(())
    }
}

/// Options for making a world.
///
/// # Examples
///
/// ```
/// use tidegate::host::prelude::*;
/// use tidegate::{Route, WorldOptions};
///
/// # fn main() -> Result<()> {
/// let world: World = World::init_with(WorldOptions::new().route(Route::Mapped))?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct WorldOptions {
    pub(crate) nic: NicSource,
    pub(crate) route: Option<Route>,
    pub(crate) staged: bool,
    pub(crate) chunks: Option<Chunks>,
    /// How many streams wait at the same time.
    pub(crate) waiting_streams: Option<usize>,
    /// Whether the environment names no job.
    pub(crate) started_alone: bool,
    pub(crate) observers: Observers,
    /// Whether the environment was read.
    completed: bool,
}

impl WorldOptions {
    /// Options that set nothing. `World::init`, [`World::join`](crate::World::join) and
    /// [`World::join_with`](crate::World::join_with) then take the route, the chunks and the observers from the
    /// environment. Otherwise the route is [`Route::Auto`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use tidegate::WorldOptions;
    ///
    /// # fn main() -> Result<()> {
    /// let world: World = World::init_with(WorldOptions::new())?; // as `World::init()`
    /// # Ok(()) }
    /// ```
    pub fn new() -> Self {
        WorldOptions::default()
    }

    /// Reads from the environment what the program has not set. A second call has no effect: each observer gets an event
    /// once.
    pub(crate) fn complete_from_env(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.completed, true) {
            return Ok(());
        }
        if self.route.is_none() {
            self.route = Some(Route::from_env()?);
        }
        if self.chunks.is_none() {
            self.chunks = Chunks::from_env()?;
        }
        self.observers.add(&variables::TRACE, Recorder::new)?;
        #[cfg(feature = "prometheus")]
        self.observers
            .add(&variables::METRICS, Counters::written_to)?;
        #[cfg(feature = "profiler")]
        if let Some(profiler) = Profiler::from_env()? {
            self.observers.0.push(profiler);
        }
        for (variable, feature, here) in [
            (
                &variables::METRICS,
                "prometheus",
                cfg!(feature = "prometheus"),
            ),
            (&variables::PROFILER, "profiler", cfg!(feature = "profiler")),
        ] {
            if !here && std::env::var_os(variable.name).is_some() {
                let name = variable.name;
                let text = format!(
                    "{name} has no effect: the program was built without the feature `{feature}` of tidegate"
                );
                tidegate_hal::say!(text, std::io::stderr());
            }
        }
        Ok(())
    }

    /// Adds an observer: it gets every event of the rank. See [`observe`](crate::observe), with an example.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observers.0.push(observer);
        self
    }

    /// Sets the NIC. One endpoint serves one world.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::fabric::{Fabric, Options};
    /// use tidegate::host::prelude::*;
    /// use tidegate::WorldOptions;
    ///
    /// fn join() -> Result<World> {
    ///     let nic = Fabric::from_env(Options::default()).map_err(Error::other)?;
    ///     World::init_with(WorldOptions::new().nic(nic))
    /// }
    /// ```
    #[must_use]
    pub fn nic(mut self, nic: impl Nic) -> Self {
        self.nic = NicSource::Opened(Arc::new(nic));
        self
    }

    /// Sets a function that opens a NIC if the job needs one: if its ranks are on several nodes, or if the route of
    /// this rank asks for it. If the options have a NIC or such a function already, this has no effect. If the function
    /// fails, joining the job fails on all ranks with [`MeetError::NoNic`](crate::error::MeetError::NoNic).
    ///
    /// `World::init` of the crate `tidegate` opens the libfabric endpoint that the environment describes.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use tidegate::fabric::{Fabric, Options};
    /// use tidegate::error::NicError;
    /// use tidegate::WorldOptions;
    ///
    /// # fn main() -> Result<()> {
    /// let options = WorldOptions::new().nic_when_needed(|| {
    ///     let system = |error| NicError::System { what: "opening libfabric", detail: format!("{error}") };
    ///     Fabric::from_env(Options::default().budget(64)).map_err(system)
    /// });
    /// let world: World = World::init_with(options)?; // alone, it needs none
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn nic_when_needed<N: Nic>(
        mut self,
        open: impl Fn() -> Result<N, NicError> + Send + Sync + 'static,
    ) -> Self {
        if matches!(self.nic, NicSource::None) {
            let open = move || open().map(|nic| Arc::new(nic) as Arc<dyn Nic>);
            self.nic = NicSource::WhenNeeded(Arc::new(open));
        }
        self
    }

    /// As [`WorldOptions::nic_when_needed`], with an opener that always fails.
    #[doc(hidden)]
    #[must_use]
    pub fn no_nic(mut self, why: impl Fn() -> NicError + Send + Sync + 'static) -> Self {
        if matches!(self.nic, NicSource::None) {
            self.nic = NicSource::WhenNeeded(Arc::new(move || Err(why())));
        }
        self
    }

    /// Makes data that goes through the NIC pass through staging memory. (That always happens if NICs cannot access the
    /// device's memory, which is so for GPUs at present.) The stream itself copies the elements of a put there, so the
    /// source is free again as soon as the stream has passed the epoch. Large puts are faster without it. All ranks
    /// must choose the same.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// use tidegate::WorldOptions;
    ///
    /// # fn main() -> Result<()> {
    /// let world: World = World::init_with(WorldOptions::new().staged())?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn staged(mut self) -> Self {
        self.staged = true;
        self
    }

    /// Sets how staged puts are cut, whatever the environment says. The default is what suits the device.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::{Chunks, WorldOptions};
    ///
    /// let options = WorldOptions::new().staged().chunks(Chunks::NEVER);
    /// ```
    #[must_use]
    pub fn chunks(mut self, chunks: Chunks) -> Self {
        self.chunks = Some(chunks);
        self
    }

    /// Sets how many streams of this rank have epochs in progress at the same time. A GPU divides its room for waits
    /// among that many streams. The default is 2, or 12 if ranks are threads of one process. One more stream is refused
    /// ([`DeviceError::Exhausted`](tidegate_hal::device::DeviceError)), and with more streams each has less room. If
    /// `TIDEGATE_GPU_WAITING_STREAMS` is set, it has precedence. The host device ignores this.
    ///
    /// ```
    /// use tidegate::cuda::prelude::*;
    ///
    /// /// For four solvers, each with a stream of its own.
    /// fn join() -> Result<World> {
    ///     World::init_with(WorldOptions::new().waiting_streams(4))
    /// }
    /// ```
    #[must_use]
    pub fn waiting_streams(mut self, streams: usize) -> Self {
        self.waiting_streams = Some(streams);
        self
    }

    /// Sets the route, whatever the environment says.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::{Route, WorldOptions};
    ///
    /// let options = WorldOptions::new().route(Route::Auto); // also where TIDEGATE_ROUTE says `nic`
    /// ```
    #[must_use]
    pub fn route(mut self, route: Route) -> Self {
        self.route = Some(route);
        self
    }
}

/// What a call with NIC operations does if the NIC does not have a trigger slot for each of them.
///
/// All windows of a rank share its slots. A window whose peers are mapped needs none. If an epoch needs more slots than
/// there are, it has room when all slots are free.
///
/// # Examples
///
/// ```
/// use tidegate::host::prelude::*;
/// use tidegate::Throttle;
///
/// let window = SlotWindow::<f64>::new("halo").throttle(Throttle::Static);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Throttle {
    /// The call fails at once, with [`NicError::NoRoom`]. A `try_` call returns the token; the plain call has lost it.
    /// The program makes room before the next call, by [`Stream::synchronize`](crate::Stream::synchronize) and
    /// [`World::nic_room`](crate::World::nic_room).
    Application,
    /// The call waits on the host until all earlier operations of the window are complete. It stops waiting if none of
    /// them completes within 20 ms: they may wait for work that this thread has still to enqueue.
    Static,
    /// The call goes on. Its operations queue up, and the NIC reuses each slot as soon as its operation is complete.
    #[default]
    Adaptive,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_function_that_opens_a_nic_counts() {
        let first = || NicError::BadKey("the first".into());
        let second = || NicError::BadKey("the second".into());
        let options = WorldOptions::new().no_nic(first).no_nic(second);
        let failed = options.nic.open(true).err();
        assert_eq!(failed.unwrap().to_string(), first().to_string());
    }

    #[test]
    fn routes_are_read() {
        let read = |text| Route::parse(text).unwrap();
        assert_eq!(
            [read("auto"), read("mapped"), read("nic")],
            [Route::Auto, Route::Mapped, Route::Nic]
        );
        let some = read("nic:1, 3");
        assert_eq!(some, Route::NicTo([1, 3].into()));
        assert!(some.by_nic(3, true) && !some.by_nic(2, true) && some.by_nic(2, false));
        for text in ["", "nic:", "nic:x", "NIC"] {
            let error = Route::parse(text).unwrap_err().to_string();
            assert!(error.contains("TIDEGATE_ROUTE"), "{error}");
        }
    }
}
