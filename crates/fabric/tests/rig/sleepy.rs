//! The wire in memory. A test says when its endpoints, except for the first, sleep, and when they take writes.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use tidegate_fabric::wire::{Event, Op, Posted, Sleeper, Wire as _};
use tidegate_fake::wire::MemoryWire;

use crate::rig::wrapped::{Far, Hooks, Outcome, Wrapped};

/// Longer than any sleep.
pub(crate) const DEEP: Duration = Duration::from_secs(30);

/// Keeps the threads of those endpoints asleep, and keeps the endpoints from taking writes.
#[derive(Default)]
pub(crate) struct Spell {
    pub(crate) cast: Mutex<bool>,
    pub(crate) broken: Condvar,
    /// Nothing on the wire wakes the threads.
    pub(crate) deafens: bool,
    /// The endpoints take one write in this time.
    pub(crate) slows: Option<Duration>,
    /// The endpoints take no write for now.
    pub(crate) refuses: AtomicBool,
    /// How many threads it keeps asleep.
    pub(crate) asleep: AtomicUsize,
}

impl Spell {
    pub(crate) fn cast(&self) {
        *self.cast.lock().unwrap() = true;
    }

    pub(crate) fn lift(&self) {
        *self.cast.lock().unwrap() = false;
        self.broken.notify_all();
    }
}

struct Deep(Box<dyn Sleeper>, Arc<Spell>);

impl Sleeper for Deep {
    fn sleep(&self, limit: Duration) {
        let cast = self.1.cast.lock().unwrap();
        if !*cast {
            drop(cast);
            return self.0.sleep(limit);
        }
        self.1.asleep.fetch_add(1, Ordering::SeqCst);
        let woken = self.1.broken.wait_timeout_while(cast, DEEP, |cast| *cast);
        drop(woken.unwrap());
        self.1.asleep.fetch_sub(1, Ordering::SeqCst);
    }

    fn wake(&self) {
        self.0.wake();
    }

    fn hears(&self) -> bool {
        !self.1.deafens && self.0.hears()
    }
}

/// The wire in memory. The spell says how its endpoints, except for the first, sleep.
pub(crate) struct Sleepy {
    is_twin: bool,
    spell: Arc<Spell>,
    /// Events for the next poll: so a thread that has posted must poll again.
    later: Vec<Event>,
    /// When it last took a write.
    took: Option<Instant>,
}

impl Sleepy {
    pub(crate) fn over(wire: MemoryWire, spell: Arc<Spell>) -> Wrapped<Self> {
        let hooks = Sleepy {
            is_twin: false,
            spell,
            later: Vec::new(),
            took: None,
        };
        Wrapped { hooks, wire }
    }
}

// SAFETY: every operation is one of the wire below.
unsafe impl Hooks for Sleepy {
    type Wire = MemoryWire;

    unsafe fn post(
        &mut self,
        wire: &mut MemoryWire,
        peer: usize,
        op: Op<'_, Far<Self>>,
        cookie: u64,
    ) -> Outcome<Posted> {
        let pause = self.spell.slows.filter(|_| self.is_twin);
        let early = |took: Instant| pause.is_some_and(|pause| took.elapsed() < pause);
        let refuses = self.is_twin && self.spell.refuses.load(Ordering::SeqCst);
        if refuses || self.took.is_some_and(early) {
            return Ok(Posted::Full);
        }
        self.took = Some(Instant::now());
        // SAFETY: the caller's promise.
        unsafe { wire.post(peer, op.handed_on(|remote| &**remote), cookie) }
    }

    fn poll(&mut self, wire: &mut MemoryWire, events: &mut Vec<Event>) -> Outcome<()> {
        events.append(&mut self.later);
        wire.poll(&mut self.later)
    }

    fn may_sleep(&self) -> bool {
        self.later.is_empty()
    }

    fn twin(&self) -> Option<Self> {
        Some(Sleepy {
            is_twin: true,
            spell: self.spell.clone(),
            later: Vec::new(),
            took: None,
        })
    }

    fn sleeper(&self, sleeper: Box<dyn Sleeper>) -> Box<dyn Sleeper> {
        match self.is_twin {
            false => sleeper,
            true => Box::new(Deep(sleeper, self.spell.clone())),
        }
    }
}
