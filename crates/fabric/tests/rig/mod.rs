//! An endpoint that is its own peer, for tests. The modules watch its wire, or make it go wrong.
#![allow(
    dead_code,
    unused_macros,
    unused_imports,
    reason = "not every test uses everything"
)]

mod contract;
mod plane;
pub(crate) mod verdict;
pub(crate) mod wrapped;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use plane::Plane;
use tidegate_fabric::wire::Wire;
use tidegate_fabric::{Fabric, Options};
use tidegate_hal::batch::{Action, POISON, QUANTUM, Shape, Side};
use tidegate_hal::device::Device as _;
use tidegate_hal::memory::{Block as _, Ptr, Sharing};
use tidegate_hal::nic::{
    Connection, Direction, Keep, Key, Memory, Nic, NicError, NicQueue, Prepared, Program,
    QueueConfig, Register, Registration, RemoteMemory, RemotePtr, RemoteSide, Signal, Signalled,
    Transfer, part,
};
use tidegate_host::{Host, HostBlock};
use tidegate_words::{Bell, Word};
use verdict::Verdict;

pub(crate) use contract::*;

/// The bytes of a rank's memory: a bell, words, then data.
const BYTES: usize = 8192;
const BELL: usize = 0;
const DOORBELLS: usize = 64;
const DOORBELL: usize = 128;
pub(crate) const SENT: usize = 192;
pub(crate) const SIGNAL: usize = 256;
/// The words of another queue lie so much further on.
pub(crate) const OTHER: usize = 320;
const DATA: usize = 1024;
/// How far the buffer of odd firings lies behind the buffer of even ones.
const FLIP: usize = 256;
const LONG: Duration = Duration::from_secs(600);
/// Long enough on any machine for the engine to find out that all signals have come. It is less than the silence after
/// which a missing signal is given up.
pub(crate) const SETTLES: Duration = Duration::from_secs(5);

/// Waits until `is_so`. If that takes too long, it panics with `what`, which says what is wrong.
pub(crate) fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LONG, "{what}");
        std::thread::yield_now();
    }
}

/// An endpoint that is its own peer.
pub(crate) struct Rig {
    pub(crate) block: Arc<HostBlock>,
    pub(crate) memory: RemoteMemory,
    /// The bell that signals ring.
    pub(crate) rung: RemoteMemory,
    /// Memory whose registration has ended.
    pub(crate) wrong: RemoteMemory,
    pub(crate) queue: Option<Arc<dyn NicQueue>>,
    /// The register that its stream strikes, if it strikes one.
    pub(crate) strike: Option<Register>,
    pub(crate) nic: Arc<dyn Nic>,
    /// The control plane that answers its questions.
    pub(crate) plane: Arc<Plane>,
    /// Whether the wire may fail.
    pub(crate) may_fail: Arc<AtomicBool>,
    /// Whether it has failed, as core would hear it.
    pub(crate) has_failed: Arc<AtomicBool>,
    polled: bool,
    _registrations: [Registration; 2],
    /// Dropped after the endpoint.
    _verdict: Verdict,
}

/// Another queue of the rig's endpoint, with words in memory of its own.
#[allow(dead_code, reason = "not by every test program")]
pub(crate) struct Beside {
    pub(crate) queue: Arc<dyn NicQueue>,
    words: Arc<HostBlock>,
}

#[allow(dead_code, reason = "not by every test program")]
impl Beside {
    fn word(&self, offset: usize) -> &Word {
        // SAFETY: this keeps the memory, which was zeroed. Words are accessed atomically only.
        unsafe { &*self.words.base().byte_add(offset).0.cast::<Word>() }
    }

    /// Arms a program, and rings for it.
    pub(crate) fn fires(&self, rig: &Rig, program: Prepared) {
        self.queue.arm(&[program].into(), 1).unwrap();
        self.word(0).add(QUANTUM);
        rig.bell().ring();
    }

    pub(crate) fn sent(&self) -> u64 {
        self.word(SENT).load()
    }
}

impl Rig {
    pub(crate) fn new<W: Wire>(wire: W, options: Options, strikes: bool) -> Self {
        Self::with(wire, options, strikes, false)
    }

    /// An endpoint whose streams ring no bell, as those of GPUs.
    #[allow(dead_code, reason = "not by every test program")]
    pub(crate) fn polled<W: Wire>(wire: W, options: Options) -> Self {
        Self::with(wire, options, false, true)
    }

    pub(crate) fn with<W: Wire>(wire: W, options: Options, strikes: bool, polled: bool) -> Self {
        Self::sized(wire, options, (strikes, polled), BYTES)
    }

