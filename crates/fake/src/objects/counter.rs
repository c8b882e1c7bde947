//! Counters, with their pages and their write-back.

use std::ffi::{CStr, c_char, c_int, c_void};

use tidegate_ffi::fabric::sys::*;

use super::thing::{Table, close, give, thing};
use crate::hardware::Kind;

pub(crate) static COUNTER_FID: Table<fi_ops> = Table(fi_ops {
    close: Some(close::<fid_cntr>),
    ops_open: Some(counter_ops),
    ..fi_ops::EMPTY
});

pub(crate) static COUNTER: Table<fi_ops_cntr> = Table(fi_ops_cntr {
    read: Some(read_counter),
    readerr: Some(read_failures),
    add: Some(add),
    set: Some(set),
    ..fi_ops_cntr::EMPTY
});

pub(crate) static CXI_COUNTER: Table<fi_cxi_cntr_ops> = Table(fi_cxi_cntr_ops {
    set_wb_buffer: Some(set_wb_buffer),
    get_mmio_addr: Some(get_mmio_addr),
});

/// # Safety
///
/// As `fi_cntr_open`.
pub(crate) unsafe extern "C" fn open_counter(
    domain: *mut fid_domain,
    attr: *mut fi_cntr_attr,
    counter: *mut *mut fid_cntr,
    _: *mut c_void,
) -> c_int {
    // SAFETY: the caller vouches for all three.
    unsafe {
        if (*attr).wait_obj != FI_WAIT_NONE {
            return -FI_ENOSYS;
        }
        let mut head = fid_cntr::zeroed();
        head.fid.ops = COUNTER_FID.at();
        head.ops = COUNTER.at();
        *counter = give(head, thing(domain).card.clone(), Kind::Counter);
    }
    0
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
