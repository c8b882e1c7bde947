//! What fails while a peer leaves: between the news of that and its end.
//!
//! [`between`] holds the thread that hears of the departure where the news has come, and lets it go on when a test has
//! seen what it waits for.

mod rig;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use rig::wrapped::{Hooks, Outcome, Wrapped};
use rig::{Rig, SENT, SIGNAL};
use tidegate_fabric::Options;
use tidegate_fabric::wire::chain::{Chain, Signal, Stuck};
use tidegate_fabric::wire::memory::{Faults, MemoryWire, Net};
use tidegate_fabric::wire::{Event, Op, Posted, Sleeper, Wire as _};
use tidegate_hal::batch::{POISON, QUANTUM};
use tidegate_hal::nic::{Direction, Keep, NicError, Register};

const LONG: Duration = Duration::from_secs(20);

/// Until this is so.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LONG, "{what}");
        std::thread::yield_now();
    }
}

/// Where the thread that hears of a departure is held. It waits for rounds of the listener, which it wakes for them: so
/// while that is not let out of its sleep, the first to wake it for them has heard the news, and no more.
#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Default)]
struct State {
    /// The listener stays asleep.
    closed: bool,
    is_asleep: bool,
    /// Who is held when it wakes the listener, and whether it is held.
    hearer: Option<ThreadId>,
    is_held: bool,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.moved.notify_all();
    }

    /// Waits until this is so. A test that fails meanwhile lets everybody go.
    fn wait(&self, is_so: impl Fn(&State) -> bool) {
        let waits = |state: &mut State| !is_so(state);
        let waited = self.moved.wait_timeout_while(self.lock(), LONG, waits);
        let (state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        drop(state);
        assert!(!waited.timed_out(), "waited in vain");
    }

    fn open(&self) {
        self.change(|state| *state = State::default());
    }
}

/// Opens a gate, however a test ends.
struct Opens<'a>(&'a Gate);

impl Drop for Opens<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// The sleeper of a wire with a gate.
struct Gated {
    sleeper: Box<dyn Sleeper>,
    wish: Arc<Wish>,
}

impl Sleeper for Gated {
    fn sleep(&self, limit: Duration) {
        let gate = &self.wish.gate;
        if !gate.lock().closed {
            return self.sleeper.sleep(limit);
        }
        gate.change(|state| state.is_asleep = true);
        gate.wait(|state| !state.closed);
    }

    fn wake(&self) {
        let gate = &self.wish.gate;
        let me = Some(std::thread::current().id());
        if gate.lock().hearer == me {
            // The listener goes on.
            gate.change(|state| (state.is_held, state.closed) = (true, false));
            gate.wait(|state| state.hearer != me);
        }
        self.sleeper.wake();
    }
}

/// What a wire is to do, and what it has done.
#[derive(Default)]
struct Wish {
    gate: Gate,
    /// Nothing is heard.
    hold: AtomicBool,
    /// What is done is said to have failed; and how often that was said.
    fail: AtomicBool,
    failed: AtomicUsize,
    /// The next transfer is refused; how many were, and how many were taken.
    refuse: AtomicBool,
    refused: AtomicUsize,
    taken: AtomicUsize,
    /// Nobody can be told of a failure for now; how often that was so, and how often somebody was told.
    full: AtomicBool,
    untold: AtomicUsize,
    told: AtomicUsize,
    held: Mutex<Vec<Event>>,
    /// Those ranks that chains fire towards, and those towards which they fail; how often that was said.
    chains: HashSet<usize>,
    stuck: [AtomicBool; 2],
    seen_stuck: [AtomicUsize; 2],
}

impl Wish {
    fn told(&self) -> usize {
        self.told.load(Ordering::SeqCst)
    }

    /// What was posted fails, which the engine hears of.
    fn fails(&self) {
        let before = self.failed.load(Ordering::SeqCst);
        self.fail.store(true, Ordering::SeqCst);
        self.hold.store(false, Ordering::SeqCst);
        until("nothing fails", || {
            self.failed.load(Ordering::SeqCst) > before
        });
    }
}

