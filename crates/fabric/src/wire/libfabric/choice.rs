//! The choice of a provider, an engine, and an address.

use tidegate_ffi::fabric::{
    Caps, Deferred, Domain, Fabric, Hints, Info, Library, Location, MrMode,
};

use tidegate_hal::{tell, variables};

use super::super::chain::Signals;
use super::error::OpenError;
use super::probe;
use crate::base::RANKS_ON_NODE;

/// Which engine fires programs.
///
/// # Examples
///
/// ```
/// # mod tidegate { pub use tidegate_fabric as fabric; }
/// use tidegate::fabric::wire::libfabric::EngineChoice;
///
/// assert_eq!("triggered".parse(), Ok(EngineChoice::Triggered));
/// assert_eq!(EngineChoice::default().name(), "auto");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum EngineChoice {
    /// The NIC if it has the hardware (`cxi`), otherwise an agent. A provider that only emulates triggers (`sockets`)
    /// is slower than the agent.
    #[default]
    Auto,
    /// An agent, over any provider.
    Software,
    /// The NIC: operations are queued beforehand, and a counter fires them. If the provider cannot do that,
    /// [`OpenError::NotTriggered`].
    Triggered,
}

impl EngineChoice {
    /// The variable that [`Choice::from_env`] reads.
    pub const VARIABLE: &'static str = variables::ENGINE.name;

    /// The value of that variable for this engine.
    pub fn name(self) -> &'static str {
        match self {
            EngineChoice::Auto => "auto",
            EngineChoice::Software => "software",
            EngineChoice::Triggered => "triggered",
        }
    }
}

impl std::str::FromStr for EngineChoice {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        [Self::Auto, Self::Software, Self::Triggered]
            .into_iter()
            .find(|engine| engine.name() == name)
            .ok_or("it must be auto, software or triggered")
    }
}

/// The choice of a provider, an engine and an address.
///
/// # Examples
///
/// ```
/// # mod tidegate { pub use tidegate_fabric as fabric; }
/// use tidegate::fabric::wire::libfabric::{Choice, EngineChoice};
///
/// let choice = Choice::at("10.0.0.1").provider("verbs;ofi_rxm").engine(EngineChoice::Software);
/// ```
#[derive(Clone, Debug)]
pub struct Choice {
    pub(super) provider: Option<String>,
    /// The variable or option that named the provider.
    by: Option<&'static str>,
    pub(super) address: String,
    pub(super) engine: EngineChoice,
    pub(super) signals: Option<Signals>,
    pub(super) sharers: usize,
    pub(super) far: Option<u64>,
}

impl Choice {
    /// The variable that names a provider, for [`from_env`](Self::from_env).
    pub const PROVIDER: &'static str = variables::PROVIDER.name;

    /// Chooses the best provider that can be bound to this address of the host (for instance `127.0.0.1`).
    ///
    /// # Examples
    ///
    /// ```
    /// # mod tidegate { pub use tidegate_fabric as fabric; }
    /// use tidegate::fabric::wire::libfabric::Choice;
    ///
    /// let choice = Choice::at("127.0.0.1");
    /// ```
    pub fn at(address: impl Into<String>) -> Self {
        Choice {
            provider: None,
            by: None,
            address: address.into(),
            engine: EngineChoice::Auto,
            signals: None,
            sharers: 1,
            far: None,
        }
    }

