//! A queue of armed programs, which the arming host and the firing agent share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tidegate_hal::armed::Armed;
use tidegate_hal::batch::{POISON, QUANTUM};
use tidegate_hal::memory::Ptr;
use tidegate_hal::nic::{Keep, NicError, Prepared, QueueConfig};
use tidegate_hal::slots::{Member, TriggerSlots};
use tidegate_words::{Bell, Word};

use super::departure::{Departure, Stage};
use crate::base::lock;

pub(crate) struct Queue {
    pub(crate) peer: usize,
    /// The peer's departure, which all queues towards it share.
    departure: Arc<Departure>,
    config: QueueConfig,
    /// The first count of the sent word.
    sent_before: u64,
    /// The endpoint's trigger slots. A program takes one, however many pieces it has, because it is one entry of the
    /// engine.
    slots: Arc<TriggerSlots>,
    member: Member,
    /// How many firings have begun. Only the agent counts them, under the engine's lock.
    fired: AtomicU64,
    armed: Mutex<Armed>,
    /// Whether the owner has been dropped.
    pub(crate) closed: AtomicBool,
}

/// What the agent must do for a queue.
pub(crate) enum Seen {
    Nothing,
    /// Fire this program, as far as its ring has come.
    Rung(Prepared, Ring),
    /// The stream that rings has failed.
    Poisoned,
    /// The owner has been dropped, and nothing more will be rung for.
    Over,
}

/// How much of the ring of a firing has come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ring {
    Whole,
    /// This many parts of it.
    Parts(u64),
    /// A part of it, and the rest will not come.
    Broken,
}

/// # Safety
///
/// `ptr` points to a word that is live for `'a`.
unsafe fn word<'a>(ptr: Ptr) -> &'a Word {
    // SAFETY: the caller's promise; words are only ever accessed atomically.
    unsafe { &*ptr.0.cast::<Word>() }
}

impl Queue {
    pub(crate) fn new(
        peer: usize,
        departure: Arc<Departure>,
        config: QueueConfig,
        slots: &Arc<TriggerSlots>,
    ) -> Self {
        // SAFETY: `Nic::queue` promises live words for as long as `config.keep`. The word may be poisoned already, if
        // the window has been revoked.
        let sent_before = unsafe { word(config.sent) }.load() & !POISON;
        Queue {
            peer,
            departure,
            config,
            sent_before,
            slots: slots.clone(),
            member: slots.join(),
            fired: AtomicU64::new(0),
            armed: Mutex::default(),
            closed: AtomicBool::new(false),
        }
    }

    /// The stage of the peer's departure.
    pub(crate) fn departure(&self) -> Stage {
        self.departure.stage()
    }

    /// The address of the word of this rank that the peer's queue signals, or 0.
    pub(crate) fn back(&self) -> usize {
        self.config.back.0.addr()
    }

    /// Keeps what the queue keeps.
    pub(crate) fn keep(&self) -> Keep {
        self.config.keep.clone()
    }

    fn doorbell(&self) -> u64 {
        // SAFETY: `Nic::queue` promises live words for as long as `config.keep`, which this holds.
        unsafe { word(self.config.doorbell) }.load()
    }

    fn sent(&self) -> (&Word, &Bell) {
        // SAFETY: as for `doorbell`; the bell too, and it is only accessed atomically.
        unsafe {
            (
                word(self.config.sent),
                &*self.config.sent_bell.0.cast::<Bell>(),
            )
        }
    }

    /// How often the queue has been rung, and whether the stream that rings has failed.
    pub(crate) fn rung_for(&self) -> (u64, bool) {
        let doorbell = self.doorbell();
        (self.rung(doorbell), doorbell & POISON != 0)
    }

    /// The armed program that fires after `after` others.
    pub(crate) fn armed(&self, after: usize) -> Option<Prepared> {
        lock(&self.armed).get(after).cloned()
    }

    /// How many of the armed programs have a trigger slot, so that hardware may know of them. `waits` says that the
    /// first has been rung for.
    pub(crate) fn slots(&self, waits: bool) -> usize {
        match self.slots.held(self.member) {
            0 if waits => usize::from(self.slots.fire(self.member)),
            held => held,
        }
    }

    /// The bell of the threads that may sleep on the sent word.
    pub(crate) fn sleeper(&self) -> Ptr {
        self.config.sent_bell
    }

    /// Wakes the threads that sleep on that bell.
    pub(crate) fn wake(&self) {
        self.sent().1.ring();
    }

    fn rung(&self, doorbell: u64) -> u64 {
        (doorbell & !POISON) / QUANTUM
    }

    /// Arms programs, `times` times over. Returns whether that added any.
    pub(crate) fn arm(&self, programs: &Arc<[Prepared]>, times: u64) -> Result<bool, NicError> {
        let mut armed = lock(&self.armed);
        let added = armed.arm(programs, times)?;
        if added > 0 {
            // Under the lock: a queue that gives up returns all its slots, once.
            self.slots.arm(self.member, added);
        }
        Ok(added > 0)
    }

