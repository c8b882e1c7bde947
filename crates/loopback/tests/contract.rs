//! The contract of NICs, tested with the loopback. Each ring fires one program, in order, and every wait ends.

use std::sync::Arc;
use std::time::Duration;

use tidegate_hal::batch::{Action, POISON, QUANTUM, Shape, Side};
use tidegate_hal::device::Device as _;
use tidegate_hal::memory::{Block as _, Ptr, Sharing};
use tidegate_hal::nic::{
    Connection, Direction, Memory, Nic as _, NicError, NicQueue, Prepared, Program, QueueConfig,
    RemoteMemory, RemotePtr, RemoteSide, Signal, Signalled, Transfer, part,
};
use tidegate_host::{Host, HostBlock};
use tidegate_loopback::{Gate, Loopback, Options};
use tidegate_words::{Bell, Patience, Word};

/// The bytes of a rank's memory: words, bells, then data.
const BYTES: usize = 4096;
const DOORBELL: usize = 0;
const SENT: usize = 64;
const SIGNAL: usize = 128;
const BELL: usize = 192;
const DOORBELLS: usize = 256;
const DATA: usize = 1024;
/// How far the buffer of odd firings lies behind the buffer of even ones.
const FLIP: usize = 64;

/// An endpoint that is its own peer.
struct Rig {
    block: Arc<HostBlock>,
    memory: RemoteMemory,
    queue: Option<Arc<dyn NicQueue>>,
    nic: Loopback,
}

impl Rig {
    fn new(options: Options) -> Self {
        let block = Arc::new(Host::for_threads().alloc(BYTES, Sharing::Peers).unwrap());
        let nic = Loopback::new(options);
        let at = |offset| block.base().byte_add(offset);
        let memory = Memory {
            base: block.base(),
            bytes: BYTES,
            signalled: Signalled::Words {
                count: BYTES / 8,
                step: 8,
            },
            updated: true,
            share: &|| block.share(),
            keep: block.clone(),
        };
        let connection = Connection {
            addresses: vec![nic.address()],
            bell: at(DOORBELLS),
            keep: block.clone(),
            helped: false,
            polled: false,
            failed: Box::new(|reason| panic!("{reason}")),
            ranks_on_node: 1,
            asks: Box::new(|peer, _| panic!("nothing fails towards rank {peer}")),
        };
        // SAFETY: the block is kept, and its zeros are valid words and bells. Tests touch the data only before a ring
        // and after a signal.
        let (key, queue) = unsafe {
            let key = nic.register(memory).unwrap().key;
            nic.connect(connection).unwrap();
            let config = QueueConfig {
                doorbell: at(DOORBELL),
                sent: at(SENT),
                sent_bell: at(BELL),
                back: Ptr::NULL,
                keep: block.clone(),
            };
            (key, nic.queue(0, config).unwrap())
        };
        Rig {
            memory: nic.import(0, key, BYTES).unwrap(),
            block,
            queue: Some(queue),
            nic,
        }
    }

    fn at(&self, offset: usize) -> Ptr {
        self.block.base().byte_add(offset)
    }

    fn word(&self, offset: usize) -> &Word {
        // SAFETY: there is a word, in a block that this holds.
        unsafe { &*self.at(offset).0.cast() }
    }

    fn bell(&self, offset: usize) -> &Bell {
        // SAFETY: there is a bell, in a block that this holds.
        unsafe { &*self.at(offset).0.cast() }
    }

    fn data(&self, index: usize) -> *mut u64 {
        self.at(DATA + 8 * index).0.cast()
    }

    fn place(&self, offset: usize) -> RemotePtr {
        RemotePtr {
            memory: self.memory.clone(),
            offset,
        }
    }

