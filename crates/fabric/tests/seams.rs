//! What two queues of one endpoint do to each other, and an endpoint to itself, when something goes wrong.

#[path = "rig/plane.rs"]
mod plane;
#[path = "rig/verdict.rs"]
mod verdict;
#[path = "rig/wrapped.rs"]
mod wrapped;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use plane::Plane;
use tidegate_fabric::wire::{Event, Op, Posted, Wire};
use tidegate_fabric::{Fabric, Options};
use tidegate_fake::wire::{Faults, MemoryWire, Net};
use tidegate_hal::batch::{Action, POISON, QUANTUM, Shape, Side};
use tidegate_hal::device::Device as _;
use tidegate_hal::memory::{Block as _, Ptr, Sharing};
use tidegate_hal::nic::{
    Connection, Direction, Key, Memory, Nic, NicQueue, Program, QueueConfig, Registration,
    RemoteMemory, RemotePtr, RemoteSide, Signal, Signalled, Transfer,
};
use tidegate_host::{Host, HostBlock};
use tidegate_words::{Bell, Word};
use verdict::Verdict;
use wrapped::{Far, Hooks, Outcome, Wrapped};

const BYTES: usize = 4096;
const BELL: usize = 0;
const DOORBELLS: usize = 64;
/// The words of a queue, from here on.
const WORDS: [usize; 2] = [128, 384];
const SENT: usize = 64;
const SIGNAL: usize = 128;
const DATA: usize = 1024;
const LONG: Duration = Duration::from_secs(600);
/// Long enough, too, and less than the silence after which a signal is given up.
const SETTLES: Duration = Duration::from_secs(4);

/// What a wire is to do wrong.
struct Wish {
    /// Says that operations have failed, after they have come.
    fail: AtomicBool,
    /// A peer that nothing can be posted to for now.
    full: AtomicUsize,
    /// How many operations were posted that poison nothing.
    posts: AtomicUsize,
    /// How many signals are lost from now on, although their writes are done.
    lose: AtomicUsize,
    /// Those that are, and are not done yet.
    lost: Mutex<Vec<u64>>,
    /// How many reads were posted.
    reads: AtomicUsize,
    /// Keeps what has happened from the engine, as a peer does that is stopped.
    hold: AtomicBool,
    held: Mutex<Vec<Event>>,
}

/// The wire in memory, which does what one wishes.
struct Fickle {
    wish: Arc<Wish>,
}

// SAFETY: operations are the wire's, or are lost and touch nothing.
unsafe impl Hooks for Fickle {
    type Wire = MemoryWire;

    unsafe fn post(
        &mut self,
        wire: &mut MemoryWire,
        peer: usize,
        op: Op<'_, Far<Self>>,
        cookie: u64,
    ) -> Outcome<Posted> {
        if self.wish.full.load(Ordering::SeqCst) == peer {
            return Ok(Posted::Full);
        }
        let notice = match &op {
            Op::Write { notice, .. } => *notice,
            Op::Notify(notice) => Some(*notice),
            // Whether signals have come.
            Op::Read { .. } => {
                self.wish.reads.fetch_add(1, Ordering::SeqCst);
                // SAFETY: the caller's promise.
                return unsafe { wire.post(peer, op.handed_on(|remote| &**remote), cookie) };
            }
        };
        // The highest bit of a notice poisons.
        if notice.is_none_or(|notice| notice >> 63 == 0) {
            self.wish.posts.fetch_add(1, Ordering::SeqCst);
        }
        if notice.is_some_and(|notice| notice >> 63 == 0)
            && let left @ 1.. = self.wish.lose.load(Ordering::SeqCst)
        {
            self.wish.lose.store(left - 1, Ordering::SeqCst);
            self.wish.lost.lock().unwrap().push(cookie);
            return Ok(Posted::Taken);
        }
        // SAFETY: the caller's promise.
        unsafe { wire.post(peer, op.handed_on(|remote| &**remote), cookie) }
    }

    fn poll(&mut self, wire: &mut MemoryWire, events: &mut Vec<Event>) -> Outcome<()> {
        wire.poll(events)?;
        let mut held = self.wish.held.lock().unwrap();
        if self.wish.hold.load(Ordering::SeqCst) {
            held.append(events);
        } else {
            events.extend(held.drain(..));
        }
        events.extend(self.wish.lost.lock().unwrap().drain(..).map(Event::Done));
        if self.wish.fail.load(Ordering::SeqCst) {
            for event in events {
                if let Event::Done(cookie) = *event {
                    *event = Event::Failed(cookie, "its acknowledgement was lost".into());
                }
            }
        }
        Ok(())
    }