    /// How many programs were armed, and how many of them are through.
    pub(crate) fn counts(&self) -> (u64, u64) {
        self.slots.counts(self.member)
    }

    /// Whether everything that was rung for is through, or nobody waits for it any more because the window is revoked
    /// or the peer is lost.
    pub(crate) fn is_idle(&self) -> bool {
        let rung = self.doorbell() & !POISON;
        let sent = self.sent().0.load() & !POISON;
        lock(&self.armed).has_given_up() || self.is_abandoned() || sent - self.sent_before == rung
    }

    /// Whether the rank has given up its waits for this queue, because the peer is lost or the window is revoked.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.sent().0.load() & POISON != 0
    }

    /// How much of its ring has come for a firing that began with a part of it.
    pub(crate) fn ring_of(&self, number: u64) -> Ring {
        // Read this before the doorbell: when the owner closes the queue, it has rung for the last time.
        let closed = self.closed.load(Ordering::Acquire);
        // This is an acquire, as in `look`.
        let doorbell = self.doorbell();
        if self.rung(doorbell) > number {
            Ring::Whole
        } else if closed || doorbell & POISON != 0 {
            Ring::Broken
        } else {
            Ring::Parts(doorbell % QUANTUM)
        }
    }

    /// Whether there may be something to do. To be called only while no program of this queue is being fired.
    pub(crate) fn calls(&self) -> bool {
        self.closed.load(Ordering::Acquire)
            || self.doorbell() != self.fired.load(Ordering::Relaxed) * QUANTUM
    }

    /// Counts a firing that begins, and returns its number. To be called under the engine's lock, so that nothing else
    /// counts.
    pub(crate) fn fires(&self) -> u64 {
        let number = self.fired.load(Ordering::Relaxed);
        self.fired.store(number + 1, Ordering::Relaxed);
        number
    }

    /// What the agent must do. To be called only while no program of this queue is being fired.
    pub(crate) fn look(&self) -> Seen {
        if !self.calls() {
            return Seen::Nothing;
        }
        // Read this before the doorbell, as in `ring_of`.
        let closed = self.closed.load(Ordering::Acquire);
        // This is an acquire, so the NIC reads what the stream did before it rang.
        let doorbell = self.doorbell();
        let armed = lock(&self.armed);
        let is_whole = self.rung(doorbell) > self.fired.load(Ordering::Relaxed);
        // A firing whose ring will never be whole must not begin.
        let parts = match doorbell % QUANTUM {
            _ if is_whole || closed || doorbell & POISON != 0 => 0,
            parts => parts,
        };
        if !armed.has_given_up() && (is_whole || parts > 0) {
            debug_assert!(!armed.is_empty(), "arm comes before the batch that rings");
            if let Some(program) = armed.first() {
                return if self.slots.fire(self.member) {
                    let ring = if is_whole {
                        Ring::Whole
                    } else {
                        Ring::Parts(parts)
                    };
                    Seen::Rung(program.clone(), ring)
                } else {
                    Seen::Nothing
                };
            }
        }
        match (closed, doorbell & POISON != 0 && !armed.has_given_up()) {
            (true, _) => Seen::Over,
            (false, true) => Seen::Poisoned,
            (false, false) => Seen::Nothing,
        }
    }

    /// Notes that the program being fired is through.
    pub(crate) fn through(&self) {
        // Free the place before the sent word counts, so that a thread that has waited for it finds room.
        let over = lock(&self.armed).through();
        self.slots.through(self.member);
        let (sent, bell) = self.sent();
        sent.add(QUANTUM);
        bell.ring();
        drop(over);
    }

    /// Handles a lost signal that was through at this end: poisons the sent word, so that nobody relies on this queue
    /// any more.
    pub(crate) fn lose(&self) {
        let (sent, bell) = self.sent();
        sent.poison();
        bell.wake_all();
    }

    /// Gives the queue up. Returns the armed programs, whose words must be poisoned; none if the queue had given up
    /// before.
    pub(crate) fn give_up(&self) -> Vec<Prepared> {
        let (runs, closed) = {
            let mut armed = lock(&self.armed);
            let Some(runs) = armed.give_up() else {
                return Vec::new();
            };
            (runs, self.closed.load(Ordering::Acquire))
        };
        // If the owner was dropped in good order, nobody waits for anything. This comes before the slots are returned.
        // So if as many programs are through as were armed, and the sent word is not poisoned, all has gone well.
        if !closed || !runs.is_empty() {
            let (sent, bell) = self.sent();
            sent.poison();
            bell.wake_all();
        }
        self.slots.give_up(self.member);
        runs.iter().flat_map(|run| run.iter().cloned()).collect()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.slots.leave(self.member);
    }
}
