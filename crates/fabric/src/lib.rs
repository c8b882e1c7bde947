//! NICs over a network: an agent carries out NIC programs that streams fire. In this crate, a *program* is always a NIC
//! program.
//!
//! # Model
//!
//! A [`Fabric`] is one rank's endpoint, generic over the [`wire`] that it drives. Any network that can write, read and
//! bring notices is enough for the *software engine*. The engine gives it what [`tidegate_hal::nic`] asks of a NIC:
//! armed programs, a doorbell that fires them, and data before signal.
//!
//! If the wire's hardware can fire programs ([`wire::chain`]), the *triggered engine* passes them on to it when they
//! are armed, and only watches. The two engines share everything else: the lists of armed programs, notices, the
//! threads, giving up. The choice is made when the wire is opened ([`wire::libfabric::EngineChoice`]).
//!
//! Signals are *notices* to the target's agent, and not writes to the target's words. The agent adds to the word and
//! rings the bell. So both are atomic with what the target does to them, and sleeping streams wake.
//!
//! # Trust
//!
//! The network must be trusted, and so must every process that reaches it. The job's secret protects the control plane
//! only: libfabric's endpoints neither authenticate senders nor encrypt what is sent. A stranger on that network can
//!
//! - read and write all registered memory (the data and the words of windows), if it knows or guesses the keys;
//! - send any notice. Notices add to a window's words, poison them, or ring bells. So waits may end early, with
//!   incomplete data, or with errors;
//! - keep an endpoint busy, or end its connections, so that transfers fail.
//!
//! It cannot make this crate panic, or touch memory that is not registered. Notices can name only [words and
//! bells](tidegate_hal::nic::Signalled) that core has declared; all other notices are dropped and counted. The memory
//! for notices is bounded by the number of words. (This crate cannot answer for how the provider reads the network.) A
//! notice does not say who sent it, so each peer can add to all words of a window, and not only to its own. Keys and
//! addresses of peers come over the control plane, and are checked all the same.
//!
//! # Failure
//!
//! Failures are as the contract says. Memory of devices is refused for now: a wire reads and writes with the processor.

// The name that other crates use, for tests that include another crate's wire.
#[cfg(test)]
extern crate self as tidegate_fabric;

mod base;
mod engine;
mod mail;
mod notice;
mod options;
mod regions;
mod remote;
mod strays;
pub mod wire;

pub use options::Options;
/// The variables that the environment should have before libfabric starts; see [`tidegate_ffi::fabric::ENVIRONMENT`].
pub use tidegate_ffi::fabric::ENVIRONMENT;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tidegate_hal::device::Helper;
use tidegate_hal::nic::{
    Atomics, Connection, Keep, Key, Memory, News, Nic, NicError, NicQueue, QueueConfig,
    Registration, RemoteMemory, Signalled,
};
use tidegate_hal::process::Process;
use tidegate_hal::slots::TriggerSlots;

use base::{NAME, lock};
use engine::agent::{Agent, Watched};
use engine::chained::Chained;
use engine::handle::Handle;
use engine::queue::Queue;
use engine::silence::Silence;
use engine::state::Engine;
use mail::{Mail, bytes_of};
use remote::{RemoteMail, RemoteRegion, Said, SaidMail};
use wire::Wire;
use wire::chain::Signals;
use wire::libfabric::{Choice, FabricWire, OpenError};

/// How long a leaving rank tries to tell its peers of a failure.
const TOLD: Duration = Duration::from_millis(200);

