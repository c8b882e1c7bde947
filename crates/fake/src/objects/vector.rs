//! Address vectors.

use std::ffi::{c_int, c_void};

use tidegate_ffi::fabric::sys::*;

use super::thing::{Table, close, give, thing};
use crate::hardware::Kind;

pub(crate) static AV_FID: Table<fi_ops> = Table(fi_ops {
    close: Some(close::<fid_av>),
    ..fi_ops::EMPTY
});

pub(crate) static AV: Table<fi_ops_av> = Table(fi_ops_av {
    insert: Some(insert),
    ..fi_ops_av::EMPTY
});

/// # Safety
///
/// As `fi_av_open`.
pub(crate) unsafe extern "C" fn open_vector(
    domain: *mut fid_domain,
    _: *mut fi_av_attr,
    vector: *mut *mut fid_av,
    _: *mut c_void,
) -> c_int {
    let mut head = fid_av::zeroed();
    head.fid.ops = AV_FID.at();
    head.ops = AV.at();
    // SAFETY: the caller vouches for both.
    unsafe { *vector = give(head, thing(domain).card.clone(), Kind::Vector) };
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
