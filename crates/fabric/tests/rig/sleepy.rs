//! The wire in memory, of which all endpoints but the first sleep, and take writes, as a test says.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use tidegate_fabric::wire::{Event, Op, Posted, Sleeper, Wire as _};
use tidegate_fake::wire::MemoryWire;

use crate::rig::wrapped::{Far, Hooks, Outcome, Wrapped};

/// Longer than any sleep.
pub(crate) const DEEP: Duration = Duration::from_secs(30);

/// Keeps threads asleep.
#[derive(Default)]
pub(crate) struct Spell {
    pub(crate) cast: Mutex<bool>,
    pub(crate) broken: Condvar,
    /// Nothing on the wire wakes whom it is about.
    pub(crate) deafens: bool,
    /// They take one write in so long.
    pub(crate) slows: Option<Duration>,
    /// They take none for now.
    pub(crate) refuses: AtomicBool,
    /// How many are asleep by it.
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

/// The wire in memory, of which all but the first endpoint sleep as the spell has it.
pub(crate) struct Sleepy {
    is_twin: bool,
    spell: Arc<Spell>,
    /// What the next poll brings: whoever has posted must come again.
    later: Vec<Event>,
    /// When it took something last.
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

// SAFETY: all operations are the wire's.
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