    fn may_sleep(&self) -> bool {
        self.wish.lost.lock().unwrap().is_empty()
    }
}

/// An endpoint with two queues, towards `peers`: itself, or a rank that does not listen, whose memory is this one's too.
struct Rig {
    block: Arc<HostBlock>,
    memory: RemoteMemory,
    /// The bell that signals ring.
    rung: RemoteMemory,
    queues: Vec<Arc<dyn NicQueue>>,
    wish: Arc<Wish>,
    /// What its words count at first.
    first: u64,
    nic: Arc<dyn Nic>,
    _plane: Arc<Plane>,
    _registrations: [Registration; 2],
    /// Behind the endpoint. No wire may fail here.
    _verdict: Verdict,
}

impl Rig {
    fn new(peers: [usize; 2]) -> Self {
        Self::with(peers, Options::default())
    }

    fn with(peers: [usize; 2], options: Options) -> Self {
        let net = Net::new(2, Faults::default());
        let verdict = Verdict::new(Arc::default());
        let wish = Arc::new(Wish {
            fail: AtomicBool::new(false),
            full: AtomicUsize::new(usize::MAX),
            posts: AtomicUsize::new(0),
            lose: AtomicUsize::new(0),
            lost: Mutex::default(),
            reads: AtomicUsize::new(0),
            hold: AtomicBool::new(false),
            held: Mutex::default(),
        });
        let hooks = Fickle { wish: wish.clone() };
        let wire = net.wire(0);
        let block = Arc::new(Host::for_threads().alloc(BYTES, Sharing::Peers).unwrap());
        let nic: Arc<dyn Nic> = Arc::new(Fabric::over(Wrapped { hooks, wire }, options));
        let plane = Arc::new(Plane::default());
        plane.serves(&nic);
        let at = |offset| block.base().byte_add(offset);
        let connection = Connection {
            addresses: vec![nic.address(); 2],
            bell: at(DOORBELLS),
            keep: block.clone(),
            helped: false,
            polled: false,
            ranks_on_node: 1,
            failed: Box::new(verdict.hears()),
            asks: Box::new(plane.asks()),
        };
        let share = || block.share();
        let register = |bytes, signalled| {
            let memory = Memory {
                base: block.base(),
                bytes,
                signalled,
                share: &share,
                keep: block.clone(),
            };
            // SAFETY: the block is kept; the data is touched by programs alone.
            unsafe { nic.register(memory) }.unwrap()
        };
        let words = Signalled::Words {
            count: BYTES / 8,
            step: 8,
        };
        let registrations = [
            register(size_of::<Bell>(), Signalled::Bell),
            register(BYTES, words),
        ];
        // SAFETY: the block is zeroed, which is a bell, and kept.
        unsafe { nic.connect(connection) }.unwrap();
        let queue = |(peer, words): (usize, usize)| {
            let config = QueueConfig {
                doorbell: at(words),
                sent: at(words + SENT),
                sent_bell: at(BELL),
                keep: block.clone(),
            };
            // SAFETY: the block is zeroed, which is words, and kept.
            unsafe { nic.queue(peer, config) }.unwrap()
        };
        let import = |which: usize, bytes| {
            let key = Key {
                bytes: registrations[which].key.bytes.clone(),
                handle: None,
            };
            nic.import(0, key, bytes).unwrap()
        };
        let rig = Rig {
            _verdict: verdict,
            memory: import(1, BYTES),
            rung: import(0, size_of::<Bell>()),
            queues: peers.into_iter().zip(WORDS).map(queue).collect(),
            wish,
            first: 0,
            _registrations: registrations,
            nic,
            _plane: plane,
            block,
        };
        // The threads have looked, and sleep.
        std::thread::sleep(Duration::from_millis(30));
        rig
    }

    fn at(&self, offset: usize) -> Ptr {
        self.block.base().byte_add(offset)
    }

    fn word(&self, queue: usize, which: usize) -> &Word {
        // SAFETY: there is a word, in a block that this holds.
        unsafe { &*self.at(WORDS[queue] + which).0.cast() }
    }

