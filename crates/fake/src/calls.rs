//! What objects do.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;

use tidegate_ffi::fabric::sys::*;

use crate::card::{Card, Operation, What};
use crate::open::thing;
use crate::tables::*;

/// # Safety
///
/// Both are objects of ours; the first is a region.
pub(crate) unsafe extern "C" fn bind_region(region: *mut fid, endpoint: *mut fid, _: u64) -> c_int {
    // SAFETY: the caller's promise; only endpoints are bound to regions here.
    unsafe {
        let region = thing::<fid_mr>(region.cast());
        let endpoint = thing::<fid_ep>(endpoint.cast()).id;
        region.card.bind_region(region.id, endpoint);
    }
    0
}

/// # Safety
///
/// Both are objects of ours; the first is an endpoint.
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

pub(crate) unsafe extern "C" fn enable(_: *mut fid, command: c_int, _: *mut c_void) -> c_int {
    if command == FI_ENABLE { 0 } else { -FI_ENOSYS }
}

/// # Safety
///
/// As `fi_control` of a domain.
pub(crate) unsafe extern "C" fn control(
    domain: *mut fid,
    command: c_int,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let card = unsafe { &thing::<fid_domain>(domain.cast()).card };
    let work = argument.cast::<fi_deferred_work>();
    match command {
        // SAFETY: the command takes a work.
        FI_QUEUE_WORK => unsafe { queue_work(card, work) },
        FI_CANCEL_WORK if card.config.cancels => {
            if card.cancel(work as usize) {
                0
            } else {
                -FI_EINVAL
            }
        }
        _ => -FI_ENOSYS,
    }
}

/// # Safety
///
/// The work is complete.
unsafe fn queue_work(card: &Arc<Card>, work: *mut fi_deferred_work) -> c_int {
    // SAFETY: the caller's promise: what the work points to lives, and is of this card.
    unsafe {
        let id = |counter: *mut fid_cntr| thing(counter).id;
        let counter = (*work).completion_cntr;
        let counter = (!counter.is_null()).then(|| id(counter));
        let count = |set| {
            let op = *(*work).op.cntr;
            let (counter, value) = (id(op.cntr), op.value);
            (
                0,
                0,
                0,
                What::Count {
                    counter,
                    value,
                    set,
                },
            )
        };
        let rma = |reads: bool| {
            let op = &*(*work).op.rma;
            let (endpoint, flags) = (thing(op.ep).id, op.flags);
            let what = transfer(&op.msg, flags, reads);
            (endpoint, op.msg.addr, flags, what)
        };
        let (endpoint, peer, flags, what) = match (*work).op_type {
            FI_OP_WRITE => rma(false),
            FI_OP_READ => rma(true),
            FI_OP_ATOMIC => {
                let op = &*(*work).op.atomic;
                let (part, target) = (&*op.msg.msg_iov, &*op.msg.rma_iov);
                if (op.msg.datatype, op.msg.op, part.count) != (FI_UINT64, FI_SUM, 1) {
                    return -FI_EOPNOTSUPP;
                }
                let what = What::Add {
                    operand: part.addr.expose_provenance(),
                    key: target.key,
                    at: target.addr,
                };
                (thing(op.ep).id, op.msg.addr, op.flags, what)
            }
            FI_OP_CNTR_ADD => count(false),
            FI_OP_CNTR_SET => count(true),
            _ => return -FI_ENOSYS,
        };
        if matches!(what, What::Write { data: Some(_), .. }) && !card.config.data {
            return -FI_EINVAL;
        }
        let operation = Operation {
            what,
            endpoint,
            peer,
            context: (&raw const (*work).context) as usize,
            flags,
            counter,
            work: Some(work as usize),
        };
        if card.defer(id((*work).triggering_cntr), (*work).threshold, operation) {
            0
        } else {
            -card.config.full
        }
    }
}

