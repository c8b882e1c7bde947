//! A queue of armed programs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tidegate_hal::armed::Armed;
use tidegate_hal::batch::{Move, POISON, QUANTUM};
use tidegate_hal::lock;
use tidegate_hal::memory::Ptr;
use tidegate_hal::nic::{Keep, NicError, Prepared, QueueConfig};
use tidegate_hal::slots::{Member, TriggerSlots};
use tidegate_host::HostMover;
use tidegate_words::{Bell, Mover as _, Word};

/// What the agent must do for a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Nothing,
    /// A program must be fired.
    Rung,
    /// The owner has been dropped, and nothing is left to do.
    Over,
}

/// What the agent and the owner of a queue share.
pub(crate) struct Queue {
    config: QueueConfig,
    /// The first count of the sent word.
    sent_before: u64,
    slots: Arc<TriggerSlots>,
    member: Member,
    /// One quantum for each firing that has begun. To firings it is what a wait's operand is to a stream, so it gives
    /// the parity of their epochs.
    fired: Word,
    armed: Mutex<Armed>,
    /// Whether the owner has been dropped.
    closed: AtomicBool,
}

/// A program whose remote places have become addresses of this process.
pub(crate) struct Script {
    pub(crate) moves: Vec<Move>,
    pub(crate) word: Ptr,
    pub(crate) bell: Ptr,
    pub(crate) _keep: Vec<Keep>,
}

/// # Safety
///
/// `ptr` points to a word that is live for `'a`.
unsafe fn word<'a>(ptr: Ptr) -> &'a Word {
    // SAFETY: the caller's promise; words are only ever accessed atomically.
    unsafe { &*ptr.0.cast::<Word>() }
}

/// # Safety
///
/// `ptr` points to a bell that is live for `'a`.
unsafe fn bell<'a>(ptr: Ptr) -> &'a Bell {
    // SAFETY: the caller's promise; bells are only ever accessed atomically.
    unsafe { &*ptr.0.cast::<Bell>() }
}

impl Script {
    fn signal(&self) {
        // SAFETY: `NicQueue::prepare` promises a live word and bell; the memory that they lie in is kept.
        let (word, bell) = unsafe { (word(self.word), bell(self.bell)) };
        word.add(QUANTUM);
        bell.ring();
    }

    fn poison(&self) {
        // SAFETY: as for `signal`.
        let (word, bell) = unsafe { (word(self.word), bell(self.bell)) };
        word.poison();
        bell.wake_all();
    }
}

fn script(prepared: &Prepared) -> &Script {
    prepared
        .0
        .downcast_ref()
        .expect("core arms what this NIC has prepared")
}

impl Queue {
    pub(crate) fn new(config: QueueConfig, slots: &Arc<TriggerSlots>) -> Self {
        // SAFETY: `Nic::queue` promises live words for as long as `config.keep`.
        // The window may be revoked already, so that it is poisoned.
        let sent_before = unsafe { word(config.sent) }.load() & !POISON;
        Queue {
            config,
            sent_before,
            slots: slots.clone(),
            member: slots.join(),
            fired: Word::new(0),
            armed: Mutex::default(),
            closed: AtomicBool::new(false),
        }
    }

    /// The word whose parity chooses the buffer of a firing.
    pub(crate) fn parity(&self) -> Ptr {
        let fired: *const Word = &self.fired;
        Ptr(fired.cast_mut().cast())
    }

    /// Arms programs that [`script`] can read.
    pub(crate) fn arm(&self, programs: &Arc<[Prepared]>, times: u64) -> Result<(), NicError> {
        let mut armed = lock(&self.armed);
        let added = armed.arm(programs, times)?;
        // Under the lock: a queue that gives up returns all its slots, once.
        self.slots.arm(self.member, added);
        Ok(())
    }

    /// See [`NicQueue::counts`](tidegate_hal::nic::NicQueue::counts).
    pub(crate) fn counts(&self) -> (u64, u64) {
        self.slots.counts(self.member)
    }

    /// Notes that the owner has been dropped.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    fn doorbell(&self) -> u64 {
        // SAFETY: `Nic::queue` promises live words for as long as `config.keep`, which this holds.
        unsafe { word(self.config.doorbell) }.load()
    }

    fn sent(&self) -> (&Word, &Bell) {
        // SAFETY: as for `doorbell`; the bell too.
        unsafe { (word(self.config.sent), bell(self.config.sent_bell)) }
    }

    fn is_rung(&self, doorbell: u64) -> bool {
        (doorbell & !POISON).wrapping_sub(self.fired.operand()) >= QUANTUM
    }

    /// Whether everything that was rung for is through.
    pub(crate) fn is_idle(&self) -> bool {
        let rung = self.doorbell() & !POISON;
        let sent = self.sent().0.load() & !POISON;
        lock(&self.armed).has_given_up() || sent - self.sent_before == rung
    }

    /// What the agent must do; gives the queue up if necessary. Only the agent's thread calls it.
    pub(crate) fn look(&self) -> Seen {
        // Read this before the doorbell: a half that closes the queue has rung for the last time.
        let closed = self.closed.load(Ordering::Acquire);
        let doorbell = self.doorbell();
        if self.is_rung(doorbell) {
            let armed = lock(&self.armed);
            debug_assert!(
                armed.has_given_up() || !armed.is_empty(),
                "arm comes before the batch that rings"
            );
            if !armed.is_empty() {
                // Without a slot, the program counts as not rung for. It gets one when its turn comes.
                return if self.slots.fire(self.member) {
                    Seen::Rung
                } else {
                    Seen::Nothing
                };
            }
        }
        if doorbell & POISON != 0 || closed {
            self.give_up(closed);
        }
        if closed { Seen::Over } else { Seen::Nothing }
    }

    /// Fires the next program. Only the agent's thread calls it.
    pub(crate) fn fire(&self) {
        let program = lock(&self.armed).first().cloned();
        let program = program.expect("a program was seen");
        let script = script(&program);
        self.fired.advance(self.fired.operand() + QUANTUM);
        for step in &script.moves {
            // SAFETY: `NicQueue::prepare` promises what `Mover::carry` asks, for the time between the ring, which was
            // acquired when the doorbell was read, and the signals below; the parity is this queue's own word.
            unsafe { HostMover.carry(step) };
        }
        script.signal();
        // Free the place before the sent word counts, so that a thread that has waited for it finds room.
        let over = lock(&self.armed).through();
        self.slots.through(self.member);
        let (sent, bell) = self.sent();
        sent.add(QUANTUM);
        bell.ring();
        drop((program, over));
    }

    /// Poisons the words of programs that will not fire.
    fn give_up(&self, closed: bool) {
        let Some(runs) = lock(&self.armed).give_up() else {
            return;
        };
        self.slots.give_up(self.member);
        for program in runs.iter().flat_map(|run| run.iter()) {
            // To poison a word twice is the same as once.
            script(program).poison();
        }
        // If the owner was dropped in good order, nobody waits for anything.
        if !closed || !runs.is_empty() {
            let (sent, bell) = self.sent();
            sent.poison();
            bell.wake_all();
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.slots.leave(self.member);
    }
}