    /// Takes the choice from the environment:
    ///
    /// - the address from `TIDEGATE_ADDRESS` (which the launcher sets; by default the loopback address);
    /// - the provider from `TIDEGATE_PROVIDER` (by default the first that has the needed abilities);
    /// - the engine from `TIDEGATE_ENGINE` (`auto`, `software`, `triggered`; by default `auto`);
    /// - the number of ranks that share the NIC's triggers from `LOCAL_WORLD_SIZE` (which the launcher sets), or from
    ///   the variables of Open MPI, MPICH and Slurm for it; by default 1.
    ///
    /// # Errors
    ///
    /// [`OpenError::BadVariable`].
    ///
    /// # Examples
    ///
    /// ```
    /// # mod tidegate { pub use tidegate_fabric as fabric; }
    /// use tidegate::fabric::wire::libfabric::{Choice, OpenError};
    ///
    /// match Choice::from_env() {
    ///     Ok(choice) => println!("{choice:?}"),
    ///     Err(OpenError::BadVariable { variable, reason, .. }) => println!("{variable}: {reason}"),
    ///     Err(error) => println!("{error}"),
    /// }
    /// ```
    pub fn from_env() -> Result<Self, OpenError> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    fn from_variables(said: impl Fn(&str) -> Option<String>) -> Result<Self, OpenError> {
        let said = |name: &'static str| said(name).filter(|value| !value.is_empty());
        let bad = |variable, value, reason| OpenError::BadVariable {
            variable,
            value,
            reason,
        };
        let mut choice = Choice::at(said(variables::ADDRESS.name).unwrap_or("127.0.0.1".into()));
        if let Some(name) = said(Self::PROVIDER) {
            choice = choice.provider_by(name, Self::PROVIDER);
        }
        if let Some(value) = said(EngineChoice::VARIABLE) {
            let parsed = value.parse();
            choice.engine = parsed.map_err(|why| bad(EngineChoice::VARIABLE, value, why))?;
        }
        let mut sharers = RANKS_ON_NODE.into_iter().chain([TASKS]);
        if let Some((name, value)) = sharers.find_map(|name| Some((name, said(name)?))) {
            let most = match name {
                TASKS => most_tasks(&value),
                _ => value.parse().ok(),
            };
            choice.sharers = match most {
                Some(number) if number > 0 => number,
                _ => return Err(bad(name, value, "it must be a number from 1")),
            };
        }
        Ok(choice)
    }

    /// Binds the endpoint to this address of the host.
    ///
    /// # Examples
    ///
    /// ```
    /// # mod tidegate { pub use tidegate_fabric as fabric; }
    /// use tidegate::fabric::wire::libfabric::Choice;
    ///
    /// let choice = Choice::from_env()?.address("10.0.0.1"); // whatever TIDEGATE_ADDRESS says
    /// # Ok::<(), tidegate::fabric::wire::libfabric::OpenError>(())
    /// ```
    #[must_use]
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.address = address.into();
        self
    }

    /// Chooses this provider (`tcp;ofi_rxm`, `sockets`, `verbs;ofi_rxm`).
    ///
    /// # Examples
    ///
    /// ```
    /// # mod tidegate { pub use tidegate_fabric as fabric; }
    /// use tidegate::fabric::wire::libfabric::Choice;
    ///
    /// let choice = Choice::at("127.0.0.1").provider("tcp;ofi_rxm");
    /// ```
    #[must_use]
    pub fn provider(mut self, name: impl Into<String>) -> Self {
        (self.provider, self.by) = (Some(name.into()), None);
        self
    }

    /// Like [`provider`](Self::provider). Errors say which variable or option (`--provider`) named it.
    ///
    /// # Examples
    ///
    /// ```
    /// # mod tidegate { pub use tidegate_fabric as fabric; }
    /// use tidegate::fabric::wire::libfabric::Choice;
    ///
    /// // An error about the provider names the option of the command line.
    /// let choice = Choice::at("127.0.0.1").provider_by("tcp", "--provider");
    /// ```
    #[must_use]
    pub fn provider_by(mut self, name: impl Into<String>, by: &'static str) -> Self {
        (self.provider, self.by) = (Some(name.into()), Some(by));
        self
    }

    /// Chooses this engine.
    ///
    /// # Examples
    ///
    /// ```
    /// # mod tidegate { pub use tidegate_fabric as fabric; }
    /// use tidegate::fabric::wire::libfabric::{Choice, EngineChoice};
    ///
    /// let choice = Choice::at("127.0.0.1").engine(EngineChoice::Triggered);
    /// ```
    #[must_use]
    pub fn engine(mut self, engine: EngineChoice) -> Self {
        self.engine = engine;
        self
    }

    /// Sets how the triggered engine signals, instead of probing what works.
    ///
    /// # Examples
    ///
    /// ```
    /// # mod tidegate { pub use tidegate_fabric as fabric; }
    /// use tidegate::fabric::wire::chain::Signals;
    /// use tidegate::fabric::wire::libfabric::{Choice, EngineChoice};
    ///
    /// let choice = Choice::at("127.0.0.1").engine(EngineChoice::Triggered).signals(Signals::Add);
    /// ```
    #[must_use]
    pub fn signals(mut self, signals: Signals) -> Self {
        self.signals = Some(signals);
        self
    }

    /// Sets how many processes share the NIC's triggers. Each takes its part of them.
    ///
    /// # Panics
    ///
    /// If the number is 0.
    ///
    /// # Examples
    ///
    /// ```
    /// # mod tidegate { pub use tidegate_fabric as fabric; }
    /// use tidegate::fabric::wire::libfabric::Choice;
    ///
    /// let choice = Choice::at("127.0.0.1").sharers(8);
    /// ```
    #[must_use]
    pub fn sharers(mut self, processes: usize) -> Self {
        assert_ne!(processes, 0, "this process is one");
        self.sharers = processes;
        self
    }

    /// Sets how far software counters of the triggered engine may count, instead of 2^30. So tests can show in a short
    /// job what happens in a long one.
    ///
    /// # Panics
    ///
    /// If the number is 0.
    ///
    /// # Examples
    ///
    /// ```
    /// # mod tidegate { pub use tidegate_fabric as fabric; }
    /// use tidegate::fabric::wire::libfabric::Choice;
    ///
    /// let choice = Choice::at("127.0.0.1").counts(1 << 10);
    /// ```
    #[must_use]
    pub fn counts(mut self, most: u64) -> Self {
        assert_ne!(most, 0, "a counter counts something");
        self.far = Some(most);
        self
    }
}

