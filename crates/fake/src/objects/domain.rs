//! Domains: they open the other objects, and take deferred works.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;

use tidegate_ffi::fabric::sys::*;

use super::counter::open_counter;
use super::endpoint::{open_endpoint, transfer};
use super::queue::open_queue;
use super::region::MR;
use super::thing::{Table, close, give, thing};
use super::vector::open_vector;
use crate::card::find;
use crate::hardware::{Hardware, Kind, Operation, What};

pub(crate) static DOMAIN_FID: Table<fi_ops> = Table(fi_ops {
    close: Some(close::<fid_domain>),
    control: Some(control),
    ops_open: Some(domain_ops),
    ..fi_ops::EMPTY
});

pub(crate) static DOMAIN: Table<fi_ops_domain> = Table(fi_ops_domain {
    av_open: Some(open_vector),
    cq_open: Some(open_queue),
    endpoint: Some(open_endpoint),
    cntr_open: Some(open_counter),
    ..fi_ops_domain::EMPTY
});

pub(crate) static CXI_DOMAIN: Table<fi_cxi_dom_ops> = Table(fi_cxi_dom_ops {
    cntr_read: None,
    topology: None,
    enable_hybrid_mr_desc: None,
    ep_get_unexp_msgs: None,
    get_dwq_depth: Some(get_dwq_depth),
});

/// # Safety
///
/// As `fi_domain`.
pub(crate) unsafe extern "C" fn open_domain(
    _: *mut fid_fabric,
    info: *mut fi_info,
    domain: *mut *mut fid_domain,
    _: *mut c_void,
) -> c_int {
    // SAFETY: the description is from `getinfo`, and the caller vouches for the pointer.
    unsafe {
        let name = CStr::from_ptr((*(*info).domain_attr).name);
        let Some(card) = name.to_str().ok().and_then(find) else {
            return -FI_ENODEV;
        };
        let mut head = fid_domain::zeroed();
        head.fid.ops = DOMAIN_FID.at();
        head.ops = DOMAIN.at();
        head.mr = MR.at();
        *domain = give(head, card, Kind::Domain);
    }
    0
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
unsafe fn queue_work(card: &Arc<Hardware>, work: *mut fi_deferred_work) -> c_int {
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
/// The pointer lives.
pub(crate) unsafe extern "C" fn get_dwq_depth(domain: *mut fid, depth: *mut usize) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { *depth = thing::<fid_domain>(domain.cast()).card.config.says };
    0
}
