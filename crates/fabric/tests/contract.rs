//! What the contract of NICs says, of the engines of this crate: programs fire one a ring and in order, and nobody who waits is forgotten.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_fabric::wire::Wire;
use tidegate_fabric::wire::chain::Signals;
use tidegate_fabric::wire::libfabric::{Choice, FabricWire};
use tidegate_fabric::wire::memory::{Faults, Net};
use tidegate_fabric::{Fabric, Options};
use tidegate_fake::{Card, Config};
use tidegate_hal::batch::{Action, POISON, QUANTUM, Shape, Side};
use tidegate_hal::device::Device as _;
use tidegate_hal::memory::{Block as _, Ptr, Sharing};
use tidegate_hal::nic::{
    Connection, Direction, Key, Memory, Nic, NicError, NicQueue, Prepared, Program, QueueConfig,
    Registration, RemoteMemory, RemotePtr, RemoteSide, Signal, Transfer,
};
use tidegate_host::{Host, HostBlock};
use tidegate_words::{Bell, Word};

/// Bytes of a rank's memory: a bell, words, then data.
const BYTES: usize = 8192;
const BELL: usize = 0;
const DOORBELLS: usize = 64;
const DOORBELL: usize = 128;
const SENT: usize = 192;
const SIGNAL: usize = 256;
const DATA: usize = 1024;
/// How far the buffer of odd firings lies behind that of even ones.
const FLIP: usize = 256;
const LONG: Duration = Duration::from_secs(20);

/// An endpoint that is its own peer.
struct Rig {
    block: Arc<HostBlock>,
    memory: RemoteMemory,
    /// A key to nothing.
    wrong: RemoteMemory,
    queue: Option<Arc<dyn NicQueue>>,
    nic: Box<dyn Nic>,
    _registrations: [Registration; 2],
}

impl Rig {
    fn new<W: Wire>(wire: W, options: Options, strikes: bool) -> Self {
        let block = Arc::new(Host::for_threads().alloc(BYTES, Sharing::Peers).unwrap());
        let nic = Fabric::over(wire, options);
        let at = |offset| block.base().byte_add(offset);
        let connection = Connection {
            addresses: vec![nic.address()],
            bell: at(DOORBELLS),
            keep: block.clone(),
            helped: false,
        };
        let config = QueueConfig {
            doorbell: at(DOORBELL),
            sent: at(SENT),
            sent_bell: at(BELL),
            strikes,
            keep: block.clone(),
        };
        let share = || block.share();
        let register = |bytes| {
            let memory = Memory {
                base: block.base(),
                bytes,
                share: &share,
                keep: block.clone(),
            };
            // SAFETY: the block is kept; tests touch the data only before a ring and after a signal.
            unsafe { nic.register(memory) }.unwrap()
        };
        let registrations = [register(size_of::<Bell>()), register(BYTES)];
        let gone = register(BYTES).key;
        // SAFETY: the block is zeroed, which is words and bells, and kept.
        let queue = unsafe {
            nic.connect(connection).unwrap();
            nic.queue(0, config).unwrap()
        };
        let import = |key: &Key| {
            let (bytes, handle) = (key.bytes.clone(), None);
            nic.import(0, Key { bytes, handle }, BYTES).unwrap()
        };
        Rig {
            memory: import(&registrations[1].key),
            wrong: import(&gone),
            queue: Some(queue),
            _registrations: registrations,
            nic: Box::new(nic),
            block,
        }
    }

    fn at(&self, offset: usize) -> Ptr {
        self.block.base().byte_add(offset)
    }

    fn word(&self, offset: usize) -> &Word {
        // SAFETY: there is a word, in a block that this holds.
        unsafe { &*self.at(offset).0.cast() }
    }

    fn bell(&self) -> &Bell {
        // SAFETY: there is a bell, in a block that this holds.
        unsafe { &*self.at(DOORBELLS).0.cast() }
    }

    fn write(&self, index: usize, value: u64) {
        // SAFETY: it lies in the block; the caller is between two firings.
        unsafe { self.at(DATA + 8 * index).0.cast::<u64>().write(value) };
    }

    fn read(&self, index: usize) -> u64 {
        // SAFETY: likewise.
        unsafe { self.at(DATA + 8 * index).0.cast::<u64>().read() }
    }

    fn place(memory: &RemoteMemory, offset: usize) -> RemotePtr {
        RemotePtr {
            memory: memory.clone(),
            offset,
        }
    }

