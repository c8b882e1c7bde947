//! When a queue asks how many signals have come. Only the test turns the engine, and says when a tick is over.

use std::sync::Arc;

use tidegate_hal::batch::QUANTUM;
use tidegate_hal::device::Device as _;
use tidegate_hal::memory::{Block as _, Ptr, Sharing};
use tidegate_hal::nic::{
    Key, Memory, Nic as _, NicQueue as _, Prepared, Program, QueueConfig, Registration, RemotePtr,
    Signal, Signalled,
};
use tidegate_host::{Host, HostBlock};
use tidegate_words::Word;

use crate::engine::handle::Handle;
use crate::engine::queue::Queue;
use crate::engine::state::Engine;
use crate::wire::Wire as _;
use crate::wire::memory::{Faults, MemoryWire, Net};
use crate::{Fabric, Options};

/// The layout of the memory: a bell, then words.
const BYTES: usize = 4096;
const DOORBELL: usize = 64;
const SENT: usize = 128;
const SIGNAL: usize = 192;

/// An endpoint without threads that is its own peer, and a queue whose programs are signals.
struct Still {
    queue: Handle<MemoryWire>,
    program: Arc<[Prepared]>,
    nic: Fabric<MemoryWire>,
    net: Net,
    block: Arc<HostBlock>,
    _registered: [Registration; 2],
    fired: u64,
}

impl Still {
    fn new() -> Self {
        let net = Net::new(1, Faults::default());
        let wire = net.wire(0);
        let address = wire.address();
        let nic = Fabric::over(wire, Options::default());
        nic.agent.lay(&[vec![address]]).unwrap();
        let block = Arc::new(Host::for_threads().alloc(BYTES, Sharing::Peers).unwrap());
        let share = || block.share();
        let words = Signalled::Words {
            count: BYTES / 8,
            step: 8,
        };
        let registered = [Signalled::Bell, words].map(|signalled| {
            let memory = Memory {
                base: block.base(),
                bytes: BYTES,
                signalled,
                updated: false,
                share: &share,
                keep: block.clone(),
            };
            // SAFETY: the block is kept.
            unsafe { nic.register(memory) }.unwrap()
        });
        let config = QueueConfig {
            doorbell: block.base().byte_add(DOORBELL),
            sent: block.base().byte_add(SENT),
            sent_bell: block.base(),
            back: tidegate_hal::memory::Ptr::NULL,
            keep: block.clone(),
        };
        let departure = nic.agent.departure(0);
        let queue = Arc::new(Queue::new(0, departure, config, &nic.agent.slots));
        nic.agent.add(queue.clone(), None);
        let (chained, agent) = (None, nic.agent.clone());
        let queue = Handle {
            process: tidegate_hal::process::Process::this(),
            queue,
            chained,
            agent,
        };
        let place = |registered: &Registration, offset| {
            let bytes = registered.key.bytes.clone();
            let key = Key {
                bytes,
                handle: None,
            };
            let memory = nic.import(0, key, BYTES).unwrap();
            RemotePtr { memory, offset }
        };
        let program = Program {
            transfers: Vec::new(),
            signal: Signal {
                word: place(&registered[1], SIGNAL),
                first: 0,
                bell: place(&registered[0], 0),
            },
            keep: vec![block.clone()],
        };
        // SAFETY: it moves nothing; the word and the bell are in the block, which is kept.
        let program = unsafe { queue.prepare(program) }.unwrap();
        Still {
            queue,
            program: [program].into(),
            nic,
            net,
            block,
            _registered: registered,
            fired: 0,
        }
    }

    fn word(&self, offset: usize) -> &Word {
        let Ptr(at) = self.block.base().byte_add(offset);
        // SAFETY: there is a word, or zeroed memory that is one, in a block that this holds.
        unsafe { &*at.cast::<Word>() }
    }

    /// Turns until there is nothing more to do. Nothing is ever late on this wire.
    fn turn(&self) {
        (0..10).for_each(|_| self.nic.agent.look());
    }

    /// Fires once more, and waits until the signal has come.
    fn fire(&mut self) {
        self.queue.arm(&self.program, 1).unwrap();
        self.word(DOORBELL).add(QUANTUM);
        self.turn();
        self.fired += 1;
        let count = self.fired * QUANTUM;
        assert_eq!(self.word(SENT).load(), count);
        assert_eq!(self.word(SIGNAL).load(), count);
    }

    /// Makes a tick. Returns how often the queue has asked by then.
    fn tick(&self) -> u64 {
        self.nic.agent.with(Engine::tick);
        self.turn();
        self.net.taken(0)[0] as u64 - self.fired
    }
}

/// Once its peer has answered, a queue does not ask while it is at work. When it is quiet, it asks once, and not again.
#[test]
fn a_quiet_queue_asks_once_how_many_signals_have_come() {
    let mut still = Still::new();
    still.fire();
    assert_eq!(still.tick(), 1, "nobody has answered yet");
    for _ in 0..50 {
        still.fire();
        assert_eq!(still.tick(), 1, "it is at work");
    }
    assert_eq!(still.tick(), 2, "it is quiet");
    for _ in 0..50 {
        assert_eq!(still.tick(), 2, "all has come");
    }
    still.fire();
    assert_eq!((still.tick(), still.tick(), still.tick()), (2, 3, 3));
}
