//! The counters of a chain, by their role: gate counters (in short: gates), and the counter that streams strike.
//!
//! # Model
//!
//! A [`Gate`] is a counter. Some works of a [chain](super::chain) count at it, and others wait for it. The chain knows
//! how far the gate must come, and the gate knows how far it has come.
//!
//! *Write-back.* If hardware can write a counter to memory (cxi), each signal asks for that at the gate where it
//! counts. A look at that memory then replaces most reads of the counter. It is only a hint: the counter is the proof.
//!
//! *Strike.* Counters of cxi also have an address, and a store there adds to the counter ([`register`]). So a stream
//! fires the works that wait for the chain's trigger by itself, as it would ring a doorbell.
//!
//! # Failure
//!
//! A counter without these abilities still works: it is read each time, and an agent adds to it. Failures are counted
//! beside successes ([`Gate::failures`]), and end each [quiet](Gate::is_quiet) period.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_ffi::fabric::{Counter, CxiCounter, FabricError, WriteBack};
use tidegate_hal::memory::Ptr;
use tidegate_hal::nic::Register;

/// A counter, and its count when everything that was queued for it will have counted.
pub(super) struct Gate {
    counter: Arc<Counter>,
    pub(super) expected: u64,
    back: Option<(CxiCounter, Arc<AtomicU64>)>,
}

impl Gate {
    /// Makes the gate of a counter that has counted nothing.
    pub(super) fn new(counter: Arc<Counter>) -> Self {
        Gate {
            back: write_back(&counter),
            counter,
            expected: 0,
        }
    }

    pub(super) fn counter(&self) -> &Arc<Counter> {
        &self.counter
    }

    /// Whether hardware writes the counter to memory, for works that ask for it.
    pub(super) fn writes_back(&self) -> bool {
        self.back.is_some()
    }

    /// The count beyond `base`.
    pub(super) fn beyond(&self, base: u64) -> i32 {
        Counter::distance(base, self.counter.read())
    }

    /// Whether hardware has not reported a count beyond `base`, so that there is no need to read the counter.
    pub(super) fn is_quiet(&self, base: u64) -> bool {
        self.back.as_ref().is_some_and(|(_, word)| {
            let back = WriteBack(word.load(Ordering::Acquire));
            back.failures() == 0 && (!back.is_written() || back.successes() <= base)
        })
    }

    /// How many works have failed that should have counted here.
    pub(super) fn failures(&self) -> u64 {
        self.counter.read_err()
    }

    /// Resets the counter. Nothing may be queued for it.
    pub(super) fn begin_anew(&mut self) -> Result<(), FabricError> {
        self.counter.set(0)?;
        self.expected = 0;
        Ok(())
    }
}

/// The register of a counter, if there is one: a store there adds to the counter. Its pages stay as long as the counter
/// is open.
pub(super) fn register(counter: &Arc<Counter>) -> Option<Register> {
    let place = CxiCounter::new(counter).ok()?.mmio().ok()?.at(0)?;
    Some(Register {
        at: Ptr(place.as_ptr().cast()),
        keep: counter.clone(),
    })
}

/// Lets hardware write a counter to memory, if it can.
fn write_back(counter: &Arc<Counter>) -> Option<(CxiCounter, Arc<AtomicU64>)> {
    let cxi = CxiCounter::new(counter).ok()?;
    let word = Arc::new(AtomicU64::new(0));
    let at = word.as_ptr().cast::<c_void>();
    // SAFETY: the word lives as long as it is shared with the counter, is aligned, and is only accessed atomically.
    unsafe { cxi.set_write_back(at, size_of::<AtomicU64>(), word.clone()) }.ok()?;
    Some((cxi, word))
}
