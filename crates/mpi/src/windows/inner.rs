//! This rank's part of the bus, which threads share.

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

/// How often a waiter looks before it drives MPI once, if the awaited change can come without MPI: words to which near
/// ranks add, and mailboxes.
pub(super) const NEAR_LOOKS: u32 = 64;
pub(super) const WORD_LOOKS: u32 = 8;

/// How long a rank that leaves waits for others to receive its last signals. A live rank receives them within a
/// millisecond.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// There can never be more segments, since each is twice as large as the one before.
pub(super) const SEGMENTS: usize = 64;

/// The operations that this MPI computes wrongly: a reduction, and a type.
pub(super) type Wrong = Vec<(Op, Scalar)>;

/// Whether MPI has the reduction at all. It has no floats of 16 bits, so it only moves their bits.
pub(super) fn computes(op: Op, scalar: Scalar) -> bool {
    !matches!(scalar, Scalar::F16 | Scalar::Bf16) || matches!(op, Op::Replace | Op::Keep)
}

/// This rank's part of the bus, which threads share.
pub(super) struct Inner {
    pub(super) ranks: Arc<Ranks>,
    /// Whether some ranks are not near.
    pub(super) has_far: bool,
    /// Whether all ranks have met. Until then they exchange verdicts, and need no notices.
    met: AtomicBool,
    machine: Mutex<Machine>,
    /// Held while blocks are made, one after the other. Each takes an exchange, and perhaps a collective call of MPI.
    rounds: Mutex<()>,
    pub(super) failure: OnceLock<BusError>,
    /// The reductions that MPI computes wrongly, once they are known.
    pub(super) wrong: OnceLock<Wrong>,
    /// The control plane that tells the others about a failure. The bus may outlive it.
    control: Weak<dyn Control>,
    /// This rank's parts of the segments, as first byte and length. They can be read without the lock.
    pub(super) own: [(AtomicUsize, AtomicUsize); SEGMENTS],
    pub(super) owns: AtomicUsize,
    pub(super) far: Range<usize>,
    /// How often waiters have driven MPI, and how many signals were given, since the agent last asked.
    pub(super) waits: AtomicU64,
    pub(super) signals: AtomicU64,
    /// How often a waiter looks before it drives MPI. Mailboxes may be filled without that.
    pub(super) looks: AtomicU32,
}

/// Recent activity.
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

    /// A panic under the lock would be an error of this library. Then only calls of MPI can be half done.
    #[inline]
    pub(super) fn machine(&self) -> MutexGuard<'_, Machine> {
        lock(&self.machine)
    }

    /// Notes why the bus cannot be used any more.
    #[inline]
    pub(super) fn note<T>(&self, outcome: Result<T, BusError>) -> Result<T, BusError> {
        outcome.inspect_err(|error| self.fail(error))
    }

    /// Fails the bus, and the buses of all ranks, since this rank can no longer poison the words to which it would have
    /// added.
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
            // A rank that has left need not be told.
            let _ = control.notify(None, &Notice::Failed(error.detail.clone()).encode());
        }
    }

    /// Notes that the ranks have met. From now on the others are told about failures.
    pub(super) fn meet(&self) {
        self.met.store(true, Ordering::Release);
        if let Some(error) = self.failure.get() {
            self.tell_all(error);
        }
    }

    /// Notes that a rank has failed.
    pub(super) fn failed_at(&self, rank: usize, detail: &str) {
        let _ = self.failure.set(failed(format!("rank {rank}: {detail}")));
    }

    /// Closes the bus, so that no more calls of MPI are made.
    pub(super) fn close(&self, machine: &mut Machine, why: &str) {
        let error = failed(why);
        machine.ended = true;
        machine.closed.get_or_insert(error.clone());
        let _ = self.failure.set(error);
    }

    /// Drives MPI, unless another thread does.
    pub(super) fn turn(&self) -> bool {
        // Between near ranks nothing comes by MPI.
        if !self.has_far {
            return false;
        }
        let Some(mut machine) = self.if_free() else {
            return false;
        };
        // This is done even if this rank's bus has failed, since operations of others may need it.
        !machine.ended && self.note(machine.turn()).unwrap_or(false)
    }

    /// The machine, unless another thread has it.
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

    /// Waits until peers have received all signals, because nobody waits for a rank that has left. It does not wait for
    /// a peer that does not drive its MPI any more.
    pub(super) fn settle(&self) {
        // Near ranks received them at once.
        if !self.has_far {
            return;
        }
        let begun = Instant::now();
        let (mut said, mut naps) = (false, 0);
        while begun.elapsed() < LAST_WORDS {
            // Another thread may be stuck in MPI because of a rank that is gone.
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

    /// The segment of an address in this rank's memory, and the offset in this rank's part.
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

    /// Adds to a word the part of its mailbox that has not been added yet.
    ///
    /// # Safety
    ///
    /// The word is at the beginning of a cell, in a block of this rank.
    #[cold]
    pub(super) unsafe fn empty(&self, word: Ptr) {
        // SAFETY: the cell is the word's (the caller's promise), and these three places are only accessed atomically
        // here.
        let (word, mailbox, seen) = unsafe { cell(word) };
        // Two threads may look at the same time. None may see the mark moved while the word is unchanged.
        let machine = self.machine();
        loop {
            let (came, before) = (mailbox.load(), seen.load());
            if came == before {
                return;
            }
            // A thread that sees the word now also sees the data that came before the signal.
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

/// A word, its mailbox, and the part of the mailbox that has been added.
///
/// # Safety
///
/// The word is at the beginning of a cell.
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
