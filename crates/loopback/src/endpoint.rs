//! A rank's endpoint.

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
use tidegate_hal::slots::TriggerSlots;
use tidegate_host::Host;

use crate::agent::Agent;
use crate::handle::Handle;
use crate::options::{NAME, Options};
use crate::queue::Queue;
use tidegate_hal::lock;

/// One rank's endpoint.
pub struct Loopback {
    options: Options,
    slots: Arc<TriggerSlots>,
    process: Process,
    agent: OnceLock<Arc<Agent>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Default for Loopback {
    fn default() -> Self {
        Loopback::new(Options::default())
    }
}

impl Loopback {
    /// Makes an endpoint. Its agent starts when it is connected.
    pub fn new(options: Options) -> Self {
        Loopback {
            slots: Arc::new(TriggerSlots::keeping(options.budget, options.kept)),
            options,
            process: Process::this(),
            agent: OnceLock::new(),
            thread: Mutex::new(None),
        }
    }

    fn agent(&self) -> Result<&Arc<Agent>, NicError> {
        self.agent.get().ok_or(NicError::System {
            what: "using an endpoint",
            detail: "it is not connected".into(),
        })
    }
}

// SAFETY: keys are handles of the memory that was registered, mapped with the length announced; programs run as
// `NicQueue` says.
unsafe impl Nic for Loopback {
    fn name(&self) -> &'static str {
        NAME
    }

    fn atomics(&self) -> Atomics {
        Atomics::Coherent
    }

    fn address(&self) -> Vec<u8> {
        // Peers are found only by the handles of their memory.
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
        let agent = Arc::new(Agent::new(
            connection,
            self.options.clone(),
            self.slots.clone(),
        ));
        if self.agent.set(agent.clone()).is_err() {
            return Err(NicError::System {
                what: "connecting an endpoint",
                detail: "it is connected already".into(),
            });
        }
        self.slots.divide(ranks_on_node);
        let thread = std::thread::Builder::new()
            .name("tidegate-loopback".into())
            .spawn(move || agent.run())
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
        let agent = self.agent()?;
        let queue = Arc::new(Queue::new(config, &self.slots));
        agent.add(queue.clone());
        Ok(Arc::new(Handle::new(queue, agent.clone())))
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
        let Some(agent) = self.agent.get() else {
            return true;
        };
        let start = Instant::now();
        while !agent.is_idle() {
            if start.elapsed() >= limit {
                return false;
            }
            // This is at the end of a job, and not on the data path.
            std::thread::sleep(Duration::from_micros(200));
        }
        true
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        if !self.process.is_this() {
            // The agent belongs to the parent.
            return std::mem::forget(lock(&self.thread).take());
        }
        if let Some(agent) = self.agent.get() {
            agent.stop.store(true, Ordering::SeqCst);
            agent.wake();
        }
        let me = std::thread::current().id();
        // The agent's thread does not wait for itself: a value that a queue kept may be the last to hold the world, and
        // this with it.
        if let Some(thread) = lock(&self.thread)
            .take()
            .filter(|thread| thread.thread().id() != me)
        {
            // The agent does not panic. If it did, its streams' waits would show it.
            let _ = thread.join();
        }
    }
}