    /// The same, with `size` bytes of memory.
    pub(crate) fn sized<W: Wire>(
        wire: W,
        options: Options,
        (strikes, polled): (bool, bool),
        size: usize,
    ) -> Self {
        let block = Arc::new(Host::for_threads().alloc(size, Sharing::Peers).unwrap());
        let nic: Arc<dyn Nic> = Arc::new(Fabric::over(wire, options));
        nic.begin(polled).unwrap();
        let at = |offset| block.base().byte_add(offset);
        let may_fail = Arc::new(AtomicBool::new(false));
        let has_failed = Arc::new(AtomicBool::new(false));
        let verdict = Verdict::new(may_fail.clone());
        let plane = Arc::new(Plane::default());
        let connection = Connection {
            addresses: vec![nic.address()],
            bell: at(DOORBELLS),
            keep: block.clone(),
            helped: false,
            polled,
            ranks_on_node: 1,
            asks: Box::new(plane.asks()),
            failed: {
                let (has_failed, hears) = (has_failed.clone(), verdict.hears());
                Box::new(move |why| {
                    hears(why);
                    has_failed.store(true, Ordering::SeqCst);
                })
            },
        };
        let config = QueueConfig {
            doorbell: at(DOORBELL),
            sent: at(SENT),
            sent_bell: at(BELL),
            back: at(SIGNAL),
            keep: block.clone(),
        };
        let share = || block.share();
        let words = |bytes: usize| Signalled::Words {
            count: bytes / 8,
            step: 8,
        };
        let register = |bytes, signalled| {
            let memory = Memory {
                base: block.base(),
                bytes,
                signalled,
                updated: size == BYTES,
                share: &share,
                keep: block.clone(),
            };
            // SAFETY: the block is kept; tests touch the data only before a ring and after a signal.
            unsafe { nic.register(memory) }.unwrap()
        };
        let bell = register(size_of::<Bell>(), Signalled::Bell);
        let registrations = [bell, register(size, words(size))];
        let gone = register(size, words(size)).key;
        plane.serves(&nic);
        // SAFETY: the block is zeroed, which is words and bells, and kept.
        let queue = unsafe {
            nic.connect(connection).unwrap();
            nic.queue(0, config).unwrap()
        };
        let strike = queue.register().filter(|_| strikes);
        if strike.is_some() {
            queue.struck_by_streams();
        }
        let import = |key: &Key| {
            let (bytes, handle) = (key.bytes.clone(), None);
            nic.import(0, Key { bytes, handle }, size).unwrap()
        };
        Rig {
            memory: import(&registrations[1].key),
            rung: import(&registrations[0].key),
            wrong: import(&gone),
            queue: Some(queue),
            strike,
            polled,
            _registrations: registrations,
            nic,
            plane,
            _verdict: verdict,
            may_fail,
            has_failed,
            block,
        }
    }

    /// Lets a peer leave, and waits until its departure is over.
    #[allow(dead_code, reason = "not by every test program")]
    pub(crate) fn leaves(&self, peer: usize) {
        plane::leaves(&*self.nic, peer);
    }

    /// Registers all of its memory once more.
    pub(crate) fn register(&self) -> Registration {
        let share = || self.block.share();
        let memory = Memory {
            base: self.block.base(),
            bytes: self.block.bytes(),
            signalled: Signalled::Words {
                count: self.block.bytes() / 8,
                step: 8,
            },
            updated: false,
            share: &share,
            keep: self.block.clone(),
        };
        // SAFETY: as in `new`.
        unsafe { self.nic.register(memory) }.unwrap()
    }

    pub(crate) fn at(&self, offset: usize) -> Ptr {
        self.block.base().byte_add(offset)
    }

    pub(crate) fn word(&self, offset: usize) -> &Word {
        // SAFETY: there is a word, in a block that this holds.
        unsafe { &*self.at(offset).0.cast() }
    }

    pub(crate) fn bell(&self) -> &Bell {
        // SAFETY: there is a bell, in a block that this holds.
        unsafe { &*self.at(DOORBELLS).0.cast() }
    }

    pub(crate) fn write(&self, index: usize, value: u64) {
        // SAFETY: the element lies in the block, and the caller is between two firings.
        unsafe { self.at(DATA + 8 * index).0.cast::<u64>().write(value) };
    }

    pub(crate) fn read(&self, index: usize) -> u64 {
        // SAFETY: as above.
        unsafe { self.at(DATA + 8 * index).0.cast::<u64>().read() }
    }

    pub(crate) fn place(memory: &RemoteMemory, offset: usize) -> RemotePtr {
        RemotePtr {
            memory: memory.clone(),
            offset,
        }
    }

    /// Copies element 0 to element `to`. On the remote side, the parity of the firing chooses the buffer.
    pub(crate) fn transfer(
        &self,
        memory: &RemoteMemory,
        direction: Direction,
        to: usize,
    ) -> Transfer {
        let (local, remote) = match direction {
            Direction::Put => (0, to),
            Direction::Get => (to, 0),
        };
        Transfer {
            action: Action::Copy,
            direction,
            size: 8,
            count: 1,
            local: Side {
                base: self.at(DATA + 8 * local),
                flip: 0,
                shape: Shape::Linear,
            },
            remote: RemoteSide {
                base: Self::place(memory, DATA + 8 * remote),
                flip: FLIP,
                shape: Shape::Linear,
            },
            stage: 0,
        }
    }

    pub(crate) fn try_program(&self, transfers: Vec<Transfer>) -> Result<Prepared, NicError> {
        self.program_of(0, transfers)
    }

