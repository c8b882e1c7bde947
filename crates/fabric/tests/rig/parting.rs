//! A wire that goes wrong as a test wishes. A test can do so between the news of a peer's departure and its end.
#![allow(dead_code, reason = "not every test uses everything")]

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::rig::Rig;
pub(crate) use crate::rig::until;
use crate::rig::wrapped::{Far, Hooks, Outcome, Wrapped};
use tidegate_fabric::Options;
use tidegate_fabric::wire::chain::{Chain, Signal, Stuck};
use tidegate_fabric::wire::{Event, Op, Posted, Sleeper, Wire as _};
use tidegate_fake::wire::{Faults, MemoryWire, Net};
use tidegate_hal::nic::{Direction, Keep, News, NicError, Register};

pub(crate) const LONG: Duration = Duration::from_secs(600);

/// The sleeper of a wire, which notes how long the thread asked to sleep.
struct Noted {
    sleeper: Box<dyn Sleeper>,
    wish: Arc<Wish>,
}

impl Sleeper for Noted {
    fn sleep(&self, limit: Duration) {
        while self.wish.sleeps.load(Ordering::SeqCst) {
            self.wish.is_asleep.store(true, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(1));
        }
        let micros = limit.as_micros() as u64;
        self.wish.slept.fetch_max(micros, Ordering::SeqCst);
        self.sleeper.sleep(limit);
    }

    fn hears(&self) -> bool {
        !self.wish.deaf && self.sleeper.hears()
    }

    fn wake(&self) {
        self.sleeper.wake();
    }
}

/// What a wire does wrong, and what it has done.
#[derive(Default)]
pub(crate) struct Wish {
    /// The longest sleep that the listener has begun, in microseconds; and whether nothing on the wire ends a sleep.
    pub(crate) slept: AtomicU64,
    pub(crate) deaf: bool,
    /// The listener is kept asleep; and whether it sleeps so now.
    pub(crate) sleeps: AtomicBool,
    pub(crate) is_asleep: AtomicBool,
    /// No events come.
    pub(crate) hold: AtomicBool,
    /// Operations that are done are reported as failed; and how many were.
    pub(crate) fail: AtomicBool,
    pub(crate) failed: AtomicUsize,
    /// The next transfer is refused; and how many were refused, and how many were taken.
    pub(crate) refuse: AtomicBool,
    pub(crate) refused: AtomicUsize,
    pub(crate) taken: AtomicUsize,
    /// Reads of words are refused; and how many were.
    pub(crate) blind: AtomicBool,
    pub(crate) blinded: AtomicUsize,
    /// Reads of words end so many milliseconds late; and how many were posted, and when each will end.
    pub(crate) late: AtomicU64,
    pub(crate) asked: AtomicUsize,
    pub(crate) due: Mutex<HashMap<u64, Instant>>,
    /// Messages that tell of a failure are refused for good; and how many were.
    pub(crate) deny: AtomicBool,
    pub(crate) denied: AtomicUsize,
    /// Messages that tell of a failure find no room for now; and how many found none, and how many were sent.
    pub(crate) full: AtomicBool,
    pub(crate) untold: AtomicUsize,
    pub(crate) told: AtomicUsize,
    /// How many messages that tell of a failure will be lost from now on, although they are reported as done.
    pub(crate) lose: AtomicUsize,
    pub(crate) held: Mutex<Vec<Event>>,
    /// The ranks that chains fire towards. Below: whether those chains fail, and how often they have said so.
    pub(crate) chains: HashSet<usize>,
    /// How many firings of a chain come through.
    pub(crate) through: AtomicU64,
    pub(crate) stuck: [AtomicBool; 2],
    pub(crate) seen_stuck: [AtomicUsize; 2],
}

impl Wish {
    pub(crate) fn told(&self) -> usize {
        self.told.load(Ordering::SeqCst)
    }

    /// Makes the operations that are under way fail, and waits until the engine hears of it.
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

// SAFETY: every operation is one of the wire below, or is not taken. Chains touch nothing.
unsafe impl Hooks for Odd {
    type Wire = MemoryWire;

    unsafe fn post(
        &mut self,
        wire: &mut MemoryWire,
        peer: usize,
        op: Op<'_, Far<Self>>,
        cookie: u64,
    ) -> Outcome<Posted> {
        // All programs here have data, so a notice without data tells of a failure.
        let tells = matches!(op, Op::Notify(_));
        if tells && self.0.full.load(Ordering::SeqCst) {
            self.0.untold.fetch_add(1, Ordering::SeqCst);
            return Ok(Posted::Full);
        }
        if tells && self.0.deny.load(Ordering::SeqCst) {
            self.0.denied.fetch_add(1, Ordering::SeqCst);
            return Err(NicError::BadKey("as was wished".into()));
        }
        let left = self.0.lose.load(Ordering::SeqCst);
        if tells && left > 0 {
            self.0.lose.store(left - 1, Ordering::SeqCst);
            self.0.told.fetch_add(1, Ordering::SeqCst);
            self.0.held.lock().unwrap().push(Event::Done(cookie));
            return Ok(Posted::Taken);
        }
        // No program here reads a word. So this read is the engine's, which looks whether a signal has come.
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

    fn chain(&mut self, peer: usize) -> Option<Box<dyn Chain<Far<Self>>>> {
        let wish = self.0.clone();
        let fires = self.0.chains.contains(&peer);
        fires.then(|| {
            Box::new(Fails {
                wish,
                peer,
                fired: 0,
            }) as Box<dyn Chain<Far<Self>>>
        })
    }

    fn sleeper(&self, sleeper: Box<dyn Sleeper>) -> Box<dyn Sleeper> {
        let wish = self.0.clone();
        Box::new(Noted { sleeper, wish })
    }
}

/// A chain that fires nothing. It says that it has fired, or fails, as the test wishes.
struct Fails {
    wish: Arc<Wish>,
    peer: usize,
    fired: u64,
}

impl Chain<Far<Odd>> for Fails {
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
        _pieces: &[Op<'_, Far<Odd>>],
        _signal: &Signal<'_, Far<Odd>>,
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

/// The same, with these options.
pub(crate) fn odd_with(options: Options, chains: &[usize]) -> (Rig, Arc<Wish>) {
    let wish = Wish {
        chains: chains.iter().copied().collect(),
        ..Wish::default()
    };
    wishing(wish, options, false)
}

/// The same, with a wire that does this. Its doorbells are polled, or not.
pub(crate) fn wishing(wish: Wish, options: Options, polled: bool) -> (Rig, Arc<Wish>) {
    let wish = Arc::new(wish);
    let wire = Net::new(1, Faults::default()).wire(0);
    let hooks = Odd(wish.clone());
    let rig = Rig::with(Wrapped { hooks, wire }, options, false, polled);
    (rig, wish)
}

/// An endpoint with an operation under way, whose end does not come.
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

/// Waits until the engine has handled all events that have come by now.
pub(crate) fn settle(rig: &Rig) {
    // The call takes the lock under which a thread turns the engine.
    let _ = rig.nic.quiesce(Duration::ZERO);
}

/// Lets a peer leave. `act` is called between the news of the departure and its end.
pub(crate) fn between(rig: &Rig, left: usize, act: impl FnOnce()) {
    rig.nic.hear(left, News::Leaves);
    act();
    settle(rig);
    rig.leaves(left);
}
