//! Counters.

use std::mem::ManuallyDrop;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_hal::lock;

use super::domain::Domain;
use super::error::Result;
use super::object::{Keep, Owned, required};
use super::sys::{self, Zeroed};

/// How a counter or a queue can be waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct WaitObject(pub u32);

impl WaitObject {
    /// It can only be read. This is the cheapest.
    pub const NONE: Self = WaitObject(sys::FI_WAIT_NONE);
    /// In the way that suits the provider.
    pub const UNSPEC: Self = WaitObject(sys::FI_WAIT_UNSPEC);
}

/// A number to which operations add when they are complete (`fi_cntr(3)`), and for which deferred works wait.
///
/// The range depends on the provider: sockets has 31 bits (beyond that, [`read`](Self::read) returns huge numbers), cxi
/// 48 bits for successes and 7 for failures. [`distance`](Self::distance) is right in spite of that.
pub struct Counter {
    raw: ManuallyDrop<Owned<sys::fid_cntr>>,
    // The values that must outlive the counter. They are leaked if the library refuses to close it.
    alive: ManuallyDrop<Alive>,
}

struct Alive {
    domain: Arc<Domain>,
    /// The memory that hardware writes the counter to.
    buffers: Mutex<Vec<Keep>>,
}

impl Drop for Counter {
    fn drop(&mut self) {
        // SAFETY: it is taken once, here.
        let raw = unsafe { ManuallyDrop::take(&mut self.raw) };
        if raw.close_now() {
            // SAFETY: as above.
            unsafe { ManuallyDrop::drop(&mut self.alive) };
        }
    }
}

impl Counter {
    /// Makes a counter, at 0 (`fi_cntr_open`).
    ///
    /// # Errors
    ///
    /// An error if the provider has no counters ([`is_not_supported`](super::FabricError::is_not_supported)), has no
    /// more, or has none with this kind of wait.
    pub fn open(domain: &Arc<Domain>, wait: WaitObject) -> Result<Arc<Counter>> {
        const CALL: &str = "fi_cntr_open";
        // SAFETY: the table lives as long as the domain.
        let open = unsafe { required!(domain.ops(), fi_ops_domain, cntr_open, CALL) }?;
        let mut attr = sys::fi_cntr_attr::zeroed();
        attr.events = sys::FI_CNTR_EVENTS_COMP;
        attr.wait_obj = wait.0;
        let mut raw = null_mut();
        // SAFETY: the domain is alive, and so are the attributes; one pointer is written into a live variable.
        let answer = unsafe { open(domain.as_raw(), &mut attr, &mut raw, null_mut()) };
        domain.library().check(CALL, answer.into())?;
        // SAFETY: the library made it for this caller.
        let raw = unsafe { Owned::new(domain.library(), CALL, raw) }?;
        let counter = Counter {
            raw: ManuallyDrop::new(raw),
            alive: ManuallyDrop::new(Alive {
                domain: Arc::clone(domain),
                buffers: Mutex::default(),
            }),
        };
        // So that reading cannot fail later.
        // SAFETY: the table lives as long as the counter.
        unsafe {
            required!(counter.ops(), fi_ops_cntr, read, "fi_cntr_read")?;
            required!(counter.ops(), fi_ops_cntr, readerr, "fi_cntr_readerr")?;
        }
        Ok(Arc::new(counter))
    }

    pub(crate) fn object(&self) -> &Owned<sys::fid_cntr> {
        &self.raw
    }

    /// Keeps memory alive for as long as the library has the counter.
    pub(crate) fn keep(&self, buffer: Keep) {
        lock(&self.alive.buffers).push(buffer);
    }

    fn ops(&self) -> *const sys::fi_ops_cntr {
        // SAFETY: the object lives as long as this value.
        unsafe { (*self.raw.as_ptr()).ops }
    }

    /// The structure, for calls that this crate does not wrap. It lives as long as this value.
    pub fn as_raw(&self) -> *mut sys::fid_cntr {
        self.raw.as_ptr()
    }

    /// The domain.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.alive.domain
    }

    /// How many successes it has counted (`fi_cntr_read`). With manual progress, this makes some.
    pub fn read(&self) -> u64 {
        // SAFETY: the table lives as long as the counter.
        match unsafe { required!(self.ops(), fi_ops_cntr, read, "fi_cntr_read") } {
            // SAFETY: the counter is alive.
            Ok(read) => unsafe { read(self.raw.as_ptr()) },
            // `open` has seen that the operation exists.
            Err(_) => 0,
        }
    }

    /// How many failures it has counted (`fi_cntr_readerr`).
    pub fn read_err(&self) -> u64 {
        // SAFETY: the table lives as long as the counter.
        match unsafe { required!(self.ops(), fi_ops_cntr, readerr, "fi_cntr_readerr") } {
            // SAFETY: the counter is alive.
            Ok(read) => unsafe { read(self.raw.as_ptr()) },
            // `open` has seen that the operation exists.
            Err(_) => 0,
        }
    }

    /// How far `now` is beyond `then`, if that is less than 2³¹. It is right even if a provider counts with only 32
    /// bits.
    pub fn distance(then: u64, now: u64) -> i32 {
        (now as u32).wrapping_sub(then as u32) as i32
    }

    /// Adds a number (`fi_cntr_add`). Works that wait for the counter may begin, on this thread. To add 0 makes the
    /// provider look again.
    ///
    /// # Errors
    ///
    /// The errors of the provider.
    pub fn add(&self, value: u64) -> Result<()> {
        const CALL: &str = "fi_cntr_add";
        // SAFETY: the table lives as long as the counter.
        let add = unsafe { required!(self.ops(), fi_ops_cntr, add, CALL) }?;
        // SAFETY: the counter is alive. That works begin was agreed to when they were queued.
        let answer = unsafe { add(self.raw.as_ptr(), value) };
        self.alive.domain.library().check(CALL, answer.into())
    }

    /// Sets the counter (`fi_cntr_set`). Works that wait for it may begin.
    ///
    /// # Errors
    ///
    /// The errors of the provider.
    pub fn set(&self, value: u64) -> Result<()> {
        const CALL: &str = "fi_cntr_set";
        // SAFETY: the table lives as long as the counter.
        let set = unsafe { required!(self.ops(), fi_ops_cntr, set, CALL) }?;
        // SAFETY: as for `add`.
        let answer = unsafe { set(self.raw.as_ptr(), value) };
        self.alive.domain.library().check(CALL, answer.into())
    }
}

/// A time limit in the library's form, in which negative numbers would be without end.
pub(crate) fn milliseconds(limit: Duration) -> i32 {
    i32::try_from(limit.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
}

impl std::fmt::Debug for Counter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Counter({:p})", self.raw.as_ptr())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distance_survives_31_bits() {
        assert_eq!(Counter::distance(0, 5), 5);
        assert_eq!(Counter::distance(5, 0), -5);
        let (then, now) = (i32::MAX as u64, i32::MIN as i64 as u64);
        assert_eq!(Counter::distance(then, now), 1);
        assert_eq!(Counter::distance(u64::from(u32::MAX), 1 << 32), 1);
    }

    #[test]
    fn limits_are_never_negative() {
        assert_eq!(milliseconds(Duration::ZERO), 0);
        assert_eq!(milliseconds(Duration::from_micros(1)), 1);
        assert_eq!(milliseconds(Duration::MAX), i32::MAX);
    }
}
