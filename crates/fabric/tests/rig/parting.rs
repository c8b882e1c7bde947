//! A wire that goes wrong as a test wishes, and a peer's departure that is held between its news and its end.
//!
//! [`between`] holds the thread that hears of the departure where the news has come, and lets it go on when a test has
//! seen what it waits for.
#![allow(dead_code, reason = "not every test uses everything")]

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use crate::rig::Rig;
pub(crate) use crate::rig::until;
use crate::rig::wrapped::{Hooks, Outcome, Wrapped};
use tidegate_fabric::Options;
use tidegate_fabric::wire::chain::{Chain, Signal, Stuck};
use tidegate_fabric::wire::memory::{Faults, MemoryWire, Net};
use tidegate_fabric::wire::{Event, Op, Posted, Sleeper, Wire as _};
use tidegate_hal::nic::{Direction, Keep, NicError, Register};

pub(crate) const LONG: Duration = Duration::from_secs(20);

/// Where the thread that hears of a departure is held. It waits for rounds of the listener, which it wakes for them: so
/// while that is not let out of its sleep, the first to wake it for them has heard the news, and no more.
#[derive(Default)]
pub(crate) struct Gate {
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
        let micros = limit.as_micros() as u64;
        self.wish.slept.fetch_max(micros, Ordering::SeqCst);
        if !gate.lock().closed {
            return self.sleeper.sleep(limit);
        }
        gate.change(|state| state.is_asleep = true);
        gate.wait(|state| !state.closed);
    }

    fn hears(&self) -> bool {
        !self.wish.deaf && self.sleeper.hears()
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
pub(crate) struct Wish {
    pub(crate) gate: Gate,
    /// The longest sleep that the listener has gone to, in microseconds; and whether nothing on the wire ends one.
    pub(crate) slept: AtomicU64,
    pub(crate) deaf: bool,
    /// Nothing is heard.
    pub(crate) hold: AtomicBool,
    /// What is done is said to have failed; and how often that was said.
    pub(crate) fail: AtomicBool,
    pub(crate) failed: AtomicUsize,
    /// The next transfer is refused; how many were, and how many were taken.
    pub(crate) refuse: AtomicBool,
    pub(crate) refused: AtomicUsize,
    pub(crate) taken: AtomicUsize,
    /// What is asked for is refused; how often that was so.
    pub(crate) blind: AtomicBool,
    pub(crate) blinded: AtomicUsize,
    /// What is asked for comes back so many milliseconds late; how often it was asked for, and (below) when which will.
    pub(crate) late: AtomicU64,
    pub(crate) asked: AtomicUsize,
    pub(crate) due: Mutex<HashMap<u64, Instant>>,
    /// Nobody can be told of a failure for now; how often that was so, and how often somebody was told.
    pub(crate) full: AtomicBool,
    pub(crate) untold: AtomicUsize,
    pub(crate) told: AtomicUsize,
    /// So many notices of a failure are lost from now on, although they are said to have come.
    pub(crate) lose: AtomicUsize,
    pub(crate) held: Mutex<Vec<Event>>,
    /// Those ranks that chains fire towards, and those towards which they fail; how often that was said.
    pub(crate) chains: HashSet<usize>,
    /// How many of their firings come through.
    pub(crate) through: AtomicU64,
    pub(crate) stuck: [AtomicBool; 2],
    pub(crate) seen_stuck: [AtomicUsize; 2],
}

impl Wish {
    pub(crate) fn told(&self) -> usize {
        self.told.load(Ordering::SeqCst)
    }

    /// What was posted fails, which the engine hears of.
    pub(crate) fn fails(&self) {
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
        let left = self.0.lose.load(Ordering::SeqCst);
        if tells && left > 0 {
            self.0.lose.store(left - 1, Ordering::SeqCst);
            self.0.told.fetch_add(1, Ordering::SeqCst);
            self.0.held.lock().unwrap().push(Event::Done(cookie));
            return Ok(Posted::Taken);
        }
        // No program here reads a word: so an engine finds out what has come.
        if matches!(op, Op::Read { bytes: 8, .. }) && self.0.blind.load(Ordering::SeqCst) {
            self.0.blinded.fetch_add(1, Ordering::SeqCst);
            return Err(NicError::BadKey("as was wished".into()));
        }
        if !tells && self.0.refuse.swap(false, Ordering::SeqCst) {
            self.0.refused.fetch_add(1, Ordering::SeqCst);
            return Err(NicError::BadKey("as was wished".into()));
        }
        let late = self.0.late.load(Ordering::SeqCst);
        if matches!(op, Op::Read { bytes: 8, .. }) && late > 0 {
            self.0.asked.fetch_add(1, Ordering::SeqCst);
            let due = Instant::now() + Duration::from_millis(late);
            self.0.due.lock().unwrap().insert(cookie, due);
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
            let mut due = self.0.due.lock().unwrap();
            let is_late = |event: &Event| match event {
                Event::Done(cookie) => due.get(cookie).is_some_and(|due| *due > Instant::now()),
                _ => false,
            };
            let (late, come): (Vec<_>, Vec<_>) = held.drain(..).partition(is_late);
            *held = late;
            for event in &come {
                if let Event::Done(cookie) = event {
                    due.remove(cookie);
                }
            }
            events.extend(come.into_iter().map(|event| match event {
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
        fires.then(|| {
            Box::new(Fails {
                wish,
                peer,
                fired: 0,
            }) as Box<dyn Chain<Wrapped<Self>>>
        })
    }

    fn sleeper(&self, sleeper: Box<dyn Sleeper>) -> Box<dyn Sleeper> {
        let wish = self.0.clone();
        Box::new(Gated { sleeper, wish })
    }
}

/// A chain that fires nothing, but says that it has, or fails, when it is to.
struct Fails {
    wish: Arc<Wish>,
    peer: usize,
    fired: u64,
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

    fn fire(&mut self, firings: u64) -> Result<(), NicError> {
        self.fired += firings;
        Ok(())
    }

    fn poll(&mut self, _rung: &dyn Fn() -> u64) -> Result<u64, Stuck> {
        if !self.wish.stuck[self.peer].load(Ordering::SeqCst) {
            let through = self.wish.through.load(Ordering::SeqCst);
            return Ok(through.min(self.fired));
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

pub(crate) fn odd(chains: &[usize]) -> (Rig, Arc<Wish>) {
    odd_with(Options::default(), chains)
}

/// Likewise, with these options.
pub(crate) fn odd_with(options: Options, chains: &[usize]) -> (Rig, Arc<Wish>) {
    let wish = Wish {
        chains: chains.iter().copied().collect(),
        ..Wish::default()
    };
    wishing(wish, options, false)
}

/// Likewise, whose wire is to do this; whose doorbells are polled, or not.
pub(crate) fn wishing(wish: Wish, options: Options, polled: bool) -> (Rig, Arc<Wish>) {
    let wish = Arc::new(wish);
    let wire = Net::new(1, Faults::default()).wire(0);
    let hooks = Odd(wish.clone());
    let rig = Rig::with(Wrapped { hooks, wire }, options, false, polled);
    (rig, wish)
}

/// An endpoint with an operation under way, of which nothing is heard.
pub(crate) fn busy(direction: Direction) -> (Rig, Arc<Wish>) {
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
pub(crate) fn settle(rig: &Rig) {
    // It is asked under the engine's lock.
    let _ = rig.nic.quiesce(Duration::ZERO);
}

/// A peer leaves: does something when the news of that has come, and before its end.
pub(crate) fn between(rig: &Rig, wish: &Wish, left: usize, act: impl FnOnce()) {
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
