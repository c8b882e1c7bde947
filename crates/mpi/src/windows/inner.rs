//! This rank's end, as threads share it.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError, Weak};
use std::time::{Duration, Instant};

use tidegate_hal::batch::{Op, POISON, Scalar};
use tidegate_hal::control::Control;
use tidegate_hal::far::{BusError, MAILBOX};
use tidegate_hal::lock;
use tidegate_hal::memory::Ptr;
use tidegate_words::Word;

use super::call::failed;
use super::machine::Machine;
use super::notice::Notice;
use super::ranks::Ranks;

/// How often a waiter looks before it turns MPI once, where what it looks at comes without that: words that near ranks
/// add to, and mailboxes.
pub(super) const NEAR_LOOKS: u32 = 64;
pub(super) const WORD_LOOKS: u32 = 8;

/// How long a rank that leaves waits for others to hear its last signals: each hears them within a millisecond while it lives.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// More segments than can ever be: each is twice as large as the one before.
pub(super) const SEGMENTS: usize = 64;

/// What an MPI cannot be trusted with: a reduction, a type.
pub(super) type Wrong = Vec<(Op, Scalar)>;

/// This rank's end, as threads share it.
pub(super) struct Inner {
    pub(super) ranks: Arc<Ranks>,
    /// Whether there are ranks that are not near.
    pub(super) has_far: bool,
    /// Whether all ranks have met: until then they exchange verdicts, and need no notices.
    met: AtomicBool,
    machine: Mutex<Machine>,
    /// Blocks are made one after the other: each takes an exchange, and perhaps a collective call of MPI.
    rounds: Mutex<()>,
    pub(super) failure: OnceLock<BusError>,
    /// What MPI gets wrong, once that is known.
    pub(super) wrong: OnceLock<Wrong>,
    /// Who tells the others of a failure; the bus may outlive it.
    control: Weak<dyn Control>,
    /// This rank's parts of the segments, first byte and length, for looks without the lock.
    pub(super) own: [(AtomicUsize, AtomicUsize); SEGMENTS],
    pub(super) owns: AtomicUsize,
    pub(super) far: Range<usize>,
    /// Turns of waiters, and signals given, since the agent has asked.
    pub(super) waits: AtomicU64,
    pub(super) signals: AtomicU64,
    /// How often a waiter looks before it turns MPI: mailboxes may be filled without that.
    pub(super) looks: AtomicU32,
}

/// What happened of late.
pub(super) struct Activity {
    pub(super) waits: u64,
    pub(super) signals: u64,
}

impl Inner {
    pub(super) fn new(machine: Machine, control: &Arc<dyn Control>) -> Self {
        let ranks = machine.ranks.clone();
        Inner {
            has_far: !ranks.all_near(),
            ranks,
            met: AtomicBool::new(false),
            far: machine.names.range(),
            machine: Mutex::new(machine),
            rounds: Mutex::default(),
            failure: OnceLock::new(),
            wrong: OnceLock::new(),
            control: Arc::downgrade(control),
            own: [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; SEGMENTS],
            owns: AtomicUsize::new(0),
            waits: AtomicU64::new(0),
            signals: AtomicU64::new(0),
            looks: AtomicU32::new(NEAR_LOOKS),
        }
    }

