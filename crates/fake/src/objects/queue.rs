//! Completion queues.

use std::ffi::{c_int, c_void};

use tidegate_ffi::fabric::sys::*;

use super::thing::{Table, close, give, thing};
use crate::hardware::Kind;

pub(crate) static CQ_FID: Table<fi_ops> = Table(fi_ops {
    close: Some(close::<fid_cq>),
    ..fi_ops::EMPTY
});

pub(crate) static CQ: Table<fi_ops_cq> = Table(fi_ops_cq {
    read: Some(read_queue),
    readerr: Some(read_failure),
    ..fi_ops_cq::EMPTY
});

/// # Safety
///
/// As `fi_cq_open`.
pub(crate) unsafe extern "C" fn open_queue(
    domain: *mut fid_domain,
    attr: *mut fi_cq_attr,
    queue: *mut *mut fid_cq,
    _: *mut c_void,
) -> c_int {
    // SAFETY: the caller vouches for all three.
    unsafe {
        if (*attr).wait_obj != FI_WAIT_NONE {
            return -FI_ENOSYS;
        }
        let mut head = fid_cq::zeroed();
        head.fid.ops = CQ_FID.at();
        head.ops = CQ.at();
        *queue = give(head, thing(domain).card.clone(), Kind::Queue);
    }
    0
}

/// # Safety
///
/// As `fi_cq_read`.
pub(crate) unsafe extern "C" fn read_queue(
    queue: *mut fid_cq,
    into: *mut c_void,
    most: usize,
) -> isize {
    // SAFETY: the caller's promise.
    let queue = unsafe { thing(queue) };
    match queue.card.entries(queue.id, most) {
        Err(()) => -(FI_EAVAIL as isize),
        Ok(entries) if entries.is_empty() => -(FI_EAGAIN as isize),
        Ok(entries) => {
            for (at, entry) in entries.iter().enumerate() {
                // SAFETY: there is room for as many.
                unsafe { into.cast::<fi_cq_data_entry>().add(at).write(*entry) };
            }
            entries.len() as isize
        }
    }
}

/// # Safety
///
/// As `fi_cq_readerr`.
pub(crate) unsafe extern "C" fn read_failure(
    queue: *mut fid_cq,
    into: *mut fi_cq_err_entry,
    _: u64,
) -> isize {
    // SAFETY: the caller's promise.
    let queue = unsafe { thing(queue) };
    let Some(context) = queue.card.failure(queue.id) else {
        return -(FI_EAGAIN as isize);
    };
    // SAFETY: as above.
    unsafe {
        (*into).op_context = std::ptr::without_provenance_mut(context);
        (*into).err = FI_EIO;
        (*into).prov_errno = 1;
    }
    1
}
