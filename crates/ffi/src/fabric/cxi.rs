//! Extensions of the cxi provider: a store can add to its counters, and the hardware can write them to memory.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use super::counter::Counter;
use super::domain::Domain;
use super::error::{FabricError, Result};
use super::object::Keep;
use super::sys;

/// The pages of a counter, to which a CPU or a device can store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mmio {
    /// The first byte of the pages. An 8-byte store of *n* at this address adds *n* to the successes.
    pub address: NonNull<c_void>,
    /// The length of the pages in bytes.
    pub len: usize,
}

impl Mmio {
    /// The address at this offset, which is in bytes; `None` beyond the end.
    pub fn at(self, offset: usize) -> Option<NonNull<u64>> {
        let end = offset.checked_add(8)?;
        // SAFETY: the result lies within the pages.
        (end <= self.len).then(|| unsafe { self.address.byte_add(offset) }.cast())
    }
}

/// A counter as the hardware writes it to memory: 8 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct WriteBack(pub u64);

impl WriteBack {
    /// How many successes it had counted.
    pub fn successes(self) -> u64 {
        self.0 & sys::FI_CXI_CNTR_SUCCESS_MAX
    }

    /// How many failures it had counted.
    pub fn failures(self) -> u64 {
        self.0 >> 48 & sys::FI_CXI_CNTR_FAILURE_MAX
    }

    /// Whether the hardware has written it: memory that was zeroed reads as "not written".
    pub fn is_written(self) -> bool {
        self.0 >> 63 == 1
    }
}

/// A counter of the cxi provider.
pub struct CxiCounter {
    counter: Arc<Counter>,
    ops: NonNull<sys::fi_cxi_cntr_ops>,
}

// SAFETY: the table belongs to the library and does not change; any thread may call its functions, as all functions of
// a domain (FI_THREAD_SAFE).
unsafe impl Send for CxiCounter {}
// SAFETY: as above.
unsafe impl Sync for CxiCounter {}

impl CxiCounter {
    /// Opens the extension of a counter (`fi_open_ops` of `cxi_counter_ops`).
    ///
    /// # Errors
    ///
    /// The provider's, if it has no such extension: then it is not cxi.
    pub fn new(counter: &Arc<Counter>) -> Result<CxiCounter> {
        let ops = counter.object().open_ops(sys::FI_CXI_COUNTER_OPS)?.cast();
        Ok(CxiCounter {
            counter: Arc::clone(counter),
            ops,
        })
    }

    /// The counter's pages. They stay mapped as long as the counter is open.
    ///
    /// # Errors
    ///
    /// The errors of the provider.
    pub fn mmio(&self) -> Result<Mmio> {
        const CALL: &str = "get_mmio_addr";
        // SAFETY: the table lives as long as the counter.
        let get = unsafe { self.ops.as_ref() }
            .get_mmio_addr
            .ok_or_else(|| FabricError::missing(CALL))?;
        let (mut address, mut len) = (null_mut(), 0);
        // SAFETY: the counter is alive; a pointer and a number are written into live variables.
        let answer = unsafe { get(self.counter.object().fid(), &mut address, &mut len) };
        self.counter.domain().library().check(CALL, answer.into())?;
        match NonNull::new(address) {
            Some(address) if len >= 8 => Ok(Mmio { address, len }),
            _ => Err(FabricError::unexpected(CALL, "no pages")),
        }
    }

    /// Lets the hardware write the counter to `buffer`. It writes when a work with
    /// [`OpFlags::CXI_CNTR_WB`](super::OpFlags::CXI_CNTR_WB) is complete, or when the counter is read. `keep` is kept
    /// as long as the counter is open.
    ///
    /// # Errors
    ///
    /// The errors of the provider.
    ///
    /// # Safety
    ///
    /// As long as `keep` lives, `buffer` is writable for `len` bytes, of which there are at least 8, and it is aligned
    /// to 8 bytes. It is accessed only in ways that allow for the hardware's writes. It may be memory of a device.
    pub unsafe fn set_write_back(&self, buffer: *mut c_void, len: usize, keep: Keep) -> Result<()> {
        const CALL: &str = "set_wb_buffer";
        // SAFETY: the table lives as long as the counter.
        let set = unsafe { self.ops.as_ref() }
            .set_wb_buffer
            .ok_or_else(|| FabricError::missing(CALL))?;
        // This comes before the call: if the call fails half-way, the buffer must still exist.
        self.counter.keep(keep);
        // SAFETY: the counter is alive; the caller vouches for the buffer, which is kept as long as the counter.
        let answer = unsafe { set(self.counter.object().fid(), buffer, len) };
        self.counter.domain().library().check(CALL, answer.into())
    }
}

impl std::fmt::Debug for CxiCounter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CxiCounter({:?})", self.counter)
    }
}

impl Domain {
    /// How many deferred works cxi can hold (`get_dwq_depth`). All processes that share a service of cxi, mostly those
    /// of one job step, share this number. What happens beyond it is not defined. So divide it among the processes, and
    /// queue no more.
    ///
    /// # Errors
    ///
    /// The provider's, if it has no such extension: then it is not cxi.
    pub fn cxi_deferred_depth(&self) -> Result<usize> {
        const CALL: &str = "get_dwq_depth";
        let ops: NonNull<sys::fi_cxi_dom_ops> =
            self.object().open_ops(sys::FI_CXI_DOM_OPS_5)?.cast();
        // SAFETY: the table lives as long as the domain.
        let get = unsafe { ops.as_ref() }
            .get_dwq_depth
            .ok_or_else(|| FabricError::missing(CALL))?;
        let mut depth = 0;
        // SAFETY: the domain is alive, and one number is written into a live variable.
        let answer = unsafe { get(self.object().fid(), &mut depth) };
        self.library().check(CALL, answer.into())?;
        Ok(depth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_back_is_taken_apart() {
        let word = WriteBack(1 << 63 | 5 << 48 | 1234);
        assert_eq!((word.successes(), word.failures()), (1234, 5));
        assert!(word.is_written() && !WriteBack(0).is_written());
    }

    #[test]
    fn places_beyond_the_pages_are_none() {
        let mut pages = [0u64; 16];
        let mmio = Mmio {
            address: NonNull::from(&mut pages).cast(),
            len: 128,
        };
        assert!(mmio.at(64).is_some());
        assert_eq!(mmio.at(128), None);
        assert_eq!(mmio.at(usize::MAX), None);
    }
}