    /// Copies element 0 to element `to`. On the remote side, the parity of the firing chooses the buffer.
    fn program(&self, direction: Direction, to: usize) -> Prepared {
        let (local, remote) = match direction {
            Direction::Put => (0, to),
            Direction::Get => (to, 0),
        };
        let transfer = Transfer {
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
                base: self.place(DATA + 8 * remote),
                flip: FLIP,
                shape: Shape::Linear,
            },
            stage: 0,
        };
        let program = Program {
            transfers: vec![transfer],
            signal: Signal {
                word: self.place(SIGNAL),
                first: 0,
                bell: self.place(BELL),
            },
            keep: vec![self.block.clone()],
        };
        // SAFETY: all lies in the block, which is kept; see `new`.
        unsafe { self.queue().prepare(program) }.unwrap()
    }

    fn queue(&self) -> &Arc<dyn NicQueue> {
        self.queue.as_ref().unwrap()
    }

    fn arm(&self, programs: &[Prepared], times: u64) -> Result<(), NicError> {
        self.queue().arm(&programs.into(), times)
    }

    fn ring(&self) {
        self.word(DOORBELL).add(QUANTUM);
        self.bell(DOORBELLS).ring();
    }

    /// Waits until a word is poisoned or has come to so many quanta; returns it.
    fn wait(&self, offset: usize, quanta: u64) -> u64 {
        let ready = || {
            let value = self.word(offset).load();
            (value & POISON != 0 || value >= quanta * QUANTUM).then_some(value)
        };
        self.bell(BELL).wait(Patience::NONE, ready, || {})
    }
}

#[test]
fn a_ring_fires_the_next_program_and_its_number_chooses_the_buffer() {
    let rig = Rig::new(Options::default());
    let programs = [
        rig.program(Direction::Put, 1),
        rig.program(Direction::Put, 2),
    ];
    rig.arm(&programs, 2).unwrap();
    // Elements 1 and 2 take turns, and so do the buffers: 1 is always written to the even one, and 2 to the odd one.
    for firing in 1..=4 {
        // SAFETY: the last firing is through at this end.
        unsafe { rig.data(0).write(firing) };
        rig.ring();
        assert_eq!(rig.wait(SIGNAL, firing), firing * QUANTUM);
        assert_eq!(rig.wait(SENT, firing), firing * QUANTUM);
    }
    // SAFETY: nothing fires any more.
    let (even, odd) = unsafe { (*rig.data(1), *rig.data(2 + FLIP / 8)) };
    assert_eq!((even, odd), (3, 4));
    // SAFETY: as above.
    assert_eq!(unsafe { (*rig.data(1 + FLIP / 8), *rig.data(2)) }, (0, 0));
    // A get reads the peer's memory, and writes this end's.
    rig.arm(&[rig.program(Direction::Get, 5)], 1).unwrap();
    rig.ring();
    assert_eq!(rig.wait(SENT, 5), 5 * QUANTUM);
    // SAFETY: as above.
    assert_eq!(unsafe { *rig.data(5) }, 4);
}

/// This engine ignores the parts of a ring until all of them have come.
#[test]
fn a_ring_in_parts_is_one_ring() {
    let rig = Rig::new(Options::default());
    assert!(!rig.queue().takes_parts());
    rig.arm(&[rig.program(Direction::Put, 1)], 3).unwrap();
    // SAFETY: nothing has fired.
    unsafe { rig.data(0).write(7) };
    for (firing, parts) in [(0, 3), (1, 1), (2, 2)] {
        for index in 0..parts {
            assert_eq!(rig.word(SENT).load(), firing * QUANTUM);
            rig.word(DOORBELL).add(part(index, parts));
            rig.bell(DOORBELLS).ring();
        }
        assert_eq!(rig.wait(SIGNAL, firing + 1), (firing + 1) * QUANTUM);
        assert_eq!(rig.wait(SENT, firing + 1), (firing + 1) * QUANTUM);
    }
    // SAFETY: nothing fires any more.
    assert_eq!(unsafe { *rig.data(1) }, 7);
}

#[test]
fn a_doorbell_that_is_poisoned_ends_the_waits_on_both_ends() {
    let rig = Rig::new(Options::default());
    let put = rig.program(Direction::Put, 1);
    rig.arm(std::slice::from_ref(&put), 3).unwrap();
    rig.ring();
    rig.word(DOORBELL).poison();
    rig.bell(DOORBELLS).wake_all();
    // Programs that were rung for fire, and counts that have come are not taken back.
    assert_eq!(rig.wait(SENT, 3), QUANTUM | POISON);
    assert_eq!(rig.wait(SIGNAL, 3), QUANTUM | POISON);
    assert!(matches!(rig.arm(&[put], 1), Err(NicError::GivenUp)));
    assert!(rig.nic.quiesce(Duration::ZERO));
}