/// # Safety
///
/// The message is complete, of one part at either end.
unsafe fn transfer(message: &fi_msg_rma, flags: u64, reads: bool) -> What {
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

/// # Safety
///
/// As `fi_av_insert`, for one address.
pub(crate) unsafe extern "C" fn insert(
    _: *mut fid_av,
    address: *const c_void,
    _: usize,
    number: *mut fi_addr_t,
    _: u64,
    _: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise. An address is a number already.
    unsafe { *number = address.cast::<u64>().read_unaligned() };
    1
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

pub(crate) unsafe extern "C" fn read_counter(counter: *mut fid_cntr) -> u64 {
    // SAFETY: the library's user has it open.
    let counter = unsafe { thing(counter) };
    counter.card.count(counter.id).0
}

pub(crate) unsafe extern "C" fn read_failures(counter: *mut fid_cntr) -> u64 {
    // SAFETY: likewise.
    let counter = unsafe { thing(counter) };
    counter.card.count(counter.id).1
}

pub(crate) unsafe extern "C" fn add(counter: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: likewise.
    let counter = unsafe { thing(counter) };
    counter.card.change(counter.id, |count| *count += value);
    0
}

pub(crate) unsafe extern "C" fn set(counter: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: likewise.
    let counter = unsafe { thing(counter) };
    counter.card.change(counter.id, |count| *count = value);
    0
}

/// # Safety
///
/// As `fi_query_atomic`.
pub(crate) unsafe extern "C" fn query_atomic(
    _: *mut fid_domain,
    datatype: fi_datatype,
    op: fi_op,
    attr: *mut fi_atomic_attr,
    flags: u64,
) -> c_int {
    if (datatype, op, flags) != (FI_UINT64, FI_SUM, 0) {
        return -FI_EOPNOTSUPP;
    }
    // SAFETY: the caller's promise.
    unsafe { ((*attr).count, (*attr).size) = (1, 8) };
    0
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

/// # Safety
///
/// As `fi_open_ops` of a counter.
pub(crate) unsafe extern "C" fn counter_ops(
    counter: *mut fid,
    name: *const c_char,
    _: u64,
    ops: *mut *mut c_void,
    _: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let config = &thing::<fid_cntr>(counter.cast()).card.config;
        if CStr::from_ptr(name) != FI_CXI_COUNTER_OPS || !(config.pages || config.back) {
            return -FI_EINVAL;
        }
        *ops = CXI_COUNTER.at().cast();
    }
    0
}

/// # Safety
///
/// As `fi_open_ops` of a domain.
pub(crate) unsafe extern "C" fn domain_ops(
    _: *mut fid,
    name: *const c_char,
    _: u64,
    ops: *mut *mut c_void,
    _: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if CStr::from_ptr(name) != FI_CXI_DOM_OPS_5 {
            return -FI_EINVAL;
        }
        *ops = CXI_DOMAIN.at().cast();
    }
    0
}

/// # Safety
///
/// The place is writable as long as the counter is open.
pub(crate) unsafe extern "C" fn set_wb_buffer(
    counter: *mut fid,
    buffer: *mut c_void,
    len: usize,
) -> c_int {
    // SAFETY: the caller has the counter open.
    let counter = unsafe { thing::<fid_cntr>(counter.cast()) };
    if len < 8 || !counter.card.config.back {
        return -FI_EINVAL;
    }
    counter
        .card
        .set_back(counter.id, buffer.expose_provenance());
    0
}

/// # Safety
///
/// The pointers live.
pub(crate) unsafe extern "C" fn get_mmio_addr(
    counter: *mut fid,
    at: *mut *mut c_void,
    len: *mut usize,
) -> c_int {
    // SAFETY: the caller has the counter open.
    let counter = unsafe { thing::<fid_cntr>(counter.cast()) };
    if !counter.card.config.pages {
        return -FI_ENOSYS;
    }
    let Some((page, bytes)) = counter.card.pages(counter.id) else {
        return -FI_ENOSYS;
    };
    // SAFETY: the caller's promise.
    unsafe {
        *at = std::ptr::with_exposed_provenance_mut(page);
        *len = bytes;
    }
    0
}

/// # Safety
///
/// The pointer lives.
pub(crate) unsafe extern "C" fn get_dwq_depth(domain: *mut fid, depth: *mut usize) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { *depth = thing::<fid_domain>(domain.cast()).card.config.says };
    0
}