    fn bell(&self) -> &Bell {
        // SAFETY: there is a bell, in a block that this holds.
        unsafe { &*self.at(DOORBELLS).0.cast() }
    }

    /// Arms a program of a queue: with a put, or with its signal alone.
    fn arm(&self, queue: usize, puts: bool) {
        let place = |offset| RemotePtr {
            memory: self.memory.clone(),
            offset,
        };
        let transfer = Transfer {
            action: Action::Copy,
            direction: Direction::Put,
            size: 8,
            count: 1,
            local: Side {
                base: self.at(DATA),
                flip: 0,
                shape: Shape::Linear,
            },
            remote: RemoteSide {
                base: place(DATA + 8),
                flip: 0,
                shape: Shape::Linear,
            },
            stage: 0,
        };
        let program = Program {
            transfers: puts.then_some(transfer).into_iter().collect(),
            signal: Signal {
                word: place(WORDS[queue] + SIGNAL),
                first: self.first,
                bell: RemotePtr {
                    memory: self.rung.clone(),
                    offset: 0,
                },
            },
            keep: vec![self.block.clone()],
        };
        // SAFETY: all lies in the block, which is kept.
        let program = unsafe { self.queues[queue].prepare(program) }.unwrap();
        self.queues[queue].arm(&[program].into(), 1).unwrap();
    }