/// The variable in which Slurm says how many ranks each node has: `2(x3),1` is `2,2,2,1`.
const TASKS: &str = "SLURM_STEP_TASKS_PER_NODE";

/// The most ranks of a node, according to that variable.
fn most_tasks(said: &str) -> Option<usize> {
    let number = |part: &str| part.split('(').next()?.parse().ok();
    let all: Option<Vec<usize>> = said.split(',').map(number).collect();
    all?.into_iter().max()
}

/// A domain of the provider, and whether its hardware fires programs.
pub(super) struct Chosen {
    pub(super) info: Info,
    pub(super) domain: std::sync::Arc<Domain>,
    pub(super) triggered: bool,
}

/// Opens the first provider that has the needed abilities. If the program leaves the engine open, a failure of the
/// NIC's hardware is no failure as long as threads can start the transfers.
pub(super) fn open_first<T>(
    library: &Library,
    choice: &Choice,
    open: impl Fn(Chosen) -> Result<T, OpenError>,
) -> Result<T, OpenError> {
    let mut failed = None;
    if choice.engine != EngineChoice::Software {
        match by_hardware(library, choice, &open) {
            Ok(Some(opened)) => return Ok(opened),
            Ok(None) => {}
            Err(error) if choice.engine == EngineChoice::Triggered => return Err(error),
            Err(error) => {
                tell(|| tracing::warn!("the NIC cannot start transfers: {error}"));
                failed = Some(error);
            }
        }
    }
    let opened = by_threads(library, choice).and_then(open);
    match failed {
        // What is wrong with the hardware says more about this machine.
        Some(failed) => opened.map_err(|error| {
            tell(|| tracing::warn!("nor can threads start transfers: {error}"));
            failed
        }),
        None => opened,
    }
}

/// Opens a domain of the provider.
fn begin(info: Info, triggered: bool) -> Result<Chosen, OpenError> {
    let domain = Domain::open(&Fabric::open(&info)?, &info)?;
    Ok(Chosen {
        info,
        domain,
        triggered,
    })
}