struct Odd(Arc<Wish>);

// SAFETY: operations are the wire's, or are not taken. Chains touch nothing.
unsafe impl Hooks for Odd {
    type Wire = MemoryWire;

    unsafe fn post(
        &mut self,
        wire: &mut MemoryWire,
        peer: usize,
        op: Op<'_, Wrapped<Self>>,
        cookie: u64,
    ) -> Outcome<Posted> {
        // All programs here have data: so what has none tells of a failure.
        let tells = matches!(op, Op::Notify(_));
        if tells && self.0.full.load(Ordering::SeqCst) {
            self.0.untold.fetch_add(1, Ordering::SeqCst);
            return Ok(Posted::Full);
        }
        if !tells && self.0.refuse.swap(false, Ordering::SeqCst) {
            self.0.refused.fetch_add(1, Ordering::SeqCst);
            return Err(NicError::BadKey("as was wished".into()));
        }
        // SAFETY: the caller's promise.
        let posted = unsafe { wire.post(peer, op.handed_on(|remote| &**remote), cookie) };
        let count = if tells { &self.0.told } else { &self.0.taken };
        count.fetch_add(1, Ordering::SeqCst);
        posted
    }

    fn poll(&mut self, wire: &mut MemoryWire, events: &mut Vec<Event>) -> Outcome<()> {
        let mut held = self.0.held.lock().unwrap();
        wire.poll(&mut held)?;
        if !self.0.hold.load(Ordering::SeqCst) {
            let fail = self.0.fail.load(Ordering::SeqCst);
            events.extend(held.drain(..).map(|event| match event {
                Event::Done(cookie) if fail => {
                    self.0.failed.fetch_add(1, Ordering::SeqCst);
                    Event::Failed(cookie, "the connection has ended".into())
                }
                other => other,
            }));
        }
        Ok(())
    }

    fn chain(&mut self, peer: usize) -> Option<Box<dyn Chain<Wrapped<Self>>>> {
        let wish = self.0.clone();
        let fires = self.0.chains.contains(&peer);
        fires.then(|| Box::new(Fails { wish, peer }) as Box<dyn Chain<Wrapped<Self>>>)
    }

    fn sleeper(&self, sleeper: Box<dyn Sleeper>) -> Box<dyn Sleeper> {
        let wish = self.0.clone();
        Box::new(Gated { sleeper, wish })
    }
}

/// A chain that fires nothing, and fails when it is to.
struct Fails {
    wish: Arc<Wish>,
    peer: usize,
}

impl Chain<Wrapped<Odd>> for Fails {
    fn depth(&self) -> usize {
        1
    }

    fn fits(&self, _pieces: usize) -> Result<(), NicError> {
        Ok(())
    }

    fn register(&self) -> Option<Register> {
        None
    }

    fn struck_by_streams(&mut self) {}

    fn missing(&self, _rung: u64) -> u64 {
        0
    }

