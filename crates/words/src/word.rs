//! Counters that are only added to.

use crate::sync::{AtomicU64, Ordering};
use tidegate_hal::batch::{POISON, QUANTUM};

/// What a look at a word found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The count has come.
    Reached,
    /// Not yet.
    Pending,
    /// Not, and it never will.
    Poisoned,
}

/// A counter that others add to, as it lies in shared memory: a count of less than 2^56, and [`POISON`] in the byte above it,
/// which devices may write as a whole. Who adds keeps the count below that.
#[derive(Debug)]
#[repr(transparent)]
pub struct Word(AtomicU64);

impl Word {
    /// A word with a first value.
    pub fn new(value: u64) -> Self {
        Word(AtomicU64::new(value))
    }

    /// Adds, after everything that the caller did before.
    pub fn add(&self, value: u64) {
        self.0.fetch_add(value, Ordering::Release);
    }

    /// Stores, after everything that the caller did before: for a place that is no counter of ours, but a device's register.
    pub fn strike(&self, value: u64) {
        device_fence();
        self.0.store(value, Ordering::Release);
        device_fence();
    }

    /// Poisons.
    pub fn poison(&self) {
        self.0.fetch_or(POISON, Ordering::Release);
    }

    /// The value, with acquire order.
    pub fn load(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Whether the word has come `quantum` further than `operand`.
    pub fn look(&self, operand: u64, quantum: u64) -> State {
        let value = self.load();
        // A count that has been reached is reached, poisoned or not: what it stands for did happen. The difference is
        // signed because a ticket (quantum 0) may look at a word that is still behind its operand.
        if ((value & !POISON).wrapping_sub(operand) as i64) >= quantum as i64 {
            State::Reached
        } else if value & POISON != 0 {
            State::Poisoned
        } else {
            State::Pending
        }
    }

    /// The value of an operand: no order, since only the stream itself writes it.
    pub fn operand(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Advances an operand.
    pub fn advance(&self, to: u64) {
        self.0.store(to, Ordering::Relaxed);
    }

    /// Puts `new` in place of `old`, unless the value is another; returns whether it did.
    pub fn replace(&self, old: u64, new: u64) -> bool {
        self.0
            .compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Which epoch an operand that a wait has just advanced stands for, from 0.
    pub fn epoch(&self) -> u64 {
        (self.operand() / QUANTUM).wrapping_sub(1)
    }
}

/// Orders stores to memory and to registers of devices among each other. Where registers are mapped so that stores are
/// combined, x86 does not do it by itself, nor send them off at once; ARM does it by a barrier for the whole system
/// only, which a release is not.
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