/// One rank's endpoint.
///
/// # Examples
///
/// ```
/// # mod tidegate { pub use tidegate_fabric as fabric; }
/// use tidegate::fabric::{Fabric, Options};
///
/// match Fabric::from_env(Options::default()) {
///     Ok(nic) => println!("{} trigger slots", nic.slots().budget()), // `WorldOptions::nic(nic)` takes it
///     Err(error) => println!("{error}"),
/// }
/// ```
pub struct Fabric<W: Wire> {
    process: Process,
    options: Options,
    /// Whether peers' hardware adds to words of this rank. (All ranks signal in the same way.)
    adds: bool,
    /// Whether hardware fires programs by itself. It makes no updates.
    fires: bool,
    agent: Arc<Agent<W>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl<W: Wire> Fabric<W> {
    /// Makes an endpoint over a wire. Its threads start when it is connected.
    ///
    /// # Examples
    ///
    /// ```
    /// # mod tidegate { pub use tidegate_fabric as fabric; }
    /// use tidegate::fabric::wire::libfabric::{Choice, FabricWire, OpenError};
    /// use tidegate::fabric::{Fabric, Options};
    ///
    /// fn open() -> Result<Fabric<FabricWire>, OpenError> {
    ///     let wire = FabricWire::open(&Choice::at("127.0.0.1").provider("tcp"))?;
    ///     Ok(Fabric::over(wire, Options::default()))
    /// }
    /// ```
    pub fn over(wire: W, options: Options) -> Self {
        Fabric {
            process: Process::this(),
            adds: wire.signals() == Signals::Add,
            fires: wire.fires(),
            agent: Arc::new(Agent::new(wire, options.budget, options.silence)),
            options,
            threads: Mutex::default(),
        }
    }

    /// Its trigger slots, for inspection, or to reduce their number between two parts of a job (in measurements).
    pub fn slots(&self) -> Arc<TriggerSlots> {
        self.agent.slots.clone()
    }

    /// Registers the mail beside a registration whose words are `step` bytes apart. Letters come to the first endpoint.
    fn register_mail(&self, mail: Arc<Mail>, step: usize) -> Result<(SaidMail, Keep), NicError> {
        let numbered = self.agent.regions.add_mail(&mail)?;
        let (base, bytes) = (mail.memory.at(0), mail.bytes());
        let (wire, guard) = self.agent.with_first_ear(|wire| {
            // SAFETY: the mail is kept. Peers write to it by the protocol of `mail`.
            unsafe { wire.register(base, bytes, mail.clone()) }
        })?;
        let said = SaidMail {
            number: numbered.number,
            lines: mail.lines(),
            step,
            wire,
        };
        Ok((said, Arc::new((guard, numbered))))
    }

    fn start(
        &self,
        name: &str,
        run: impl FnOnce(&Agent<W>) + Send + 'static,
    ) -> Result<(), NicError> {
        let agent = self.agent.clone();
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || {
                let _watched = Watched::new(&agent);
                run(&agent);
            })
            .map_err(|e| NicError::System {
                what: "starting the agent",
                detail: e.to_string(),
            })?;
        lock(&self.threads).push(thread);
        Ok(())
    }
}

impl Fabric<FabricWire> {
    /// Opens an endpoint of libfabric with the settings of the environment ([`Choice::from_env`]): `TIDEGATE_ADDRESS`,
    /// `TIDEGATE_PROVIDER`, `TIDEGATE_ENGINE`. `TIDEGATE_RAILS` overrides the options. If `TIDEGATE_SILENCE_MS` is
    /// longer than the options' silence, it counts. Host memory only.
    ///
    /// # Errors
    ///
    /// [`OpenError`]: the library or the provider is missing, or the options ask for triggers that it does not have.
    ///
    /// # Examples
    ///
    /// ```
    /// # mod tidegate { pub use tidegate_fabric as fabric; }
    /// use tidegate::fabric::wire::libfabric::OpenError;
    /// use tidegate::fabric::{Fabric, Options};
    ///
    /// match Fabric::from_env(Options::default().budget(64)) {
    ///     Err(OpenError::Load(error)) => println!("there is no libfabric here: {error}"),
    ///     Err(error) => println!("{error}"),
    ///     Ok(_nic) => {}
    /// }
    /// ```
    pub fn from_env(options: Options) -> Result<Self, OpenError> {
        let choice = Choice::from_env()?;
        let options = options.rails_from_env()?.silence_from_env();
        Ok(Fabric::over(FabricWire::open(&choice)?, options))
    }
}