    unsafe fn queue(
        &mut self,
        _pieces: &[Op<'_, Wrapped<Odd>>],
        _signal: &Signal<'_, Wrapped<Odd>>,
        _keep: &Keep,
    ) -> Result<Posted, NicError> {
        Ok(Posted::Taken)
    }

    fn fire(&mut self, _firings: u64) -> Result<(), NicError> {
        Ok(())
    }

    fn poll(&mut self, _rung: &dyn Fn() -> u64) -> Result<u64, Stuck> {
        if !self.wish.stuck[self.peer].load(Ordering::SeqCst) {
            return Ok(0);
        }
        self.wish.seen_stuck[self.peer].fetch_add(1, Ordering::SeqCst);
        let error = NicError::BadKey("as was wished".into());
        Err(Stuck { at: 0, error })
    }

    fn failed(&mut self, _context: usize) -> Option<u64> {
        None
    }

    fn cancel(&mut self) {}
}

fn odd(chains: &[usize]) -> (Rig, Arc<Wish>) {
    let wish = Arc::new(Wish {
        chains: chains.iter().copied().collect(),
        ..Wish::default()
    });
    let wire = Net::new(1, Faults::default()).wire(0);
    let hooks = Odd(wish.clone());
    let rig = Rig::new(Wrapped { hooks, wire }, Options::default(), false);
    (rig, wish)
}

/// An endpoint with an operation under way, of which nothing is heard.
fn busy(direction: Direction) -> (Rig, Arc<Wish>) {
    let (rig, wish) = odd(&[]);
    wish.hold.store(true, Ordering::SeqCst);
    let transfer = rig.transfer(&rig.memory, direction, 1);
    rig.arm(&[rig.program(vec![transfer])], 2).unwrap();
    rig.ring();
    until("nothing is posted", || {
        wish.taken.load(Ordering::SeqCst) == 1
    });
    (rig, wish)
}

/// Whoever turns the engine has done what it has heard of by now.
fn settle(rig: &Rig) {
    // It is asked under the engine's lock.
    let _ = rig.nic.quiesce(Duration::ZERO);
}

/// A peer leaves: does something when the news of that has come, and before its end.
fn between(rig: &Rig, wish: &Wish, left: usize, act: impl FnOnce()) {
    let (gate, nic) = (&wish.gate, &rig.nic);
    gate.change(|state| state.closed = true);
    std::thread::scope(|scope| {
        let opens = Opens(gate);
        gate.wait(|state| state.is_asleep);
        scope.spawn(|| {
            gate.change(|state| state.hearer = Some(std::thread::current().id()));
            nic.hear(left);
        });
        gate.wait(|state| state.is_held);
        act();
        settle(rig);
        drop(opens);
    });
}

/// Its connections end, and the acknowledgement of what has come was not heard of.
#[test]
fn a_put_that_fails_is_no_failure() {
    let (rig, wish) = busy(Direction::Put);
    between(&rig, &wish, 0, || {
        wish.fails();
        settle(&rig);
        assert_eq!(rig.word(SENT).load(), 0, "it is not known yet what it is");
    });
    assert_eq!(rig.wait(SENT, 1), QUANTUM);
    rig.ring();
    assert_eq!(rig.wait(SENT, 2), 2 * QUANTUM);
    assert!(rig.nic.quiesce(LONG));
    assert_eq!((rig.word(SIGNAL).load() & POISON, wish.told()), (0, 0));
}

/// Likewise a part of one, of whose ring the rest comes when the peer has left: it is through then, and not before.
#[test]
fn a_part_of_a_put_that_fails_is_no_failure() {
    let (rig, wish) = odd(&[]);
    wish.hold.store(true, Ordering::SeqCst);
    let put = |to, stage| {
        let mut put = rig.transfer(&rig.memory, Direction::Put, to);
        put.stage = stage;
        put
    };
    let parts = rig.program(vec![put(1, 0), put(2, 1)]);
    rig.arm(&[parts, rig.put(3)], 1).unwrap();
    rig.ring_part(0, 0, 2);
    until("nothing is posted", || {
        wish.taken.load(Ordering::SeqCst) == 1
    });
    between(&rig, &wish, 0, || wish.fails());
    settle(&rig);
    assert_eq!(rig.word(SENT).load(), 0, "the stream is not there yet");
    rig.ring_part(0, 1, 2);
    assert_eq!(rig.wait(SENT, 1), QUANTUM);
    rig.ring();
    assert_eq!(rig.wait(SENT, 2), 2 * QUANTUM);
    assert!(rig.nic.quiesce(LONG));
    assert_eq!((rig.word(SIGNAL).load() & POISON, wish.told()), (0, 0));
}

/// Likewise what is not taken at all, of a queue that is made while the peer leaves.
#[test]
fn a_put_of_a_new_queue_that_is_refused_is_no_failure() {
    let (rig, wish) = busy(Direction::Put);
    let mut made = None;
    between(&rig, &wish, 0, || {
        let beside = made.insert(rig.beside());
        wish.refuse.store(true, Ordering::SeqCst);
        beside.fires(&rig, rig.put(2));
        until("nothing is refused", || {
            wish.refused.load(Ordering::SeqCst) == 1
        });
        settle(&rig);
        assert_eq!(beside.sent(), 0, "it is not known yet what it is");
    });
    let beside = made.unwrap();
    until("it is never through", || beside.sent() != 0);
    assert_eq!(beside.sent(), QUANTUM);
    wish.hold.store(false, Ordering::SeqCst);
    assert_eq!(rig.wait(SENT, 1), QUANTUM);
    assert!(rig.nic.quiesce(LONG));
    assert_eq!(wish.told(), 0);
}

/// What only the peer could bring has not come; but nobody is there who would have to be told.
#[test]
fn a_get_that_fails_is_a_failure_that_the_peer_is_not_told_of() {
    let (rig, wish) = busy(Direction::Get);
    between(&rig, &wish, 0, || {
        wish.fails();
        assert_ne!(rig.wait(SENT, 1) & POISON, 0);
    });
    assert!(rig.nic.quiesce(LONG));
    assert_eq!(wish.told(), 0);
}

/// A put fails at once.
fn a_put_is_refused(rig: &Rig, wish: &Wish) {
    wish.refuse.store(true, Ordering::SeqCst);
    rig.arm(&[rig.put(1)], 1).unwrap();
    rig.ring();
}

/// The queue has failed: how often the peer was told when all is over.
fn told_of_a_failure(rig: &Rig, wish: &Wish) -> usize {
    assert_ne!(rig.wait(SENT, 1) & POISON, 0);
    assert!(rig.nic.quiesce(LONG));
    wish.told()
}

/// A put has failed before, and what tells the peer of that is under way when the news comes.
#[test]
fn what_does_not_reach_the_peer_is_not_told_again() {
    let (rig, wish) = odd(&[]);
    wish.hold.store(true, Ordering::SeqCst);
    a_put_is_refused(&rig, &wish);
    until("nobody is told", || wish.told() == 1);
    between(&rig, &wish, 0, || wish.fails());
    assert_eq!(told_of_a_failure(&rig, &wish), 1);
}

/// Or it has not gone out by then.
#[test]
fn what_the_peer_was_to_be_told_is_dropped() {
    let (rig, wish) = odd(&[]);
    wish.full.store(true, Ordering::SeqCst);
    a_put_is_refused(&rig, &wish);
    until("nobody is to be told", || {
        wish.untold.load(Ordering::SeqCst) > 0
    });
    between(&rig, &wish, 0, || wish.full.store(false, Ordering::SeqCst));
    assert_eq!(told_of_a_failure(&rig, &wish), 0);
}

/// What hardware fires is given up when it has come to rest. That of a peer which stays, and has failed later, says when
/// that must have been.
#[test]
fn a_chain_that_fails_is_no_failure() {
    let (rig, wish) = odd(&[0, 1]);
    let leaving = rig.beside_towards(1);
    leaving.fires(&rig, rig.put(2));
    rig.arm(&[rig.put(1)], 1).unwrap();
    let stuck = |peer: usize| {
        wish.stuck[peer].store(true, Ordering::SeqCst);
        until("nothing fails", || {
            wish.seen_stuck[peer].load(Ordering::SeqCst) > 0
        });
    };
    between(&rig, &wish, 1, || {
        stuck(1);
        rig.ring();
        stuck(0);
        assert_ne!(rig.wait(SENT, 1) & POISON, 0);
        assert_eq!(leaving.sent(), 0, "it is not known yet what it is");
    });
    until("it is never through", || leaving.sent() != 0);
    assert_eq!(leaving.sent(), QUANTUM);
    assert!(rig.nic.quiesce(LONG));
    // By the queue that has failed.
    assert_eq!(wish.told(), 1);
}