    /// What a word says when it has come to a quantum, or is poisoned, or after long.
    fn wait(&self, queue: usize, which: usize, poison: bool) -> u64 {
        let begun = Instant::now();
        loop {
            let value = self.word(queue, which).load();
            let there = value & POISON != 0 || (!poison && value >= QUANTUM);
            if there || begun.elapsed() > LONG {
                return value;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// An operation may have come although it is reported as failed. The signal of another queue that went along must not
/// be sent again then: it would be an exposure that nobody gave.
#[test]
fn a_signal_that_went_along_comes_once_at_most() {
    // Whoever looks between two rings, because the machine stood still there, sends one after the other.
    let went_along = (0..10).any(|_| went_along());
    assert!(went_along);
}

/// Whether it did go along; whatever it did, it came once at most.
fn went_along() -> bool {
    let rig = Rig::new([0, 0]);
    rig.wish.fail.store(true, Ordering::SeqCst);
    rig.arm(0, true);
    rig.arm(1, false);
    rig.word(0, 0).add(QUANTUM);
    rig.word(1, 0).add(QUANTUM);
    rig.bell().ring();
    for queue in 0..2 {
        assert_eq!(rig.wait(queue, SENT, true), POISON);
        assert_eq!(rig.wait(queue, SIGNAL, true), QUANTUM | POISON);
    }
    rig.wish.posts.load(Ordering::SeqCst) == 1
}

#[test]
fn a_peer_that_takes_nothing_keeps_no_other_signals_back() {
    let rig = Rig::new([0, 1]);
    rig.wish.full.store(1, Ordering::SeqCst);
    rig.arm(0, false);
    rig.arm(1, false);
    rig.word(0, 0).add(QUANTUM);
    rig.word(1, 0).add(QUANTUM);
    rig.bell().ring();
    assert_eq!(rig.wait(0, SIGNAL, false), QUANTUM);
    assert_eq!(rig.word(1, SENT).load(), 0);
    // Nor is its own lost.
    rig.wish.full.store(usize::MAX, Ordering::SeqCst);
    assert_eq!(rig.wait(1, SENT, false), QUANTUM);
}

#[test]
fn a_peer_that_takes_nothing_keeps_no_other_from_being_told_of_a_failure() {
    let rig = Rig::new([0, 1]);
    rig.wish.full.store(1, Ordering::SeqCst);
    rig.arm(0, false);
    rig.arm(1, false);
    for queue in [1, 0] {
        rig.word(queue, 0).poison();
        rig.bell().wake_all();
        assert_eq!(rig.wait(queue, SENT, true), POISON);
    }
    assert_eq!(rig.wait(0, SIGNAL, true), POISON);
    rig.wish.full.store(usize::MAX, Ordering::SeqCst);
    assert!(rig.nic.quiesce(LONG));
}

/// A connection that is lost and made again takes a signal along, and no operation fails.
#[test]
fn a_signal_that_is_lost_ends_its_queue_and_no_other() {
    let options = Options::default().silence(Duration::from_secs(1));
    let rig = Rig::with([0, 0], options);
    rig.wish.lose.store(1, Ordering::SeqCst);
    for _ in 0..2 {
        rig.arm(0, true);
        rig.word(0, 0).add(QUANTUM);
    }
    rig.bell().ring();
    // Both are through at this end, and the second is no stand-in for the first.
    assert_eq!(rig.wait(0, SENT, true), (2 * QUANTUM) | POISON);
    assert_eq!(rig.wait(0, SIGNAL, true), POISON);
    rig.arm(1, true);
    rig.word(1, 0).add(QUANTUM);
    rig.bell().ring();
    assert_eq!(rig.wait(1, SIGNAL, false), QUANTUM);
    assert!(rig.nic.quiesce(LONG));
    assert_eq!(rig.word(1, SENT).load(), QUANTUM);
}

/// What nobody has answered yet is asked for, however busy its queue is: a provider that takes everything says nothing of
/// the peer.
#[test]
fn a_queue_that_is_never_quiet_asks_until_its_peer_has_answered() {
    let silence = Duration::from_secs(1);
    let rig = Rig::with([0, 0], Options::default().silence(silence));
    let begun = Instant::now();
    // Longer than a first answer may take, which is twice that.
    for firing in 1.. {
        rig.arm(0, true);
        rig.word(0, 0).add(QUANTUM);
        rig.bell().ring();
        while rig.word(0, SIGNAL).load() < firing * QUANTUM {
            assert!(begun.elapsed() < LONG);
            std::thread::yield_now();
        }
        if begun.elapsed() > silence * 5 / 2 {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(rig.wish.reads.load(Ordering::SeqCst) > 0);
    assert!(rig.nic.quiesce(LONG));
}

/// What keeps a queue's memory goes when its signals are known to have come, and not before.
#[test]
fn a_queue_that_ends_asks_what_has_come() {
    let mut rig = Rig::new([0, 0]);
    let held = |rig: &Rig| Arc::strong_count(&rig.block);
    rig.wish.lose.store(1, Ordering::SeqCst);
    rig.arm(0, true);
    rig.word(0, 0).add(QUANTUM);
    rig.bell().ring();
    assert_eq!(rig.wait(0, SENT, false), QUANTUM);
    let before = held(&rig);
    drop(rig.queues.remove(0));
    std::thread::sleep(Duration::from_millis(50));
    assert!(held(&rig) >= before, "{} of {before}", held(&rig));
    assert!(!rig.nic.quiesce(Duration::from_millis(50)));
    // As if it had come late.
    rig.word(0, SIGNAL).add(QUANTUM);
    assert!(rig.nic.quiesce(LONG));
    let begun = Instant::now();
    while held(&rig) >= before {
        assert!(begun.elapsed() < LONG);
        std::thread::yield_now();
    }
    assert_eq!(rig.word(0, SENT).load(), QUANTUM);
}

/// A peer that is stopped does not answer, and has taken nothing yet when it does.
#[test]
fn a_peer_that_is_stopped_for_long_has_lost_nothing() {
    // Long enough for a machine that stands still where the peer does not.
    let silence = Duration::from_secs(2);
    let rig = Rig::with([0, 0], Options::default().silence(silence));
    rig.arm(0, true);
    rig.word(0, 0).add(QUANTUM);
    rig.bell().ring();
    assert_eq!(rig.wait(0, SIGNAL, false), QUANTUM);
    assert!(rig.nic.quiesce(LONG));
    // Its agent has not come to the signal, when the read is answered.
    rig.wish.lose.store(1, Ordering::SeqCst);
    let asked = rig.wish.reads.load(Ordering::SeqCst);
    rig.arm(0, true);
    rig.word(0, 0).add(QUANTUM);
    rig.bell().ring();
    let begun = Instant::now();
    while rig.word(0, SENT).load() < 2 * QUANTUM {
        assert!(begun.elapsed() < LONG);
        std::thread::yield_now();
    }
    rig.wish.hold.store(true, Ordering::SeqCst);
    while rig.wish.reads.load(Ordering::SeqCst) == asked {
        assert!(begun.elapsed() < LONG, "nobody asks");
        std::thread::yield_now();
    }
    std::thread::sleep(silence * 5 / 4);
    let asked = rig.wish.reads.load(Ordering::SeqCst);
    rig.wish.hold.store(false, Ordering::SeqCst);
    // The answer was a count that is too low.
    while rig.wish.reads.load(Ordering::SeqCst) == asked {
        assert!(begun.elapsed() < 2 * LONG, "nobody asks again");
        std::thread::yield_now();
    }
    rig.word(0, SIGNAL).add(QUANTUM);
    assert!(rig.nic.quiesce(LONG));
    assert_eq!(rig.word(0, SENT).load(), 2 * QUANTUM);
}

/// A count that does not begin at 0, as that of exposures.
#[test]
fn what_a_word_counts_at_first_stands_for_no_signal() {
    let options = Options::default().silence(Duration::from_secs(1));
    let mut rig = Rig::with([0, 0], options);
    rig.first = 1;
    rig.word(0, SIGNAL).add(QUANTUM);
    rig.arm(0, false);
    rig.word(0, 0).add(QUANTUM);
    rig.bell().ring();
    let begun = Instant::now();
    while rig.word(0, SIGNAL).load() < 2 * QUANTUM {
        assert!(begun.elapsed() < LONG);
        std::thread::yield_now();
    }
    rig.wish.lose.store(1, Ordering::SeqCst);
    rig.arm(0, false);
    rig.word(0, 0).add(QUANTUM);
    rig.bell().ring();
    assert_eq!(rig.wait(0, SENT, true), (2 * QUANTUM) | POISON);
    assert_eq!(rig.wait(0, SIGNAL, true), (2 * QUANTUM) | POISON);
}

/// A peer that has left cannot be asked, and has got what it waited for.
#[test]
fn a_peer_that_has_left_is_not_asked() {
    let rig = Rig::new([0, 1]);
    rig.wish.lose.store(1, Ordering::SeqCst);
    rig.arm(1, true);
    rig.word(1, 0).add(QUANTUM);
    rig.bell().ring();
    assert_eq!(rig.wait(1, SENT, false), QUANTUM);
    assert!(!rig.nic.quiesce(Duration::from_millis(50)));
    plane::leaves(&*rig.nic, 0);
    assert!(!rig.nic.quiesce(Duration::from_millis(50)));
    plane::leaves(&*rig.nic, 1);
    assert!(rig.nic.quiesce(SETTLES));
    // Nor afterwards.
    rig.wish.lose.store(1, Ordering::SeqCst);
    rig.arm(1, false);
    rig.word(1, 0).add(QUANTUM);
    rig.bell().ring();
    assert!(rig.nic.quiesce(LONG));
    assert_eq!(rig.word(1, SENT).load() & !POISON, 2 * QUANTUM);
}

/// Whoever is told that the wire has failed may be the last to hold the endpoint, whose own thread it is that says so.
#[test]
fn an_endpoint_may_be_dropped_by_who_hears_that_it_has_failed() {
    let net = Net::new(1, Faults::default());
    let block = Arc::new(Host::for_threads().alloc(BYTES, Sharing::Peers).unwrap());
    let slot = Arc::new(Mutex::new(None));
    let dropped = Arc::new(AtomicBool::new(false));
    let nic = Fabric::over(net.wire(0), Options::default());
    let failed = {
        let (slot, dropped) = (slot.clone(), dropped.clone());
        move |_| {
            let nic: Option<Fabric<MemoryWire>> = slot.lock().unwrap().take();
            drop(nic);
            dropped.store(true, Ordering::SeqCst);
        }
    };
    let connection = Connection {
        addresses: vec![nic.address()],
        bell: block.base().byte_add(DOORBELLS),
        keep: block.clone(),
        helped: false,
        polled: false,
        ranks_on_node: 1,
        failed: Box::new(failed),
        asks: Box::new(|_, _| {}),
    };
    // SAFETY: the block is zeroed, which is a bell, and kept.
    unsafe { nic.connect(connection) }.unwrap();
    *slot.lock().unwrap() = Some(nic);
    net.break_wire(0);
    let begun = Instant::now();
    while !dropped.load(Ordering::SeqCst) {
        assert!(begun.elapsed() < LONG, "it was not dropped to the end");
        std::thread::sleep(Duration::from_millis(1));
    }
}