#[test]
fn a_queue_that_is_dropped_fires_its_rings_and_poisons_the_rest() {
    let gate = Gate::closed();
    let mut rig = Rig::new(Options::default().gate(&gate));
    rig.arm(&[rig.program(Direction::Put, 1)], 2).unwrap();
    rig.ring();
    gate.wait_held();
    assert!(!rig.nic.quiesce(Duration::from_millis(20)));
    rig.queue = None;
    gate.open();
    assert_eq!(rig.wait(SIGNAL, 2), QUANTUM | POISON);
    assert_eq!(rig.wait(SENT, 2), QUANTUM | POISON);
}

#[test]
fn a_program_without_a_slot_waits_for_one_and_is_fired() {
    let gate = Gate::closed();
    let rig = Rig::new(Options::default().budget(2).gate(&gate));
    let put = [rig.program(Direction::Put, 1)];
    assert_eq!((rig.nic.budget(), rig.nic.armed()), (2, 0));
    rig.arm(&put, 3).unwrap();
    assert_eq!((rig.nic.armed(), rig.queue().counts()), (3, (3, 0)));
    assert_eq!(rig.nic.await_armed(2, Duration::from_millis(1)), 3);
    for _ in 0..3 {
        rig.ring();
    }
    gate.open();
    assert!(rig.nic.await_armed(2, Duration::from_secs(60)) <= 2);
    assert_eq!(rig.wait(SIGNAL, 3), 3 * QUANTUM);
    assert_eq!(rig.wait(SENT, 3), 3 * QUANTUM);
    // The slot was free before the sent word said so.
    assert_eq!((rig.nic.armed(), rig.queue().counts()), (0, (3, 3)));
}

#[test]
fn a_queue_that_waits_does_not_keep_another_from_firing() {
    for budget in [1, 2] {
        let rig = Rig::new(Options::default().budget(budget));
        // These take all slots, and are not rung for.
        rig.arm(&[rig.program(Direction::Put, 1)], 100).unwrap();
        let config = QueueConfig {
            doorbell: rig.at(DOORBELL + 8),
            sent: rig.at(SENT + 8),
            sent_bell: rig.at(BELL),
            back: Ptr::NULL,
            keep: rig.block.clone(),
        };
        // SAFETY: as in `Rig::new`.
        let other = unsafe { rig.nic.queue(0, config) }.unwrap();
        let signal = Program {
            transfers: Vec::new(),
            signal: Signal {
                word: rig.place(SIGNAL),
                first: 0,
                bell: rig.place(BELL),
            },
            keep: vec![rig.block.clone()],
        };
        // SAFETY: as in `Rig::program`.
        let signal = unsafe { other.prepare(signal) }.unwrap();
        other.arm(&[signal].into(), 5).unwrap();
        for _ in 0..5 {
            rig.word(DOORBELL + 8).add(QUANTUM);
            rig.bell(DOORBELLS).ring();
        }
        assert_eq!(rig.wait(SENT + 8, 5), 5 * QUANTUM);
        assert_eq!(rig.queue().counts(), (100, 0));
    }
}

#[test]
fn an_endpoint_that_is_not_connected_or_is_dropped_behind_its_gate_ends() {
    let nic = Loopback::default();
    assert!(nic.quiesce(Duration::ZERO));
    drop(nic);
    let gate = Gate::closed();
    let rig = Rig::new(Options::default().gate(&gate));
    rig.arm(&[rig.program(Direction::Put, 1)], 1).unwrap();
    rig.ring();
    gate.wait_held();
    let block = rig.block.clone();
    drop(rig);
    // SAFETY: the agent has ended, and nothing was fired.
    let (signal, word) = unsafe {
        let at = |offset| &*block.base().byte_add(offset).0.cast::<Word>();
        (at(SIGNAL), at(SENT))
    };
    assert_eq!((signal.load(), word.load()), (0, 0));
    assert_eq!(Arc::strong_count(&block), 1, "nothing is kept");
}

/// A window can be revoked before its queues are made.
#[test]
fn a_queue_whose_sent_word_is_poisoned_already_is_idle() {
    let rig = Rig::new(Options::default());
    rig.word(SENT).poison();
    let at = |offset| rig.at(offset);
    let config = QueueConfig {
        doorbell: at(DOORBELLS + 64),
        sent: at(SENT),
        sent_bell: at(BELL),
        back: Ptr::NULL,
        keep: rig.block.clone(),
    };
    // SAFETY: the block is kept, and its contents are valid words.
    let _queue = unsafe { rig.nic.queue(0, config) }.unwrap();
    assert!(rig.nic.quiesce(Duration::ZERO));
}