/// Opens the first provider whose hardware fires. `None` if there is none, and the choice does not insist on one.
fn by_hardware<T>(
    library: &Library,
    choice: &Choice,
    open: impl Fn(Chosen) -> Result<T, OpenError>,
) -> Result<Option<T>, OpenError> {
    let forced = choice.engine == EngineChoice::Triggered;
    let mut tried = Vec::new();
    for info in found(library, choice, true, true)? {
        // Triggers are worth it only in hardware, unless the choice insists.
        if !forced && info.provider() != probe::HARDWARE {
            continue;
        }
        let provider = info.provider();
        let opened = begin(info, true).and_then(|chosen| {
            let why = match chosen.domain.probe_deferred(probe::LIMIT) {
                Deferred::Works => return open(chosen),
                Deferred::Refused(error) => error.to_string(),
                Deferred::Silent => "a work was fired, and nothing happened".into(),
            };
            Err(OpenError::NotTriggered { tried: why })
        });
        // It may have other NICs.
        let why = match opened {
            Ok(opened) => return Ok(Some(opened)),
            Err(OpenError::NotTriggered { tried }) => tried,
            Err(error) => error.to_string(),
        };
        tried.push(format!("{provider}: {why}"));
    }
    if tried.is_empty() {
        return match forced {
            true => Err(refused(library, choice, FOR_TRIGGERED)),
            false => Ok(None),
        };
    }
    // A provider is tried once for each of its addresses.
    tried.dedup();
    let tried = tried.join(", ");
    Err(OpenError::NotTriggered { tried })
}

/// Finds the first provider for the software engine.
fn by_threads(library: &Library, choice: &Choice) -> Result<Chosen, OpenError> {
    let first = |manual| -> Result<Option<Info>, OpenError> {
        Ok(found(library, choice, false, manual)?.into_iter().next())
    };
    let mut info = first(true)?;
    if let Some(info) = &mut info
        && SPINS.contains(&&*info.provider())
        && let Some(other) = first(false)?
    {
        *info = other;
    }
    begin(
        info.ok_or_else(|| refused(library, choice, FOR_SOFTWARE))?,
        false,
    )
}

/// What [`found`] asks for, in words.
const FOR_SOFTWARE: &str = "reliable datagrams, writes, reads, and 8 bytes that go with a write";
const FOR_TRIGGERED: &str = "reliable datagrams, writes, reads, atomics, deferred work";

/// The error if there is no provider of that name, or none with the needed abilities.
#[cold]
fn refused(library: &Library, choice: &Choice, needs: &'static str) -> OpenError {
    // Providers that cannot be listed count as missing.
    let any = library
        .query(&Hints::new(), Location::ANY)
        .unwrap_or_default();
    let mut there = Vec::new();
    for name in any.iter().map(Info::provider) {
        if !there.contains(&name) {
            there.push(name);
        }
    }
    let (by, provider) = (choice.by, choice.provider.clone());
    match provider {
        // Some providers are listed only if they are requested by name.
        Some(provider)
            if !there.contains(&provider)
                && (library.query(&Hints::new().provider(&provider), Location::ANY)).is_err() =>
        {
            OpenError::UnknownProvider {
                provider,
                by,
                there,
            }
        }
        provider => OpenError::NoProvider {
            provider,
            by,
            address: choice.address.clone(),
            needs,
            there,
        },
    }
}

/// Providers whose `fi_cq_sread` takes the whole processor if progress is manual, because it polls until its time is
/// over (`sock_cq_sreadfrom`). So they make progress with a thread of their own.
const SPINS: [&str; 1] = ["sockets"];

