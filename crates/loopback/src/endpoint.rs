//! A NIC without hardware: its wire is memory of the same node.
//!
//! # Model
//!
//! A [`Loopback`] is one rank's endpoint. An *agent*, one thread a rank, sleeps on the doorbells' bell; when a stream
//! has rung, it carries out the next armed program of that queue, with the processor, in the peer's memory, which it
//! has mapped by handle: a descriptor between processes, a reference between threads. It makes no device call, and
//! (between threads) no system call but sleeping, so that Miri can execute it.
//!
//! It proves the contract of [`tidegate_hal::nic`] and what core builds on it, on any machine; it is slower than
//! mapping the peers themselves, by two changes of thread a message, and is not meant for production. Arithmetic is
//! carried out by the *origin's* agent with the processor's atomics, which are coherent with those of the target's host
//! streams.
//!
//! For tests, firings can be made to take long ([`Options::delay`]) or be held back by hand ([`Gate`]), so that a put's
//! source is really read long after the stream has passed `complete`; and the budget of armed programs can be set
//! small.
//!
//! # Failure
//!
//! As the contract says. A peer that dies does not disturb the agent: what it has mapped stays mapped. An agent that is
//! dropped while its gate is closed ends without firing; what its programs keep alive is freed then, since nothing
//! touches it any more.

mod agent;
mod gate;
mod queue;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tidegate_hal::device::Device as _;
use tidegate_hal::nic::{
    Atomics, Connection, Key, Memory, Nic, NicError, NicQueue, QueueConfig, Registration,
    RemoteMemory,
};
use tidegate_hal::process::Process;
use tidegate_hal::slots::Slots;
use tidegate_host::Host;

use agent::Shared;
pub use gate::Gate;
use queue::{Handle, Queue};

/// What the kind of NIC is called.
const NAME: &str = "loopback";

/// How a [`Loopback`] is to behave.
#[derive(Clone, Debug)]
pub struct Options {
    budget: usize,
    kept: usize,
    delay: Duration,
    gate: Option<Gate>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            budget: 4096,
            kept: 1,
            delay: Duration::ZERO,
            gate: None,
        }
    }
}

impl Options {
    /// The NIC of this node has so many trigger slots (4096 at first), one a program: the ranks of the node divide
    /// them, and each has 1 at least.
    ///
    /// # Panics
    ///
    /// If it is 0: nothing could ever be fired.
    #[must_use]
    pub fn budget(mut self, slots: usize) -> Self {
        assert_ne!(slots, 0, "a NIC has at least one trigger slot");
        self.budget = slots;
        self
    }

    /// The mutant that keeps no slot for programs that have been rung for, so that a job can hang because its budget is
    /// small. For the tests that show what the slot is for.
    #[doc(hidden)]
    #[must_use]
    pub fn greedy(mut self) -> Self {
        self.kept = 0;
        self
    }

    /// Lets so much time pass between a ring and the first look at the data.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Holds every firing of this endpoint back while the gate is closed.
    #[must_use]
    pub fn gate(mut self, gate: &Gate) -> Self {
        self.gate = Some(gate.clone());
        self
    }
}

/// One rank's endpoint.
pub struct Loopback {
    options: Options,
    slots: Arc<Slots>,
    process: Process,
    shared: OnceLock<Arc<Shared>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Default for Loopback {
    fn default() -> Self {
        Loopback::new(Options::default())
    }
}

impl Loopback {
    /// An endpoint; its agent starts when it is connected.
    pub fn new(options: Options) -> Self {
        Loopback {
            slots: Arc::new(Slots::keeping(options.budget, options.kept)),
            options,
            process: Process::this(),
            shared: OnceLock::new(),
            thread: Mutex::new(None),
        }
    }

    fn shared(&self) -> Result<&Arc<Shared>, NicError> {
        self.shared.get().ok_or(NicError::System {
            what: "using an endpoint",
            detail: "it is not connected".into(),
        })
    }
}

// SAFETY: keys are handles of the memory that was registered, mapped with the length announced; programs run as `NicQueue` says.
unsafe impl Nic for Loopback {
    fn name(&self) -> &'static str {
        NAME
    }

    fn atomics(&self) -> Atomics {
        Atomics::Coherent
    }

    fn address(&self) -> Vec<u8> {
        // Peers are found by the handles of their memory alone.
        vec![1]
    }

    unsafe fn register(&self, memory: Memory<'_>) -> Result<Registration, NicError> {
        let key = Key {
            bytes: Vec::new(),
            handle: Some((memory.share)()?),
        };
        Ok(Registration {
            key,
            guard: memory.keep,
        })
    }

    unsafe fn connect(&self, connection: Connection) -> Result<(), NicError> {
        let ranks_on_node = connection.ranks_on_node;
        let shared = Arc::new(Shared::new(
            connection,
            self.options.clone(),
            self.slots.clone(),
        ));
        if self.shared.set(shared.clone()).is_err() {
            return Err(NicError::System {
                what: "connecting an endpoint",
                detail: "it is connected already".into(),
            });
        }
        self.slots.divide(ranks_on_node);
        let thread = std::thread::Builder::new()
            .name("tidegate-loopback".into())
            .spawn(move || shared.run())
            .map_err(|e| NicError::System {
                what: "starting the agent",
                detail: e.to_string(),
            })?;
        *lock(&self.thread) = Some(thread);
        Ok(())
    }

    fn import(&self, peer: usize, key: Key, bytes: usize) -> Result<RemoteMemory, NicError> {
        let Some(handle) = key.handle else {
            return Err(NicError::BadKey(format!(
                "rank {peer} is on another node, which this NIC cannot reach"
            )));
        };
        let block = Host::for_processes().map(handle, bytes)?;
        Ok(RemoteMemory(Arc::new(block)))
    }

    unsafe fn queue(
        &self,
        _peer: usize,
        config: QueueConfig,
    ) -> Result<Arc<dyn NicQueue>, NicError> {
        let shared = self.shared()?;
        let queue = Arc::new(Queue::new(config, &self.slots));
        shared.add(queue.clone());
        Ok(Arc::new(Handle::new(queue, shared.clone())))
    }

    fn budget(&self) -> usize {
        self.slots.budget()
    }

    fn armed(&self) -> usize {
        self.slots.armed()
    }

    fn await_armed(&self, most: usize, limit: Duration) -> usize {
        self.slots.wait(most, limit)
    }

    fn quiesce(&self, limit: Duration) -> bool {
        let Some(shared) = self.shared.get() else {
            return true;
        };
        let start = Instant::now();
        while !shared.is_idle() {
            if start.elapsed() >= limit {
                return false;
            }
            // Only at the end of a job: nothing on the data path waits here.
            std::thread::sleep(Duration::from_micros(200));
        }
        true
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        if !self.process.is_this() {
            // The agent is the parent's.
            return std::mem::forget(lock(&self.thread).take());
        }
        if let Some(shared) = self.shared.get() {
            shared.stop.store(true, Ordering::SeqCst);
            shared.wake();
        }
        let me = std::thread::current().id();
        // Not for itself: what a queue has kept may be the last to hold the world, and this with it.
        if let Some(thread) = lock(&self.thread)
            .take()
            .filter(|thread| thread.thread().id() != me)
        {
            // The agent catches nothing and panics nowhere; if it did, its streams' waits would say so.
            let _ = thread.join();
        }
    }
}

/// A poisoned lock means that a panic came between plain assignments; the data is whole.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
