//! What the contract of NICs says, for an endpoint that is its own peer.
#![allow(
    dead_code,
    unused_macros,
    unused_imports,
    reason = "not every test uses everything"
)]

pub(crate) mod verdict;
pub(crate) mod wrapped;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tidegate_fabric::wire::Wire;
use tidegate_fabric::{Fabric, Options};
use tidegate_hal::batch::{Action, POISON, QUANTUM, Shape, Side};
use tidegate_hal::device::Device as _;
use tidegate_hal::memory::{Block as _, Ptr, Sharing};
use tidegate_hal::nic::{
    Connection, Direction, Key, Memory, Nic, NicError, NicQueue, Prepared, Program, QueueConfig,
    Register, Registration, RemoteMemory, RemotePtr, RemoteSide, Signal, Transfer, part,
};
use tidegate_host::{Host, HostBlock};
use tidegate_words::{Bell, Word};
use verdict::Verdict;

/// Bytes of a rank's memory: a bell, words, then data.
const BYTES: usize = 8192;
const BELL: usize = 0;
const DOORBELLS: usize = 64;
const DOORBELL: usize = 128;
pub(crate) const SENT: usize = 192;
pub(crate) const SIGNAL: usize = 256;
/// So much further on are those of another queue.
pub(crate) const OTHER: usize = 320;
const DATA: usize = 1024;
/// How far the buffer of odd firings lies behind that of even ones.
const FLIP: usize = 256;
const LONG: Duration = Duration::from_secs(20);
/// Long enough on any machine for it to be found out that all has come, and less than the silence after which what has
/// not is given up.
pub(crate) const SETTLES: Duration = Duration::from_secs(5);

/// An endpoint that is its own peer.
pub(crate) struct Rig {
    pub(crate) block: Arc<HostBlock>,
    pub(crate) memory: RemoteMemory,
    /// A key to nothing.
    pub(crate) wrong: RemoteMemory,
    pub(crate) queue: Option<Arc<dyn NicQueue>>,
    /// Where its stream strikes, if it does.
    pub(crate) strike: Option<Register>,
    pub(crate) nic: Box<dyn Nic>,
    /// Whether the wire may break.
    pub(crate) may_fail: Arc<AtomicBool>,
    /// Whether it has, as core hears it.
    pub(crate) has_failed: Arc<AtomicBool>,
    polled: bool,
    _registrations: [Registration; 2],
    /// Behind the endpoint.
    _verdict: Verdict,
}

/// A queue of the rig's endpoint that has nothing in common with its own.
#[allow(dead_code, reason = "not by every test program")]
pub(crate) struct Beside {
    pub(crate) queue: Arc<dyn NicQueue>,
    words: Arc<HostBlock>,
}

#[allow(dead_code, reason = "not by every test program")]
impl Beside {
    fn word(&self, offset: usize) -> &Word {
        // SAFETY: zeroed memory of the host, which this keeps; words are only accessed atomically.
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

    /// One whose streams ring no bell, as those of GPUs.
    #[allow(dead_code, reason = "not by every test program")]
    pub(crate) fn polled<W: Wire>(wire: W, options: Options) -> Self {
        Self::with(wire, options, false, true)
    }

    pub(crate) fn with<W: Wire>(wire: W, options: Options, strikes: bool, polled: bool) -> Self {
        Self::sized(wire, options, (strikes, polled), BYTES)
    }

    /// One with so many bytes, likewise.
    pub(crate) fn sized<W: Wire>(
        wire: W,
        options: Options,
        (strikes, polled): (bool, bool),
        size: usize,
    ) -> Self {
        let block = Arc::new(Host::for_threads().alloc(size, Sharing::Peers).unwrap());
        let nic = Fabric::over(wire, options);
        nic.begin(polled).unwrap();
        let at = |offset| block.base().byte_add(offset);
        let may_fail = Arc::new(AtomicBool::new(false));
        let has_failed = Arc::new(AtomicBool::new(false));
        let verdict = Verdict::new(may_fail.clone());
        let connection = Connection {
            addresses: vec![nic.address()],
            bell: at(DOORBELLS),
            keep: block.clone(),
            helped: false,
            polled,
            ranks_on_node: 1,
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
        let registrations = [register(size_of::<Bell>()), register(size)];
        let gone = register(size).key;
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
            wrong: import(&gone),
            queue: Some(queue),
            strike,
            polled,
            _registrations: registrations,
            nic: Box::new(nic),
            _verdict: verdict,
            may_fail,
            has_failed,
            block,
        }
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
        // SAFETY: it lies in the block; the caller is between two firings.
        unsafe { self.at(DATA + 8 * index).0.cast::<u64>().write(value) };
    }

    pub(crate) fn read(&self, index: usize) -> u64 {
        // SAFETY: likewise.
        unsafe { self.at(DATA + 8 * index).0.cast::<u64>().read() }
    }

    pub(crate) fn place(memory: &RemoteMemory, offset: usize) -> RemotePtr {
        RemotePtr {
            memory: memory.clone(),
            offset,
        }
    }

    /// Copies element 0 to element `to`, of the buffer that the firing's parity chooses.
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
        let program = Program {
            transfers,
            signal: Signal {
                word: Self::place(&self.memory, SIGNAL + other),
                first: 0,
                bell: Self::place(&self.memory, 0),
            },
            keep: vec![self.block.clone()],
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

    /// Puts of which the first is by a key to nothing, and a get. For that the signal waits, so the put brings none, and its
    /// failure is reported; signals are not: see `refused`.
    pub(crate) fn fails(&self, to: usize) -> Prepared {
        let bad = self.transfer(&self.wrong, Direction::Put, to);
        let good = self.transfer(&self.memory, Direction::Put, to + 1);
        let mut get = self.transfer(&self.memory, Direction::Get, to + 2);
        // Of more than a word, which is what the engine itself reads.
        get.count = 2;
        self.program(vec![bad, good, get])
    }

    /// A put by a key to nothing, which brings a signal.
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
            keep: self.block.clone(),
        };
        // SAFETY: these words are zeroed too, and kept.
        unsafe { self.nic.queue(0, config) }.unwrap()
    }