    /// Copies element 0 to element `to`, of the buffer that the firing's parity chooses.
    fn transfer(&self, memory: &RemoteMemory, direction: Direction, to: usize) -> Transfer {
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
        }
    }

    fn try_program(&self, transfers: Vec<Transfer>) -> Result<Prepared, NicError> {
        let program = Program {
            transfers,
            signal: Signal {
                word: Self::place(&self.memory, SIGNAL),
                bell: Self::place(&self.memory, 0),
            },
            keep: vec![self.block.clone()],
        };
        // SAFETY: all lies in the block, which is kept; see `new`.
        unsafe { self.queue().prepare(program) }
    }

    fn program(&self, transfers: Vec<Transfer>) -> Prepared {
        self.try_program(transfers).unwrap()
    }

    fn put(&self, to: usize) -> Prepared {
        self.program(vec![self.transfer(&self.memory, Direction::Put, to)])
    }

    fn queue(&self) -> &Arc<dyn NicQueue> {
        self.queue.as_ref().unwrap()
    }

    fn arm(&self, programs: &[Prepared], times: u64) -> Result<(), NicError> {
        self.queue().arm(&programs.into(), times, &mut || false)
    }

    /// What a stream does.
    fn ring(&self) {
        self.word(DOORBELL).add(QUANTUM);
        self.bell().ring();
        if let Some(strike) = self.queue().strike() {
            // SAFETY: the queue is there.
            unsafe { &*strike.0.cast::<Word>() }.strike(1);
        }
    }

    fn poison(&self) {
        self.word(DOORBELL).poison();
        self.bell().wake_all();
    }

    /// Waits until a word is poisoned or has come to so many quanta; returns it.
    fn wait(&self, offset: usize, quanta: u64) -> u64 {
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

fn on(card: &Card) -> FabricWire {
    FabricWire::open_by(&tidegate_fake::library(), &Choice::at(card.name())).unwrap()
}

/// Runs a test over the software engine, and over cards that signal by notices and by adds, and are struck by the stream or by an agent.
fn each(options: &Options, test: impl Fn(&Rig)) {
    let net = Net::new(1, Faults::default());
    test(&Rig::new(net.wire(0), options.clone(), true));
    for seed in 0..8 {
        let data = seed % 2 == 0;
        let card = Card::new(Config {
            seed,
            data,
            back: seed % 3 == 0,
            cancels: seed % 5 != 4,
            ..Config::default()
        });
        let wire = on(&card);
        let signals = if data { Signals::Notice } else { Signals::Add };
        assert_eq!(wire.triggered(), Some(signals));
        let strikes = seed % 4 < 2;
        let rig = Rig::new(wire, options.clone(), strikes);
        let struck = strikes && tidegate_fake::PAGES;
        assert_eq!(rig.queue().strike().is_some(), struck);
        test(&rig);
        drop(rig);
        assert_eq!(card.complaints(), [""; 0]);
    }
}

#[test]
fn a_ring_fires_the_next_program_and_its_number_chooses_the_buffer() {
    each(&Options::default(), |rig| {
        rig.arm(&[rig.put(1), rig.put(2)], 2).unwrap();
        // 1 and 2 in turn, and the buffers in turn: 1 is always written to the even one, 2 to the odd one.
        for firing in 1..=4 {
            rig.write(0, firing);
            rig.ring();
            assert_eq!(rig.wait(SIGNAL, firing), firing * QUANTUM);
            assert_eq!(rig.wait(SENT, firing), firing * QUANTUM);
        }
        let odd = FLIP / 8;
        assert_eq!((rig.read(1), rig.read(2 + odd)), (3, 4));
        assert_eq!((rig.read(1 + odd), rig.read(2)), (0, 0));
        // A get reads there, and writes here.
        let get = rig.transfer(&rig.memory, Direction::Get, 5);
        rig.arm(&[rig.program(vec![get])], 1).unwrap();
        rig.ring();
        assert_eq!(rig.wait(SENT, 5), 5 * QUANTUM);
        assert_eq!(rig.read(5), 4);
    });
}

/// Rings that run ahead of all data, for programs of every shape: each signal finds the data of its own firing.
#[test]
fn rings_that_run_ahead_signal_in_order() {
    each(&Options::default(), |rig| {
        const FIRINGS: u64 = 24;
        rig.write(0, 7);
        for firing in 0..FIRINGS as usize {
            // 0 to 3 pieces, each to a place of its own.
            let pieces = (0..firing % 4).map(|piece| {
                let mut put = rig.transfer(&rig.memory, Direction::Put, 100 + 4 * firing + piece);
                put.remote.flip = 0;
                put
            });
            rig.arm(&[rig.program(pieces.collect())], 1).unwrap();
        }
        for _ in 0..FIRINGS {
            rig.ring();
        }
        let mut seen = 0;
        while seen < FIRINGS {
            seen = rig.wait(SIGNAL, seen + 1) / QUANTUM;
            for firing in 0..seen as usize {
                for piece in 0..firing % 4 {
                    let found = rig.read(100 + 4 * firing + piece);
                    assert_eq!(
                        found, 7,
                        "piece {piece} of firing {firing} at signal {seen}"
                    );
                }
            }
        }
        assert_eq!(rig.wait(SENT, FIRINGS), FIRINGS * QUANTUM);
        assert!(rig.nic.quiesce(Duration::from_secs(1)));
    });
}

#[test]
fn a_doorbell_that_is_poisoned_ends_the_waits_on_both_ends() {
    each(&Options::default(), |rig| {
        let put = rig.put(1);
        rig.write(0, 9);
        rig.arm(std::slice::from_ref(&put), 3).unwrap();
        rig.ring();
        rig.poison();
        // What was rung for fires; the counts that have come are not taken back.
        assert_eq!(rig.wait(SENT, 3), QUANTUM | POISON);
        assert_eq!(rig.wait(SIGNAL, 3), QUANTUM | POISON);
        assert_eq!(rig.read(1), 9);
        let refused = rig.arm(&[put], 1);
        assert!(matches!(refused, Err(NicError::GivenUp)));
        assert!(rig.nic.quiesce(Duration::from_secs(1)));
    });
}

#[test]
fn a_transfer_that_fails_signals_nothing() {
    each(&Options::default(), |rig| {
        let bad = rig.transfer(&rig.wrong, Direction::Put, 1);
        let good = rig.transfer(&rig.memory, Direction::Put, 2);
        let programs = [rig.put(3), rig.program(vec![bad, good]), rig.put(4)];
        rig.arm(&programs, 1).unwrap();
        rig.write(0, 5);
        for _ in 0..3 {
            rig.ring();
        }
        assert_eq!(rig.wait(SENT, 3), QUANTUM | POISON);
        assert_eq!(rig.wait(SIGNAL, 3), QUANTUM | POISON);
        // Nothing more comes.
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(rig.word(SIGNAL).load(), QUANTUM | POISON);
        assert_eq!(rig.word(SENT).load(), QUANTUM | POISON);
        assert!(rig.nic.quiesce(Duration::from_secs(1)));
    });
}

#[test]
fn a_queue_holds_what_its_budget_says() {
    each(&Options::default().budget(2), |rig| {
        let put = [rig.put(1)];
        assert_eq!(rig.queue().budget(), 2);
        let over = rig.arm(&put, 3).unwrap_err();
        assert!(matches!(
            over,
            NicError::OverBudget {
                needed: 3,
                budget: 2
            }
        ));
        rig.arm(&put, 2).unwrap();
        assert!(matches!(rig.arm(&put, 1), Err(NicError::NotWaited)));
        rig.ring();
        rig.wait(SENT, 1);
        // The place was free before the sent word said so.
        rig.arm(&put, 1).unwrap();
        rig.ring();
        rig.ring();
        assert_eq!(rig.wait(SIGNAL, 3), 3 * QUANTUM);
        assert_eq!(rig.wait(SENT, 3), 3 * QUANTUM);
    });
}

/// More than hardware holds at a time: the rest follows as firings are through.
#[test]
fn many_are_armed_at_a_time() {
    each(&Options::default(), |rig| {
        rig.arm(&[rig.put(1), rig.put(2), rig.put(3)], 100).unwrap();
        for _ in 0..300 {
            rig.ring();
        }
        assert_eq!(rig.wait(SENT, 300), 300 * QUANTUM);
        assert_eq!(rig.wait(SIGNAL, 300), 300 * QUANTUM);
    });
}

/// What was rung for fires, what was not is poisoned; what hardware cannot give back is kept.
#[test]
fn a_queue_that_is_dropped_poisons_what_was_not_rung_for() {
    for seed in 0..8 {
        let card = Card::new(Config {
            seed,
            data: seed % 2 == 0,
            cancels: seed < 4,
            ..Config::default()
        });
        let mut rig = Rig::new(on(&card), Options::default(), true);
        rig.arm(&[rig.put(1)], 3).unwrap();
        card.hold(true);
        rig.ring();
        assert!(!rig.nic.quiesce(Duration::from_millis(20)));
        rig.queue = None;
        card.hold(false);
        assert_eq!(rig.wait(SIGNAL, 2), QUANTUM | POISON);
        assert_eq!(rig.wait(SENT, 2), QUANTUM | POISON);
        assert!(rig.nic.quiesce(Duration::from_secs(1)));
        let block = rig.block.clone();
        drop(rig);
        assert_eq!(card.complaints(), [""; 0]);
        if seed < 4 {
            // All is taken back, and so all is closed.
            assert_eq!((card.works().0, Arc::strong_count(&block)), (0, 1));
            assert!(card.open().is_empty(), "{:?}", card.open());
        } else {
            // It stays with the hardware, and with it what it would read.
            assert!(card.works().0 > 0 && Arc::strong_count(&block) > 1);
        }
    }
}

/// An endpoint that goes while operations are under way: memory that they touch stays until they are proved over.
#[test]
fn an_endpoint_that_is_dropped_keeps_what_is_under_way() {
    let card = Card::new(Config::default());
    let rig = Rig::new(on(&card), Options::default(), true);
    rig.arm(&[rig.put(1)], 1).unwrap();
    card.hold(true);
    rig.ring();
    let block = rig.block.clone();
    drop(rig);
    assert!(Arc::strong_count(&block) > 1);
    card.hold(false);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(card.complaints(), [""; 0]);
}

/// A program of more pieces than a queue has works for is refused when it is prepared.
#[test]
fn a_program_that_never_fits_is_refused() {
    let card = Card::new(Config {
        says: 40,
        ..Config::default()
    });
    let rig = Rig::new(on(&card), Options::default(), true);
    let many = (0..40).map(|at| rig.transfer(&rig.memory, Direction::Put, at));
    let refused = rig.try_program(many.collect());
    assert!(matches!(refused, Err(NicError::Unsupported { .. })));
}
