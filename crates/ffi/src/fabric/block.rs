//! The memory of one deferred work: the structures that the library is given, in a place that does not move.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};

use super::counter::Counter;
use super::endpoint::{Desc, Endpoint, Local, Remote};
use super::sys::{self, Zeroed};

/// What a work does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Write,
    Read,
    Atomic,
    FetchAtomic,
    CounterAdd,
    CounterSet,
}

/// All structures of a work; which operation is meant, `work.op_type` says. They point to each other.
#[repr(C)]
struct Parts {
    work: sys::fi_deferred_work,
    rma: sys::fi_op_rma,
    atomic: sys::fi_op_atomic,
    fetch: sys::fi_op_fetch_atomic,
    counter: sys::fi_op_cntr,
    local: sys::iovec,
    remote: sys::fi_rma_iov,
    operands: sys::fi_ioc,
    targets: sys::fi_rma_ioc,
    results: sys::fi_ioc,
    desc: [*mut c_void; 1],
    result_desc: [*mut c_void; 1],
    operand: [u64; 2],
}

/// The parts, owned.
pub(super) struct Block(NonNull<Parts>);

// SAFETY: the parts are this value's own, and hold addresses only; what happens to these, the contract of queueing a
// work says, on any thread.
unsafe impl Send for Block {}
// SAFETY: a shared reference gives the address only, and writes (`arm`) only what the library is not given yet.
unsafe impl Sync for Block {}

impl Block {
    pub(super) fn new(kind: Kind) -> Block {
        // SAFETY: the parts consist of integers, raw pointers and unions of these.
        let mut parts: Box<Parts> = Box::new(unsafe { std::mem::zeroed() });
        parts.work.op_type = match kind {
            Kind::Write => sys::FI_OP_WRITE,
            Kind::Read => sys::FI_OP_READ,
            Kind::Atomic => sys::FI_OP_ATOMIC,
            Kind::FetchAtomic => sys::FI_OP_FETCH_ATOMIC,
            Kind::CounterAdd => sys::FI_OP_CNTR_ADD,
            Kind::CounterSet => sys::FI_OP_CNTR_SET,
        };
        let raw = Box::into_raw(parts);
        // SAFETY: it is from a box.
        Block(unsafe { NonNull::new_unchecked(raw) })
    }

    /// The work's structure.
    pub(super) fn as_raw(&self) -> *mut sys::fi_deferred_work {
        // The first of the parts.
        self.0.as_ptr().cast()
    }

    /// Keeps an operand; returns where.
    pub(super) fn operand<T: Copy>(&mut self, value: T) -> *mut c_void {
        const { assert!(size_of::<T>() <= 16 && align_of::<T>() <= 8) };
        // SAFETY: the parts live as long as this value; the place is large enough, and aligned.
        unsafe {
            let place = (&raw mut (*self.0.as_ptr()).operand).cast::<T>();
            place.write(value);
            place.cast()
        }
    }