/// The providers for one of the two engines. Operations that hardware fires need no thread for progress. For others,
/// threads of the provider (if progress is not `manual`) are slower than a thread that polls.
fn found(
    library: &Library,
    choice: &Choice,
    triggered: bool,
    manual: bool,
) -> Result<Vec<Info>, OpenError> {
    // Neither engine supports local buffers that must be registered.
    let modes = MrMode::VIRT_ADDR | MrMode::ALLOCATED | MrMode::PROV_KEY;
    let mut hints = if triggered {
        // Registrations may belong to the endpoint, as with cxi.
        let caps = Caps::RMA | Caps::MSG | Caps::ATOMIC;
        Hints::new().mr_mode(modes | MrMode::ENDPOINT).caps(caps)
    } else {
        // Registrations must not belong to the endpoint, because they would keep it open.
        let caps = Caps::RMA | Caps::MSG;
        Hints::new().mr_mode(modes).caps(caps)
    };
    hints = hints.manual_progress(manual);
    if let Some(provider) = &choice.provider {
        hints = hints.provider(provider);
    }
    let found = match library.query(&hints, Location::local(&choice.address)) {
        // Shared memory and some NICs have no such address.
        Err(error) if error.is_no_data() => library.query(&hints, Location::ANY),
        other => other,
    };
    let mut found = match found {
        Err(error) if error.is_no_data() => Vec::new(),
        other => other?,
    };
    found.retain(|info| {
        // `shm` is for processes of one node, and those map each other's memory anyway. Also, its endpoints in one
        // process disturb each other.
        let named = choice.provider.is_some();
        (triggered || info.cq_data_size() >= 8)
            && (named || !["shm", "udp;ofi_rxd", "net"].contains(&&*info.provider()))
    });
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_says_which() {
        let choice = |pairs: &[(&str, &str)]| {
            let pairs: Vec<_> = pairs
                .iter()
                .map(|(name, value)| (name.to_string(), value.to_string()))
                .collect();
            Choice::from_variables(move |name| {
                let pair = pairs.iter().find(|(variable, _)| variable == name);
                pair.map(|(_, value)| value.clone())
            })
        };
        let plain = choice(&[("TIDEGATE_ENGINE", ""), ("TIDEGATE_PROVIDER", "")]).unwrap();
        assert_eq!(
            (plain.engine, plain.provider),
            (EngineChoice::Auto, None),
            "empty is unset"
        );
        assert_eq!((&*plain.address, plain.sharers), ("127.0.0.1", 1));
        let said = choice(&[
            ("TIDEGATE_ENGINE", "triggered"),
            ("TIDEGATE_PROVIDER", "sockets"),
            ("TIDEGATE_ADDRESS", "10.0.0.1"),
            ("LOCAL_WORLD_SIZE", "8"),
        ])
        .unwrap();
        assert_eq!(said.engine, EngineChoice::Triggered);
        assert_eq!(said.provider.as_deref(), Some("sockets"));
        assert_eq!(said.by, Some("TIDEGATE_PROVIDER"));
        assert_eq!(said.clone().provider("tcp").by, None, "by the program");
        assert_eq!((&*said.address, said.sharers), ("10.0.0.1", 8));
        for (name, value, sharers) in [
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "8", 8),
            ("MPI_LOCALNRANKS", "3", 3),
            (TASKS, "4", 4),
            (TASKS, "2(x3),5,1", 5),
            // Ranks that share no processors may share a NIC.
            (variables::RANKS_HERE.name, "2", 1),
        ] {
            assert_eq!(choice(&[(name, value)]).unwrap().sharers, sharers, "{name}");
        }
        let both = choice(&[("LOCAL_WORLD_SIZE", "2"), (TASKS, "1")]).unwrap();
        assert_eq!(both.sharers, 2, "a launcher was started by srun");
        for bad in [
            ("TIDEGATE_ENGINE", "hardware"),
            ("LOCAL_WORLD_SIZE", "0"),
            (TASKS, "2(x3),many"),
        ] {
            let error = choice(&[bad]).unwrap_err().to_string();
            assert!(error.contains(bad.0) && error.contains(bad.1), "{error}");
        }
    }

    #[test]
    fn errors_name_the_variable_the_fault_and_the_providers() {
        let there = || vec!["tcp".to_owned(), "sockets".to_owned()];
        let unknown = |by| OpenError::UnknownProvider {
            provider: "tpc".into(),
            by,
            there: there(),
        };
        assert_eq!(
            unknown(Some(Choice::PROVIDER)).to_string(),
            "TIDEGATE_PROVIDER=tpc: libfabric has no such provider here; there are: tcp, sockets"
        );
        assert_eq!(
            unknown(None).to_string(),
            "provider `tpc`: libfabric has no such provider here; there are: tcp, sockets"
        );
        let lacking = |provider: Option<&str>, there| OpenError::NoProvider {
            provider: provider.map(Into::into),
            by: Some("--provider").filter(|_| provider.is_some()),
            address: "10.0.0.1".into(),
            needs: FOR_SOFTWARE,
            there,
        };
        assert_eq!(
            lacking(Some("tcp"), there()).to_string(),
            "--provider=tcp: nothing that this libfabric provider offers at 10.0.0.1 has what is needed: reliable \
             datagrams, writes, reads, and 8 bytes that go with a write; there are: tcp, sockets"
        );
        assert_eq!(
            lacking(None, Vec::new()).to_string(),
            "no libfabric provider at 10.0.0.1 has what is needed: reliable datagrams, writes, reads, and 8 bytes \
             that go with a write; there are none"
        );
    }
}
