//! Counters that are only added to.

use crate::sync::{AtomicU64, Ordering};
use tidegate_hal::batch::{POISON, QUANTUM};

/// The state of a word at one look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The count has been reached.
    Reached,
    /// The count has not been reached yet.
    Pending,
    /// The count has not been reached, and never will be.
    Poisoned,
}

/// A counter in shared memory that others add to. It has a count of less than 2^56, and [`POISON`] in the byte above,
/// which devices may write as a whole. The ranks that add keep the count below that limit.
#[derive(Debug)]
#[repr(transparent)]
pub struct Word(AtomicU64);

impl Word {
    /// Makes a word with a first value.
    pub fn new(value: u64) -> Self {
        Word(AtomicU64::new(value))
    }

    /// Adds, with release order: after everything that the caller did before.
    pub fn add(&self, value: u64) {
        self.0.fetch_add(value, Ordering::Release);
    }

    /// Stores, after everything that the caller did before. This is for the register of a device, not for a counter.
    pub fn strike(&self, value: u64) {
        device_fence();
        self.0.store(value, Ordering::Release);
        device_fence();
    }

    /// Stores a flag, which has no other writer, with release order.
    pub fn flag(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }

    /// Sets [`POISON`].
    pub fn poison(&self) {
        self.0.fetch_or(POISON, Ordering::Release);
    }

    /// The value, with acquire order.
    pub fn load(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Whether the word is at least `quantum` beyond `operand`.
    pub fn look(&self, operand: u64, quantum: u64) -> State {
        let value = self.load();
        // A count that has been reached counts even in a poisoned word, because what it stands for did happen. The
        // difference is signed because a ticket (quantum 0) may look at a word that is still behind its operand.
        if ((value & !POISON).wrapping_sub(operand) as i64) >= quantum as i64 {
            State::Reached
        } else if value & POISON != 0 {
            State::Poisoned
        } else {
            State::Pending
        }
    }

    /// The value of an operand. It needs no order, because only the stream itself writes it.
    pub fn operand(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Advances an operand.
    pub fn advance(&self, to: u64) {
        self.0.store(to, Ordering::Relaxed);
    }

    /// Replaces `old` by `new`, if the value is `old`. Returns whether it was.
    pub fn replace(&self, old: u64, new: u64) -> bool {
        self.0
            .compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// The number, from 0, of the epoch that an operand stands for right after a wait has advanced it.
    pub fn epoch(&self) -> u64 {
        (self.operand() / QUANTUM).wrapping_sub(1)
    }
}

/// Orders stores to memory and stores to registers of devices, and sends them off at once. On x86, registers may be
/// mapped as write-combining; a release store then does neither. ARM needs a barrier for the whole system, which a
/// release is not.
#[inline]
fn device_fence() {
    #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
    // SAFETY: every x86-64 has SSE.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
    #[cfg(all(target_arch = "aarch64", not(miri), not(loom)))]
    // SAFETY: a barrier, which touches nothing of the program's.
    unsafe {
        std::arch::asm!("dsb st", options(nostack, preserves_flags));
    }
}
