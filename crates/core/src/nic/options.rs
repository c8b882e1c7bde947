//! Which way to which peer.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_hal::control::Control;
use tidegate_hal::device::Device;
use tidegate_hal::memory::{Block as _, Ptr};
use tidegate_hal::nic::{Keep, Nic, RemoteMemory};
use tidegate_hal::tell;

use super::{Chunks, Parting};
use crate::error::{Error, Result};

/// Which peers are mapped, and which are reached by the NIC. Each rank may choose for itself; but where memory is
/// [staged](WorldOptions::staged), two ranks reach each other by their NICs if either wants that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Route {
    /// Those of the same node are mapped, others are reached by the NIC.
    #[default]
    Auto,
    /// All are mapped; windows that would need a NIC are refused.
    Mapped,
    /// All are reached by the NIC, this rank itself too. For tests: it is no faster.
    Nic,
    /// These are reached by the NIC, and the others as in [`Route::Auto`].
    NicTo(Arc<[usize]>),
}

impl Route {
    /// The name of the environment variable that [`World::init`](crate::World::init) reads.
    pub const VARIABLE: &'static str = "TIDEGATE_ROUTE";

    /// Reads `auto`, `mapped`, `nic`, or `nic:` and ranks with commas between (`nic:1,3`).
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for anything else.
    pub fn parse(text: &str) -> Result<Self> {
        let invalid = || {
            let variable = Self::VARIABLE;
            Error::Invalid(format!(
                "`{text}` is no route: {variable} is auto, mapped, nic, or nic:RANK,RANK,…"
            ))
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
        match std::env::var(Self::VARIABLE) {
            Ok(text) => Self::parse(&text),
            Err(std::env::VarError::NotPresent) => Ok(Route::Auto),
            Err(std::env::VarError::NotUnicode(_)) => Self::parse("\u{fffd}"),
        }
    }

    /// Whether a peer is reached by the NIC, where `near` says whether it could be mapped.
    pub(crate) fn by_nic(&self, peer: usize, near: bool) -> bool {
        match self {
            Route::Auto => !near,
            Route::Mapped => false,
            Route::Nic => true,
            Route::NicTo(ranks) => !near || ranks.contains(&peer),
        }
    }
}

/// What a world is made with, beside a control plane and a device.
#[derive(Clone, Default)]
pub struct WorldOptions {
    pub(crate) nic: Option<Arc<dyn Nic>>,
    pub(crate) route: Option<Route>,
    pub(crate) staged: bool,
    pub(crate) chunks: Option<Chunks>,
    /// The environment has named no job.
    pub(crate) started_alone: bool,
}

impl WorldOptions {
    /// No NIC, and the route that the environment says (with [`World::init_with`](crate::World::init_with); elsewhere
    /// [`Route::Auto`]).
    pub fn new() -> Self {
        WorldOptions::default()
    }

    /// Leaves to the environment what the program leaves open.
    pub(crate) fn complete_from_env(&mut self) -> Result<()> {
        if self.route.is_none() {
            self.route = Some(Route::from_env()?);
        }
        if self.chunks.is_none() {
            self.chunks = Chunks::from_env()?;
        }
        Ok(())
    }

    /// Brings a NIC; one endpoint serves one world.
    #[must_use]
    pub fn nic(mut self, nic: impl Nic) -> Self {
        self.nic = Some(Arc::new(nic));
        self
    }

    /// Stages what goes by the NIC in memory of its own, as is done anyway where NICs cannot work with the device's
    /// memory (GPUs, for now). A stream copies a put's elements there itself, so the source is free again as soon as
    /// the stream has passed the epoch; large ones are faster without. The same on all ranks.
    #[must_use]
    pub fn staged(mut self) -> Self {
        self.staged = true;
        self
    }

    /// Says how staged puts are cut, whatever the environment says: at first as is best for the device.
    #[must_use]
    pub fn chunks(mut self, chunks: Chunks) -> Self {
        self.chunks = Some(chunks);
        self
    }

    /// Chooses the route, whatever the environment says.
    #[must_use]
    pub fn route(mut self, route: Route) -> Self {
        self.route = Some(route);
        self
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

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
