//! A queue of armed programs: what the host that arms and the agent that fires share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tidegate_hal::armed::Armed;
use tidegate_hal::batch::{POISON, QUANTUM};
use tidegate_hal::memory::Ptr;
use tidegate_hal::nic::{NicError, Prepared, QueueConfig};
use tidegate_hal::slots::{Member, TriggerSlots};
use tidegate_words::{Bell, Word};

use super::departure::{Departure, Stage};
use crate::base::lock;

pub(crate) struct Queue {
    pub(crate) peer: usize,
    /// The peer's, which all queues towards it look at.
    departure: Arc<Departure>,
    config: QueueConfig,
    /// What the sent word counted at first.
    sent_before: u64,
    /// The endpoint's trigger slots: one a program, however many pieces it has, since the engine has one entry for it.
    slots: Arc<TriggerSlots>,
    member: Member,
    /// How many firings have begun. Only the agent counts, under the engine's lock.
    fired: AtomicU64,
    armed: Mutex<Armed>,
    /// Whether the owner is gone.
    pub(crate) closed: AtomicBool,
}

/// What the agent sees when it looks at a queue.
pub(crate) enum Seen {
    Nothing,
    /// To be fired, as far as it has been rung for.
    Rung(Prepared, Ring),
    /// The stream that rings has failed.
    Poisoned,
    /// Its owner is gone, and nothing more is rung for.
    Over,
}

/// How far a firing has been rung for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ring {
    Whole,
    /// So many parts of it have come.
    Parts(u64),
    /// By a part of its ring, and the rest will not come.
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
        // SAFETY: `Nic::queue` promises live words for as long as `config.keep`.
        // The window may be revoked already, so that it is poisoned.
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

    /// How far the peer's departure is.
    pub(crate) fn departure(&self) -> Stage {
        self.departure.stage()
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

    /// How often it has been rung, and whether the stream that rings has failed.
    pub(crate) fn rung_for(&self) -> (u64, bool) {
        let doorbell = self.doorbell();
        (self.rung(doorbell), doorbell & POISON != 0)
    }

    /// The armed program that `after` others are to be fired before.
    pub(crate) fn armed(&self, after: usize) -> Option<Prepared> {
        lock(&self.armed).get(after).cloned()
    }

    /// How many of the armed programs have a trigger slot, so that hardware may know of them. `waits`: the first of
    /// them has been rung for.
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

    /// Arms programs, so many times. Whether that was anything.
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

    /// How many of its programs are armed.
    pub(crate) fn armed_now(&self) -> u64 {
        let (armed, through) = self.counts();
        armed.saturating_sub(through)
    }

    /// Whether everything that was rung for is through, or nobody waits for it any more: the window is revoked, the peer is lost.
    pub(crate) fn is_idle(&self) -> bool {
        let rung = self.doorbell() & !POISON;
        let sent = self.sent().0.load() & !POISON;
        lock(&self.armed).has_given_up() || self.is_abandoned() || sent - self.sent_before == rung
    }

    /// Whether the rank has given its waits for this queue up: the peer is lost, the window is revoked.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.sent().0.load() & POISON != 0
    }

    /// How far a firing has been rung for that has begun with a part of its ring.
    pub(crate) fn ring_of(&self, number: u64) -> Ring {
        // Before the doorbell: when the owner closes the queue, it has rung for the last time.
        let closed = self.closed.load(Ordering::Acquire);
        // An acquire, as in `look`.
        let doorbell = self.doorbell();
        if self.rung(doorbell) > number {
            Ring::Whole
        } else if closed || doorbell & POISON != 0 {
            Ring::Broken
        } else {
            Ring::Parts(doorbell % QUANTUM)
        }
    }

    /// Whether there may be something to do. Only while nothing of this queue is being fired.
    pub(crate) fn calls(&self) -> bool {
        self.closed.load(Ordering::Acquire)
            || self.doorbell() != self.fired.load(Ordering::Relaxed) * QUANTUM
    }

    /// A firing begins; its number. Under the engine's lock: nobody else counts.
    pub(crate) fn fires(&self) -> u64 {
        let number = self.fired.load(Ordering::Relaxed);
        self.fired.store(number + 1, Ordering::Relaxed);
        number
    }

    /// What is to be done. Only while nothing of this queue is being fired.
    pub(crate) fn look(&self) -> Seen {
        if !self.calls() {
            return Seen::Nothing;
        }
        // Before the doorbell: when the owner closes the queue, it has rung for the last time.
        let closed = self.closed.load(Ordering::Acquire);
        // An acquire: what the stream did before it rang is what is read now.
        let doorbell = self.doorbell();
        let armed = lock(&self.armed);
        let is_whole = self.rung(doorbell) > self.fired.load(Ordering::Relaxed);
        // What will not be rung for to the end is not begun.
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

    /// The program that was being fired is through.
    pub(crate) fn through(&self) {
        // The place is free before the sent word says so: a thread that has waited for that finds room.
        let over = lock(&self.armed).through();
        self.slots.through(self.member);
        let (sent, bell) = self.sent();
        sent.add(QUANTUM);
        bell.ring();
        drop(over);
    }

    /// A signal that was through has not come: nobody is to build on this queue any more.
    pub(crate) fn lose(&self) {
        let (sent, bell) = self.sent();
        sent.poison();
        bell.wake_all();
    }

    /// Nothing is fired any more; what was armed, to be poisoned. Nothing, if it had given up before.
    pub(crate) fn give_up(&self) -> Vec<Prepared> {
        let (runs, closed) = {
            let mut armed = lock(&self.armed);
            let Some(runs) = armed.give_up() else {
                return Vec::new();
            };
            (runs, self.closed.load(Ordering::Acquire))
        };
        // An owner that is gone in good order has left nothing that anybody waits for. Before the slots are
        // given back: where as many are through as were armed, and the sent word is not poisoned, all has gone well.
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