    /// A panic under the lock would be one of this library's: nothing is left half done then but calls of MPI.
    #[inline]
    pub(super) fn machine(&self) -> MutexGuard<'_, Machine> {
        lock(&self.machine)
    }

    /// Remembers why the bus is of no more use.
    #[inline]
    pub(super) fn note<T>(&self, outcome: Result<T, BusError>) -> Result<T, BusError> {
        outcome.inspect_err(|error| self.fail(error))
    }

    /// Fails it, and with it those of all ranks: words that this rank would have added to can be poisoned no more.
    #[cold]
    pub(super) fn fail(&self, error: &BusError) {
        if self.failure.set(error.clone()).is_ok() {
            tidegate_hal::tell(|| tracing::error!("{error}"));
            if self.met.load(Ordering::Acquire) {
                self.tell_all(error);
            }
        }
    }

    fn tell_all(&self, error: &BusError) {
        if let Some(control) = self.control.upgrade() {
            // Who has gone needs to hear nothing.
            let _ = control.notify(None, &Notice::Failed(error.detail.clone()).encode());
        }
    }

    /// The ranks have met: what fails from now on, the others are told.
    pub(super) fn meet(&self) {
        self.met.store(true, Ordering::Release);
        if let Some(error) = self.failure.get() {
            self.tell_all(error);
        }
    }

    /// A rank has failed.
    pub(super) fn failed_at(&self, rank: usize, detail: &str) {
        let _ = self.failure.set(failed(format!("rank {rank}: {detail}")));
    }

    /// Closes it: no call of MPI is made any more.
    pub(super) fn close(&self, machine: &mut Machine, why: &str) {
        let error = failed(why);
        machine.ended = true;
        machine.closed.get_or_insert(error.clone());
        let _ = self.failure.set(error);
    }

    /// Turns MPI, unless somebody else is at it.
    pub(super) fn turn(&self) -> bool {
        // Between near ranks nothing comes by MPI.
        if !self.has_far {
            return false;
        }
        let Some(mut machine) = self.if_free() else {
            return false;
        };
        // Also where this rank's bus has failed: what others have under way may need it.
        !machine.ended && self.note(machine.turn()).unwrap_or(false)
    }

    /// The machine, unless somebody is at it.
    fn if_free(&self) -> Option<MutexGuard<'_, Machine>> {
        match self.machine.try_lock() {
            Ok(machine) => Some(machine),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Keeps others from making blocks.
    pub(super) fn rounds(&self) -> MutexGuard<'_, ()> {
        lock(&self.rounds)
    }

    /// Waits until peers have heard all signals that were given, since who leaves is waited for no longer; but not for
    /// a peer that does not turn its MPI any more.
    pub(super) fn settle(&self) {
        // Near ranks heard them as they were given.
        if !self.has_far {
            return;
        }
        let begun = Instant::now();
        let (mut said, mut naps) = (false, 0);
        while begun.elapsed() < LAST_WORDS {
            // Somebody may be held inside of MPI, by a rank that is gone.
            if let Some(mut machine) = self.if_free() {
                let heard = if std::mem::replace(&mut said, true) {
                    machine.all_heard()
                } else {
                    machine.say_last(self.ranks.me).map(|()| false)
                };
                if self.note(heard).unwrap_or(true) {
                    break;
                }
            }
            naps += 1;
            if naps < 100 {
                std::thread::yield_now();
            } else {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    }

    pub(super) fn activity(&self) -> Activity {
        Activity {
            waits: self.waits.swap(0, Ordering::Relaxed),
            signals: self.signals.load(Ordering::Relaxed),
        }
    }

    /// Where in its part of a segment a place in this rank's memory is.
    #[inline]
    pub(super) fn own(&self, at: Ptr) -> Option<usize> {
        let at = at.0.addr();
        let owns = self.owns.load(Ordering::Acquire);
        self.own[..owns]
            .iter()
            .position(|(base, bytes)| {
                at.wrapping_sub(base.load(Ordering::Relaxed)) < bytes.load(Ordering::Relaxed)
            })
            .map(|segment| at - self.own[segment].0.load(Ordering::Relaxed))
    }

    /// Adds to a word what its mailbox holds that has not been added yet.
    ///
    /// # Safety
    ///
    /// The word lies at the beginning of a cell, in a block of this rank.
    #[cold]
    pub(super) unsafe fn empty(&self, word: Ptr) {
        // SAFETY: the cell is the word's (the caller's promise), and these three places are only ever accessed atomically here.
        let (word, mailbox, seen) = unsafe { cell(word) };
        // Two may look at a time: nobody is to find the mark moved, and the word as it was.
        let machine = self.machine();
        loop {
            let (came, before) = (mailbox.load(), seen.load());
            if came == before {
                return;
            }
            // What came before the signal is seen by whoever sees the word now.
            let synced = machine.open().and_then(|()| machine.sync());
            if self.note(synced).is_err() {
                return;
            }
            if !seen.replace(before, came) {
                continue;
            }
            let count = |value: u64| value & !POISON;
            let more = count(came).wrapping_sub(count(before));
            if more != 0 {
                word.add(more);
            }
            if came & POISON != 0 {
                word.poison();
            }
        }
    }
}

/// A word, its mailbox, and how much of that has been added.
///
/// # Safety
///
/// The word lies at the beginning of a cell.
#[inline]
pub(super) unsafe fn cell<'a>(word: Ptr) -> (&'a Word, &'a Word, &'a Word) {
    let at = |ptr: Ptr| ptr.0.cast::<Word>();
    // SAFETY: the caller's promise: the cell has room for all three, aligned, and they are words.
    unsafe {
        (
            &*at(word),
            &*at(word.byte_add(MAILBOX)),
            &*at(word.byte_add(MAILBOX + 8)),
        )
    }
}