    /// A program of the queue whose words lie `other` further on.
    pub(crate) fn program_of(
        &self,
        other: usize,
        transfers: Vec<Transfer>,
    ) -> Result<Prepared, NicError> {
        self.program_keeping(other, transfers, Arc::new(()))
    }

    /// The same, for a program that also keeps `keep`.
    pub(crate) fn program_keeping(
        &self,
        other: usize,
        transfers: Vec<Transfer>,
        keep: Keep,
    ) -> Result<Prepared, NicError> {
        let program = Program {
            transfers,
            signal: Signal {
                word: Self::place(&self.memory, SIGNAL + other),
                first: 0,
                bell: Self::place(&self.rung, 0),
            },
            keep: vec![self.block.clone(), keep],
        };
        // SAFETY: all lies in the block, which is kept; see `new`.
        unsafe { self.queue().prepare(program) }
    }

    pub(crate) fn program(&self, transfers: Vec<Transfer>) -> Prepared {
        self.try_program(transfers).unwrap()
    }

    pub(crate) fn put(&self, to: usize) -> Prepared {
        self.program(vec![self.transfer(&self.memory, Direction::Put, to)])
    }

    /// Two puts and a get. The first put goes to memory that is gone. The signal waits for the get, so the put brings
    /// no signal, and the provider reports its failure. If a write brings a signal, it may not: see `refused`.
    pub(crate) fn fails(&self, to: usize) -> Prepared {
        let bad = self.transfer(&self.wrong, Direction::Put, to);
        let good = self.transfer(&self.memory, Direction::Put, to + 1);
        let mut get = self.transfer(&self.memory, Direction::Get, to + 2);
        // More than a word, because the engine itself reads words.
        get.count = 2;
        self.program(vec![bad, good, get])
    }

    /// A put to memory that is gone, which brings a signal.
    pub(crate) fn refused(&self, to: usize) -> Prepared {
        self.program(vec![self.transfer(&self.wrong, Direction::Put, to)])
    }

    pub(crate) fn queue(&self) -> &Arc<dyn NicQueue> {
        self.queue.as_ref().unwrap()
    }

    pub(crate) fn arm(&self, programs: &[Prepared], times: u64) -> Result<(), NicError> {
        self.queue().arm(&programs.into(), times)
    }

    /// A queue with words of its own, [`OTHER`] further on.
    pub(crate) fn another(&self) -> Arc<dyn NicQueue> {
        let config = QueueConfig {
            doorbell: self.at(DOORBELL + OTHER),
            sent: self.at(SENT + OTHER),
            sent_bell: self.at(BELL),
            back: self.at(SIGNAL + OTHER),
            keep: self.block.clone(),
        };
        // SAFETY: these words are zeroed, too, and kept.
        unsafe { self.nic.queue(0, config) }.unwrap()
    }

    /// A queue with words in memory of its own: see [`Beside`].
    #[allow(dead_code, reason = "not by every test program")]
    pub(crate) fn beside(&self) -> Beside {
        self.beside_towards(0)
    }

    /// The same, towards a peer that need not exist.
    #[allow(dead_code, reason = "not by every test program")]
    pub(crate) fn beside_towards(&self, peer: usize) -> Beside {
        let words = Arc::new(Host::for_threads().alloc(BYTES, Sharing::Peers).unwrap());
        let config = QueueConfig {
            doorbell: words.base(),
            sent: words.base().byte_add(SENT),
            sent_bell: self.at(BELL),
            back: Ptr::NULL,
            keep: words.clone(),
        };
        // SAFETY: the words are zeroed, and kept, and so is the bell.
        let queue = unsafe { self.nic.queue(peer, config) }.unwrap();
        Beside { queue, words }
    }

    /// Rings, as a stream does.
    pub(crate) fn ring(&self) {
        self.ring_part(0, 0, 1);
    }

    /// Rings twice by one add, so that no thread sees one ring without the other.
    pub(crate) fn ring_twice(&self) {
        self.word(DOORBELL).add(2 * QUANTUM);
        if !self.polled {
            self.bell().ring();
        }
    }

    /// Rings a part, as a stream does, for the queue whose words lie `other` further on.
    pub(crate) fn ring_part(&self, other: usize, index: u64, parts: u64) {
        self.word(DOORBELL + other).add(part(index, parts));
        if !self.polled {
            self.bell().ring();
        }
        let is_whole = other == 0 && index + 1 == parts;
        if let Some(strike) = self.strike.as_ref().filter(|_| is_whole) {
            // SAFETY: the register is kept.
            unsafe { &*strike.at.0.cast::<Word>() }.strike(1);
        }
    }

    pub(crate) fn poison(&self) {
        self.word(DOORBELL).poison();
        self.bell().wake_all();
    }

    /// Waits until a word is poisoned or has come to so many quanta; returns it.
    pub(crate) fn wait(&self, offset: usize, quanta: u64) -> u64 {
        let begin = Instant::now();
        loop {
            let value = self.word(offset).load();
            if value & POISON != 0 || value >= quanta * QUANTUM {
                return value;
            }
            assert!(begin.elapsed() < LONG, "waited in vain: {value:#x}");
            std::thread::yield_now();
        }
    }
}