    /// A queue whose words are its own: see [`Beside`].
    #[allow(dead_code, reason = "not by every test program")]
    pub(crate) fn beside(&self) -> Beside {
        self.beside_towards(0)
    }

    /// Likewise, towards a peer that need not be there.
    #[allow(dead_code, reason = "not by every test program")]
    pub(crate) fn beside_towards(&self, peer: usize) -> Beside {
        let words = Arc::new(Host::for_threads().alloc(BYTES, Sharing::Peers).unwrap());
        let config = QueueConfig {
            doorbell: words.base(),
            sent: words.base().byte_add(SENT),
            sent_bell: self.at(BELL),
            keep: words.clone(),
        };
        // SAFETY: the words are zeroed, and kept, and so is the bell.
        let queue = unsafe { self.nic.queue(peer, config) }.unwrap();
        Beside { queue, words }
    }

    /// What a stream does.
    pub(crate) fn ring(&self) {
        self.ring_part(0, 0, 1);
    }

    /// Two rings that nobody sees apart.
    pub(crate) fn ring_twice(&self) {
        self.word(DOORBELL).add(2 * QUANTUM);
        if !self.polled {
            self.bell().ring();
        }
    }

    /// What one does for a part of a ring, of the queue whose words lie `other` further on.
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

pub(crate) fn a_ring_fires_the_next_program_and_its_number_chooses_the_buffer(rig: &Rig) {
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
}

/// Rings that run ahead of all data, for programs of every shape: each signal finds the data of its own firing.
pub(crate) fn rings_that_run_ahead_signal_in_order(rig: &Rig) {
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
    assert!(rig.nic.quiesce(SETTLES));
}

pub(crate) fn a_doorbell_that_is_poisoned_ends_the_waits_on_both_ends(rig: &Rig) {
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
    assert!(rig.nic.quiesce(SETTLES));
}

pub(crate) fn a_transfer_that_fails_signals_nothing(rig: &Rig) {
    let programs = [rig.put(5), rig.fails(1), rig.put(4)];
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
    assert!(rig.nic.quiesce(SETTLES));
}

pub(crate) fn what_finds_no_slot_stands_in_line_and_is_fired_all_the_same(rig: &Rig) {
    let put = [rig.put(1)];
    assert_eq!((rig.nic.budget(), rig.nic.armed()), (2, 0));
    rig.arm(&put, 5).unwrap();
    assert_eq!((rig.nic.armed(), rig.queue().counts()), (5, (5, 0)));
    for _ in 0..5 {
        rig.ring();
    }
    assert_eq!(rig.wait(SIGNAL, 5), 5 * QUANTUM);
    assert_eq!(rig.wait(SENT, 5), 5 * QUANTUM);
    // The slot was free before the sent word said so.
    assert_eq!((rig.nic.armed(), rig.queue().counts()), (0, (5, 5)));
}

/// More than hardware holds at a time: the rest follows as firings are through.
pub(crate) fn many_are_armed_at_a_time(rig: &Rig) {
    rig.arm(&[rig.put(1), rig.put(2), rig.put(3)], 100).unwrap();
    for _ in 0..300 {
        rig.ring();
    }
    assert_eq!(rig.wait(SENT, 300), 300 * QUANTUM);
    assert_eq!(rig.wait(SIGNAL, 300), 300 * QUANTUM);
}

/// So many puts of element 0, each of a stage of its own, to places that begin with `to`.
pub(crate) fn stages(rig: &Rig, to: usize, stages: usize) -> Vec<Transfer> {
    let puts = (0..stages).map(|stage| {
        let mut put = rig.transfer(&rig.memory, Direction::Put, to + stage);
        (put.remote.flip, put.stage) = (0, stage as u32);
        put
    });
    puts.collect()
}

pub(crate) fn in_stages(rig: &Rig, to: usize, count: usize) -> Prepared {
    rig.program(stages(rig, to, count))
}

/// Whoever has no use for the parts of a ring takes them for a ring when they are all there.
pub(crate) fn a_ring_in_parts_is_one_ring(rig: &Rig) {
    rig.arm(
        &[in_stages(rig, 10, 3), rig.put(1), in_stages(rig, 20, 2)],
        2,
    )
    .unwrap();
    let mut seen = 0;
    for turn in 0..2 {
        rig.write(0, 100 + turn);
        for parts in [3, 1, 2] {
            for part in 0..parts {
                // Not before.
                assert_eq!(rig.word(SIGNAL).load(), seen * QUANTUM);
                assert_eq!(rig.word(SENT).load(), seen * QUANTUM);
                rig.ring_part(0, part, parts);
            }
            seen += 1;
            assert_eq!(rig.wait(SIGNAL, seen), seen * QUANTUM);
            assert_eq!(rig.wait(SENT, seen), seen * QUANTUM);
        }
        for place in [10, 11, 12, 20, 21] {
            assert_eq!(rig.read(place), 100 + turn, "{place}");
        }
    }
    assert!(rig.nic.quiesce(SETTLES));
}

/// What was rung for fires. Of a ring that breaks off some may have been sent, and no signal is.
pub(crate) fn a_doorbell_that_is_poisoned_between_parts_ends_the_waits(rig: &Rig) {
    rig.arm(&[rig.put(1), in_stages(rig, 10, 3)], 2).unwrap();
    rig.write(0, 9);
    rig.ring();
    rig.ring_part(0, 0, 3);
    rig.ring_part(0, 1, 3);
    rig.poison();
    assert_eq!(rig.wait(SENT, 2), QUANTUM | POISON);
    assert_eq!(rig.wait(SIGNAL, 2), QUANTUM | POISON);
    assert_eq!((rig.read(1), rig.read(12)), (9, 0));
    assert!([0, 9].contains(&rig.read(10)) && [0, 9].contains(&rig.read(11)));
    assert!(matches!(rig.arm(&[rig.put(1)], 1), Err(NicError::GivenUp)));
    assert!(rig.nic.quiesce(SETTLES));
}

/// Every test of the contract, by `each`, which calls one with endpoints that have these options.
macro_rules! contract {
    ($each:ident) => {
        #[test]
        fn a_ring_fires_the_next_program_and_its_number_chooses_the_buffer() {
            $each(
                &Options::default(),
                rig::a_ring_fires_the_next_program_and_its_number_chooses_the_buffer,
            );
        }
        #[test]
        fn rings_that_run_ahead_signal_in_order() {
            $each(
                &Options::default(),
                rig::rings_that_run_ahead_signal_in_order,
            );
        }
        #[test]
        fn a_doorbell_that_is_poisoned_ends_the_waits_on_both_ends() {
            $each(
                &Options::default(),
                rig::a_doorbell_that_is_poisoned_ends_the_waits_on_both_ends,
            );
        }
        #[test]
        fn a_transfer_that_fails_signals_nothing() {
            $each(
                &Options::default(),
                rig::a_transfer_that_fails_signals_nothing,
            );
        }
        #[test]
        fn what_finds_no_slot_stands_in_line_and_is_fired_all_the_same() {
            $each(
                &Options::default().budget(2),
                rig::what_finds_no_slot_stands_in_line_and_is_fired_all_the_same,
            );
        }
        #[test]
        fn a_ring_in_parts_is_one_ring() {
            $each(&Options::default(), rig::a_ring_in_parts_is_one_ring);
        }
        #[test]
        fn a_doorbell_that_is_poisoned_between_parts_ends_the_waits() {
            $each(
                &Options::default(),
                rig::a_doorbell_that_is_poisoned_between_parts_ends_the_waits,
            );
        }
        #[test]
        fn many_are_armed_at_a_time() {
            $each(&Options::default(), rig::many_are_armed_at_a_time);
        }
    };
}
pub(crate) use contract;