    pub(super) fn set_rma(
        &mut self,
        endpoint: &Endpoint,
        peer: sys::fi_addr_t,
        local: Local,
        remote: Remote,
    ) {
        let p = self.0.as_ptr();
        // SAFETY: the parts live as long as this value, which is borrowed exclusively.
        unsafe {
            (*p).local = sys::iovec {
                iov_base: local.address,
                iov_len: local.len,
            };
            (*p).remote = sys::fi_rma_iov {
                addr: remote.address,
                len: local.len,
                key: remote.key,
            };
            (*p).desc = [local.desc.0];
            (*p).rma.ep = endpoint.as_raw();
            let message = &raw mut (*p).rma.msg;
            *message = sys::fi_msg_rma::zeroed();
            (*message).msg_iov = &raw const (*p).local;
            (*message).desc = (&raw mut (*p).desc).cast();
            (*message).iov_count = 1;
            (*message).addr = peer;
            (*message).rma_iov = &raw const (*p).remote;
            (*message).rma_iov_count = 1;
            // Providers find the work by its operation's context.
            (*message).context = (&raw mut (*p).work.context).cast();
            (*p).work.op.rma = &raw mut (*p).rma;
        }
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn set_atomic(
        &mut self,
        endpoint: &Endpoint,
        peer: sys::fi_addr_t,
        operands: *mut c_void,
        desc: Desc,
        count: usize,
        (datatype, op): (u32, u32),
        remote: Remote,
    ) {
        let p = self.0.as_ptr();
        // SAFETY: as for `set_rma`.
        unsafe {
            (*p).operands = sys::fi_ioc {
                addr: operands,
                count,
            };
            (*p).targets = sys::fi_rma_ioc {
                addr: remote.address,
                count,
                key: remote.key,
            };
            (*p).desc = [desc.0];
            let mut message = sys::fi_msg_atomic::zeroed();
            message.msg_iov = &raw const (*p).operands;
            message.desc = (&raw mut (*p).desc).cast();
            message.iov_count = 1;
            message.addr = peer;
            message.rma_iov = &raw const (*p).targets;
            message.rma_iov_count = 1;
            message.datatype = datatype;
            message.op = op;
            message.context = (&raw mut (*p).work.context).cast();
            if (*p).work.op_type == sys::FI_OP_FETCH_ATOMIC {
                (*p).fetch.ep = endpoint.as_raw();
                (*p).fetch.msg = message;
                (*p).work.op.fetch_atomic = &raw mut (*p).fetch;
            } else {
                (*p).atomic.ep = endpoint.as_raw();
                (*p).atomic.msg = message;
                (*p).work.op.atomic = &raw mut (*p).atomic;
            }
        }
    }

    pub(super) fn set_results(&mut self, results: *mut c_void, desc: Desc, count: usize) {
        let p = self.0.as_ptr();
        // SAFETY: as for `set_rma`.
        unsafe {
            (*p).results = sys::fi_ioc {
                addr: results,
                count,
            };
            (*p).result_desc = [desc.0];
            (*p).fetch.fetch = sys::fi_msg_fetch {
                msg_iov: &raw mut (*p).results,
                desc: (&raw mut (*p).result_desc).cast(),
                iov_count: 1,
            };
        }
    }

    pub(super) fn set_counter(&mut self, counter: &Counter, value: u64) {
        let p = self.0.as_ptr();
        // SAFETY: as for `set_rma`.
        unsafe {
            (*p).counter = sys::fi_op_cntr {
                cntr: counter.as_raw(),
                value,
            };
            (*p).work.op.cntr = &raw mut (*p).counter;
        }
    }

    pub(super) fn set_data(&mut self, data: u64) {
        // SAFETY: as for `set_rma`.
        unsafe { (*self.0.as_ptr()).rma.msg.data = data };
    }

    /// What operations have as their context.
    pub(super) fn context(&self) -> usize {
        // SAFETY: the parts live as long as this value; no reference is made.
        let context = unsafe { &raw const (*self.0.as_ptr()).work.context };
        context.addr()
    }

    pub(super) fn set_flags(&mut self, flags: u64) {
        let p = self.0.as_ptr();
        // SAFETY: as for `set_rma`.
        unsafe {
            (*p).rma.flags = flags;
            (*p).atomic.flags = flags;
            (*p).fetch.flags = flags;
        }
    }

    /// Says what the work waits for, and what counts it; gives the structure to be queued.
    pub(super) fn arm(
        &self,
        trigger: &Counter,
        threshold: u64,
        completion: Option<&Counter>,
    ) -> *mut sys::fi_deferred_work {
        let work = self.as_raw();
        // SAFETY: the parts live as long as this value; the library does not have them yet, and whoever queues has the
        // work alone.
        unsafe {
            (*work).threshold = threshold;
            (*work).triggering_cntr = trigger.as_raw();
            (*work).completion_cntr = completion.map_or(null_mut(), Counter::as_raw);
        }
        work
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: it is from a box, and not used again: a work that is queued is dropped only when it is complete.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // SAFETY: the parts live as long as this value; nobody writes this field after it was made.
        let op = unsafe { (&raw const (*self.as_raw()).op_type).read() };
        write!(f, "Block(op_type {op})")
    }
}
