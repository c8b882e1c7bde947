//! How two queues of one endpoint affect each other, and an endpoint itself, when something goes wrong.

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
/// The offset of each queue's words.
const WORDS: [usize; 2] = [128, 384];
const SENT: usize = 64;
const SIGNAL: usize = 128;
const DATA: usize = 1024;
const LONG: Duration = Duration::from_secs(600);
/// Long enough for all to come to rest, and less than the silence after which a signal is given up.
const SETTLES: Duration = Duration::from_secs(4);

/// What a wire does wrong, and what it has done.
struct Wish {
    /// Operations are reported as failed after they have arrived.
    fail: AtomicBool,
    /// The peer to which nothing can be posted for now.
    full: AtomicUsize,
    /// How many operations other than poison were posted.
    posts: AtomicUsize,
    /// How many signals will be lost from now on, although their writes are reported as done.
    lose: AtomicUsize,
    /// The cookies of lost operations that are not reported as done yet.
    lost: Mutex<Vec<u64>>,
    /// How many reads were posted.
    reads: AtomicUsize,
    /// Holds back all events, as if the peer were stopped.
    hold: AtomicBool,
    held: Mutex<Vec<Event>>,
}

/// The wire in memory, which goes wrong as a test wishes.
struct Fickle {
    wish: Arc<Wish>,
}

// SAFETY: every operation is one of the wire below, or is lost and touches nothing.
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
            // The engine looks whether signals have come.
            Op::Read { .. } => {
                self.wish.reads.fetch_add(1, Ordering::SeqCst);
                // SAFETY: the caller's promise.
                return unsafe { wire.post(peer, op.handed_on(|remote| &**remote), cookie) };
            }
        };
        // A notice with the highest bit set poisons.
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

/// An endpoint with two queues towards `peers`. Rank 0 is the endpoint itself. Rank 1 does not listen, and has the same
/// memory.
struct Rig {
    block: Arc<HostBlock>,
    memory: RemoteMemory,
    /// The bell that signals ring.
    rung: RemoteMemory,
    queues: Vec<Arc<dyn NicQueue>>,
    wish: Arc<Wish>,
    /// The count of its words at the beginning.
    first: u64,
    nic: Arc<dyn Nic>,
    _plane: Arc<Plane>,
    _registrations: [Registration; 2],
    /// Dropped after the endpoint. No wire may fail here.
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
                updated: false,
                share: &share,
                keep: block.clone(),
            };
            // SAFETY: the block is kept; only programs touch the data.
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
                back: Ptr::NULL,
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
        // By now, the threads have looked for work, and sleep.
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

    /// Arms a program of a queue, with a put or with its signal alone.
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

    /// Waits until a word has come to a quantum, is poisoned, or does neither for long; returns it.
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

/// An operation may have arrived although it is reported as failed. The signal of another queue may have ridden along.
/// It must not be sent again: it would be an exposure that no rank has given.
#[test]
fn a_signal_that_rode_along_comes_once_at_most() {
    // If the engine looks between the two rings, it sends one after the other. So this tries several times.
    let went_along = (0..10).any(|_| went_along());
    assert!(went_along);
}

/// Returns whether the signal rode along. In each case, it must come once at most.
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
    // The signal of that peer is not lost, either.
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

/// A connection is lost and made again. A signal is lost with it, although no operation fails.
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
    // Both firings are through at this end. The second signal does not count as the first.
    assert_eq!(rig.wait(0, SENT, true), (2 * QUANTUM) | POISON);
    assert_eq!(rig.wait(0, SIGNAL, true), POISON);
    rig.arm(1, true);
    rig.word(1, 0).add(QUANTUM);
    rig.bell().ring();
    assert_eq!(rig.wait(1, SIGNAL, false), QUANTUM);
    assert!(rig.nic.quiesce(LONG));
    assert_eq!(rig.word(1, SENT).load(), QUANTUM);
}

/// If a peer has not answered yet, the engine asks, however busy the queue is. A provider that takes every operation
/// says nothing about the peer.
#[test]
fn a_queue_that_is_never_quiet_asks_until_its_peer_has_answered() {
    let silence = Duration::from_secs(1);
    let rig = Rig::with([0, 0], Options::default().silence(silence));
    let begun = Instant::now();
    // This lasts longer than a first answer may take, which is twice the silence.
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

/// A queue's memory is freed when its signals are known to have come, and not before.
#[test]
fn a_queue_that_ends_asks_how_many_signals_have_come() {
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
    // This add stands for the signal that comes late.
    rig.word(0, SIGNAL).add(QUANTUM);
    assert!(rig.nic.quiesce(LONG));
    let begun = Instant::now();
    while held(&rig) >= before {
        assert!(begun.elapsed() < LONG);
        std::thread::yield_now();
    }
    assert_eq!(rig.word(0, SENT).load(), QUANTUM);
}

/// A stopped peer does not answer. When it answers, it may not have added the signal yet.
#[test]
fn a_peer_that_is_stopped_for_long_has_lost_nothing() {
    // Long enough for a machine that stops this process but not the peer.
    let silence = Duration::from_secs(2);
    let rig = Rig::with([0, 0], Options::default().silence(silence));
    rig.arm(0, true);
    rig.word(0, 0).add(QUANTUM);
    rig.bell().ring();
    assert_eq!(rig.wait(0, SIGNAL, false), QUANTUM);
    assert!(rig.nic.quiesce(LONG));
    // The read is answered before the peer's agent comes to the signal.
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
    // The answer was a count that is too low, so the engine asks again.
    while rig.wish.reads.load(Ordering::SeqCst) == asked {
        assert!(begun.elapsed() < 2 * LONG, "nobody asks again");
        std::thread::yield_now();
    }
    rig.word(0, SIGNAL).add(QUANTUM);
    assert!(rig.nic.quiesce(LONG));
    assert_eq!(rig.word(0, SENT).load(), 2 * QUANTUM);
}

/// The count of a word need not begin at 0: that of exposures begins at a quantum.
#[test]
fn the_first_count_of_a_word_stands_for_no_signal() {
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

/// A peer that has left cannot be asked, and has received all that it waited for.
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
    // It is not asked about later firings, either.
    rig.wish.lose.store(1, Ordering::SeqCst);
    rig.arm(1, false);
    rig.word(1, 0).add(QUANTUM);
    rig.bell().ring();
    assert!(rig.nic.quiesce(LONG));
    assert_eq!(rig.word(1, SENT).load() & !POISON, 2 * QUANTUM);
}

/// A thread of the endpoint tells the program that the wire has failed. In that call, the program may drop the
/// endpoint.
#[test]
fn an_endpoint_may_be_dropped_in_the_call_that_tells_of_its_failure() {
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