// SAFETY: keys lead to the memory that was registered, by the wire's promise; programs run as `NicQueue` says.
unsafe impl<W: Wire> Nic for Fabric<W> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn atomics(&self) -> Atomics {
        if self.fires {
            Atomics::None
        } else {
            // The target's agent makes the updates, with its processor.
            Atomics::Coherent
        }
    }

    fn begin(&self, polled: bool) -> Result<(), NicError> {
        if polled {
            let copies = self.agent.with(|engine| engine.wire.copies());
            self.agent.grow_ears(self.options.rails_here(copies))
        } else {
            Ok(())
        }
    }

    fn address(&self) -> Vec<u8> {
        let addresses = self.agent.with_ears(|wire| wire.address());
        postcard::to_stdvec(&addresses).expect("plain data can be encoded")
    }

    unsafe fn register(&self, memory: Memory<'_>) -> Result<Registration, NicError> {
        let (base, bytes) = (memory.base.0, memory.bytes);
        let (regions, keep) = (&self.agent.regions, memory.keep.clone());
        let numbered = regions.add(base, bytes, memory.signalled, keep)?;
        // SAFETY: the caller's promise.
        let register = |wire: &mut W| unsafe { wire.register(base, bytes, memory.keep.clone()) };
        let registered = self.agent.with_ears(register).into_iter();
        let (wires, guards): (_, Vec<Keep>) = registered.collect::<Result<_, _>>()?;
        let mail = match memory.signalled {
            Signalled::Words { count, step } if memory.updated && !self.fires && count > 0 => {
                // SAFETY: the caller's promise; `add` has found that the words are within the memory.
                let mail = unsafe { Mail::new(base, bytes, (count, step), memory.keep.clone()) }?;
                Some(self.register_mail(Arc::new(mail), step)?)
            }
            _ => None,
        };
        let (mail, of_mail) = mail.unzip();
        let said = Said {
            number: numbered.number,
            wires,
            mail,
        };
        let guard: Keep = Arc::new((guards, of_mail, numbered));
        Ok(Registration {
            key: Key {
                bytes: postcard::to_stdvec(&said).expect("plain data can be encoded"),
                handle: None,
            },
            guard,
        })
    }

    unsafe fn connect(&self, connection: Connection) -> Result<(), NicError> {
        let (helped, polled) = (connection.helped, connection.polled);
        let address = |(rank, said): (usize, &Vec<u8>)| match said.as_slice() {
            [] => Ok(Vec::new()),
            said => postcard::from_bytes(said)
                .map_err(|e| NicError::BadKey(format!("the address of rank {rank}: {e}"))),
        };
        let addresses = connection.addresses.iter().enumerate().map(address);
        let addresses: Vec<Vec<Vec<u8>>> = addresses.collect::<Result<_, _>>()?;
        let ranks_on_node = connection.ranks_on_node;
        if self.agent.connection.set(connection).is_err() {
            return Err(NicError::System {
                what: "connecting an endpoint",
                detail: "it is connected already".into(),
            });
        }
        self.agent.slots.divide(ranks_on_node);
        self.agent.lay(&addresses)?;
        if !helped && !polled {
            self.start("tidegate-ringer", Agent::ring)?;
        }
        for ear in 0..self.agent.ears().len() {
            self.start("tidegate-ear", move |agent| agent.hear_peers(ear))?;
        }
        for rail in self.agent.rails() {
            let rail = rail.clone();
            self.start("tidegate-rail", move |agent| rail.serve(&agent.stop))?;
        }
        self.start("tidegate-listener", Agent::listen)
    }

    fn import(&self, peer: usize, key: Key, bytes: usize) -> Result<RemoteMemory, NicError> {
        let said: Said = postcard::from_bytes(&key.bytes)
            .map_err(|e| NicError::BadKey(format!("what rank {peer} said: {e}")))?;
        let Some((first, others)) = said.wires.split_first() else {
            return Err(NicError::BadKey(format!("what rank {peer} said: no key")));
        };
        let remote = self
            .agent
            .with(|engine| engine.wire.import(peer, first, bytes))?;
        let rails = self.agent.rails().iter().zip(others);
        let rails = rails.map(|(rail, key)| rail.with(|wire| wire.import(peer, key, bytes)));
        let mail = |said: SaidMail| {
            let bytes = bytes_of(said.lines).ok_or_else(|| {
                NicError::BadKey(format!("what rank {peer} said: {} lines", said.lines))
            })?;
            let remote = self
                .agent
                .with(|engine| engine.wire.import(peer, &said.wire, bytes))?;
            let region = RemoteRegion {
                number: said.number,
                remote,
                rails: Vec::new(),
                mail: None,
            };
            Ok::<_, NicError>(RemoteMail::new(region, said.lines, said.step))
        };
        Ok(RemoteMemory(Arc::new(RemoteRegion::<W> {
            number: said.number,
            remote,
            rails: rails.collect::<Result<_, _>>()?,
            mail: said.mail.map(mail).transpose()?,
        })))
    }

    unsafe fn queue(
        &self,
        peer: usize,
        config: QueueConfig,
    ) -> Result<Arc<dyn NicQueue>, NicError> {
        if self.agent.connection.get().is_none() {
            return Err(NicError::System {
                what: "using an endpoint",
                detail: "it is not connected".into(),
            });
        }
        let budget = self.agent.slots.budget();
        let chain = |engine: &mut Engine<W>| engine.wire.chain(peer, budget);
        let chain = self.agent.with(chain)?;
        let chained = chain.map(|chain| {
            let chained = Chained::new(chain, self.options.silence);
            Arc::new(Mutex::new(chained))
        });
        let departure = self.agent.departure(peer);
        let queue = Arc::new(Queue::new(peer, departure, config, &self.agent.slots));
        self.agent.add(queue.clone(), chained.clone());
        Ok(Arc::new(Handle {
            process: self.process,
            queue,
            chained,
            agent: self.agent.clone(),
        }))
    }

    fn adds(&self) -> bool {
        self.adds
    }

    fn hear(&self, peer: usize, news: News) {
        self.agent.hear(peer, news);
    }

    fn budget(&self) -> usize {
        self.agent.slots.budget()
    }

    fn armed(&self) -> usize {
        self.agent.slots.armed()
    }

    fn await_armed(&self, most: usize, limit: Duration) -> usize {
        self.agent.slots.wait(most, limit)
    }

    fn keep(&self, what: Keep) {
        lock(&self.agent.kept).push(what);
    }

    fn helper(&self) -> Option<Arc<dyn Helper>> {
        Some(self.agent.clone())
    }

    fn quiesce(&self, limit: Duration) -> bool {
        let start = Instant::now();
        let (mut before, mut silence) = (self.agent.heard(), Silence::new());
        loop {
            // A peer that cannot be told of a failure may be gone. So this tries for a shorter time than for messages.
            let elapsed = start.elapsed();
            if self.agent.is_idle(elapsed < TOLD) {
                return true;
            }
            let heard = self.agent.heard();
            if heard != before {
                (before, silence) = (heard, Silence::new());
            }
            if elapsed >= limit || silence.look(Instant::now(), self.agent.patience()) {
                return false;
            }
            // No single event says that nothing is left: the last may be an answer, news of a peer, or a poison by
            // core. So this polls. It is at the end of a job, and not on the data path.
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

impl<W: Wire> Drop for Fabric<W> {
    fn drop(&mut self) {
        if !self.process.is_this() {
            // The threads and the connections belong to the parent.
            std::mem::forget((
                std::mem::take(&mut *lock(&self.threads)),
                self.agent.clone(),
            ));
            return;
        }
        self.agent.stop.store(true, Ordering::SeqCst);
        self.agent.wake();
        let me = std::thread::current().id();
        // A thread does not wait for itself: one that reports the wire's failure may be the last to hold the world, and
        // this with it.
        let others = |thread: &JoinHandle<()>| thread.thread().id() != me;
        let threads: Vec<_> = lock(&self.threads).drain(..).collect();
        for thread in threads.into_iter().filter(others) {
            // A thread that has panicked has reported it (see `Watched`).
            let _ = thread.join();
        }
    }
}
