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
    Add,
    CounterAdd,
}

/// All structures of a work, which point to each other. `work.op_type` says which operation is meant.
#[repr(C)]
struct Parts {
    work: sys::fi_deferred_work,
    rma: sys::fi_op_rma,
    atomic: sys::fi_op_atomic,
    counter: sys::fi_op_cntr,
    local: sys::iovec,
    remote: sys::fi_rma_iov,
    operands: sys::fi_ioc,
    targets: sys::fi_rma_ioc,
    desc: [*mut c_void; 1],
    operand: u64,
}

/// The parts, owned.
pub(super) struct Block(NonNull<Parts>);

// SAFETY: the parts are this value's own, and hold addresses only. The contract of queueing a work covers what happens
// to the memory there, on any thread.
unsafe impl Send for Block {}
// SAFETY: a shared reference gives the address only. It writes (`arm`) only parts that the library does not have yet.
unsafe impl Sync for Block {}

impl Block {
    pub(super) fn new(kind: Kind) -> Block {
        // SAFETY: the parts consist of integers, raw pointers and unions of these.
        let mut parts: Box<Parts> = Box::new(unsafe { std::mem::zeroed() });
        parts.work.op_type = match kind {
            Kind::Write => sys::FI_OP_WRITE,
            Kind::Read => sys::FI_OP_READ,
            Kind::Add => sys::FI_OP_ATOMIC,
            Kind::CounterAdd => sys::FI_OP_CNTR_ADD,
        };
        let raw = Box::into_raw(parts);
        // SAFETY: the pointer is from a box.
        Block(unsafe { NonNull::new_unchecked(raw) })
    }

    /// The work's structure.
    pub(super) fn as_raw(&self) -> *mut sys::fi_deferred_work {
        // The first of the parts.
        self.0.as_ptr().cast()
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

    pub(super) fn set_add(
        &mut self,
        endpoint: &Endpoint,
        peer: sys::fi_addr_t,
        operand: u64,
        remote: Remote,
    ) {
        let p = self.0.as_ptr();
        // SAFETY: as for `set_rma`.
        unsafe {
            (*p).operand = operand;
            (*p).operands = sys::fi_ioc {
                addr: (&raw mut (*p).operand).cast(),
                count: 1,
            };
            (*p).targets = sys::fi_rma_ioc {
                addr: remote.address,
                count: 1,
                key: remote.key,
            };
            (*p).desc = [Desc::NONE.0];
            (*p).atomic.ep = endpoint.as_raw();
            let message = &raw mut (*p).atomic.msg;
            *message = sys::fi_msg_atomic::zeroed();
            (*message).msg_iov = &raw const (*p).operands;
            (*message).desc = (&raw mut (*p).desc).cast();
            (*message).iov_count = 1;
            (*message).addr = peer;
            (*message).rma_iov = &raw const (*p).targets;
            (*message).rma_iov_count = 1;
            (*message).datatype = sys::FI_UINT64;
            (*message).op = sys::FI_SUM;
            (*message).context = (&raw mut (*p).work.context).cast();
            (*p).work.op.atomic = &raw mut (*p).atomic;
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

    /// The context of the operations.
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
        }
    }

    /// Sets the counter that the work waits for, and the one that counts it. Returns the structure to be queued.
    pub(super) fn arm(
        &self,
        trigger: &Counter,
        threshold: u64,
        completion: Option<&Counter>,
    ) -> *mut sys::fi_deferred_work {
        let work = self.as_raw();
        // SAFETY: the parts live as long as this value; the library does not have them yet, and the queueing thread has
        // the work alone.
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
