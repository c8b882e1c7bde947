//! Endpoints, and operations that are posted to them.

use std::ffi::{c_int, c_void};

use tidegate_ffi::fabric::sys::*;

use super::counter::COUNTER_FID;
use super::queue::CQ_FID;
use super::thing::{Table, close, enable, give, thing};
use crate::hardware::{Kind, Operation, What};

pub(crate) static ENDPOINT_FID: Table<fi_ops> = Table(fi_ops {
    close: Some(close::<fid_ep>),
    bind: Some(bind_endpoint),
    control: Some(enable),
    ..fi_ops::EMPTY
});

pub(crate) static CM: Table<fi_ops_cm> = Table(fi_ops_cm {
    getname: Some(getname),
    ..fi_ops_cm::EMPTY
});

pub(crate) static RMA: Table<fi_ops_rma> = Table(fi_ops_rma {
    readmsg: Some(read_msg),
    writemsg: Some(write_msg),
    ..fi_ops_rma::EMPTY
});

pub(crate) static ATOMIC: Table<fi_ops_atomic> = Table(fi_ops_atomic {
    writevalid: Some(write_valid),
    ..fi_ops_atomic::EMPTY
});

/// # Safety
///
/// As `fi_endpoint`.
pub(crate) unsafe extern "C" fn open_endpoint(
    domain: *mut fid_domain,
    _: *mut fi_info,
    endpoint: *mut *mut fid_ep,
    _: *mut c_void,
) -> c_int {
    let mut head = fid_ep::zeroed();
    head.fid.ops = ENDPOINT_FID.at();
    head.cm = CM.at();
    head.rma = RMA.at();
    head.atomic = ATOMIC.at();
    // SAFETY: the caller vouches for both.
    unsafe { *endpoint = give(head, thing(domain).card.clone(), Kind::Endpoint) };
    0
}

/// # Safety
///
/// Both are objects of this library. The first is an endpoint.
pub(crate) unsafe extern "C" fn bind_endpoint(
    endpoint: *mut fid,
    other: *mut fid,
    flags: u64,
) -> c_int {
    // SAFETY: the caller's promise. What the other is, its table says.
    unsafe {
        let endpoint = thing::<fid_ep>(endpoint.cast());
        if (*other).ops == CQ_FID.at() {
            let queue = thing::<fid_cq>(other.cast()).id;
            endpoint.card.bind_queue(endpoint.id, queue, flags);
        } else if (*other).ops == COUNTER_FID.at() {
            if flags != FI_REMOTE_WRITE {
                return -FI_EOPNOTSUPP;
            }
            let counter = thing::<fid_cntr>(other.cast()).id;
            endpoint.card.bind_counter(endpoint.id, counter);
        }
    }
    0
}

/// # Safety
///
/// As `fi_getname`.
pub(crate) unsafe extern "C" fn getname(
    endpoint: *mut fid,
    address: *mut c_void,
    len: *mut usize,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let room = std::mem::replace(&mut *len, 8);
        if room < 8 {
            return -FI_ETOOSMALL;
        }
        let id = thing::<fid_ep>(endpoint.cast()).id;
        address.cast::<u64>().write_unaligned(id);
    }
    0
}

pub(crate) unsafe extern "C" fn write_msg(
    ep: *mut fid_ep,
    message: *const fi_msg_rma,
    flags: u64,
) -> isize {
    // SAFETY: as for `fi_writemsg`.
    unsafe { post(ep, message, flags, false) }
}

pub(crate) unsafe extern "C" fn read_msg(
    ep: *mut fid_ep,
    message: *const fi_msg_rma,
    flags: u64,
) -> isize {
    // SAFETY: as for `fi_readmsg`.
    unsafe { post(ep, message, flags, true) }
}

/// # Safety
///
/// As `fi_writemsg` or `fi_readmsg`.
unsafe fn post(
    endpoint: *mut fid_ep,
    message: *const fi_msg_rma,
    flags: u64,
    reads: bool,
) -> isize {
    // SAFETY: the caller's promise.
    let (endpoint, message) = unsafe { (thing(endpoint), &*message) };
    // SAFETY: as above.
    let what = unsafe { transfer(message, flags, reads) };
    if matches!(what, What::Write { data: Some(_), .. }) && !endpoint.card.config.data {
        return -(FI_EINVAL as isize);
    }
    endpoint.card.post(Operation {
        what,
        endpoint: endpoint.id,
        peer: message.addr,
        context: message.context as usize,
        flags,
        counter: None,
        work: None,
    });
    0
}

/// # Safety
///
/// The message is complete, and has one part at either end.
pub(super) unsafe fn transfer(message: &fi_msg_rma, flags: u64, reads: bool) -> What {
    // SAFETY: the caller's promise.
    let (local, remote) = unsafe { (&*message.msg_iov, &*message.rma_iov) };
    let (here, len) = (local.iov_base.expose_provenance(), local.iov_len);
    let (key, at) = (remote.key, remote.addr);
    if reads {
        let into = here;
        return What::Read { into, len, key, at };
    }
    What::Write {
        from: here,
        len,
        key,
        at,
        data: (flags & FI_REMOTE_CQ_DATA != 0).then_some(message.data),
    }
}

/// # Safety
///
/// As `fi_atomicvalid`.
pub(crate) unsafe extern "C" fn write_valid(
    _: *mut fid_ep,
    datatype: fi_datatype,
    op: fi_op,
    count: *mut usize,
) -> c_int {
    if (datatype, op) != (FI_UINT64, FI_SUM) {
        return -FI_EOPNOTSUPP;
    }
    // SAFETY: the caller's promise.
    unsafe { *count = 1 };
    0
}
