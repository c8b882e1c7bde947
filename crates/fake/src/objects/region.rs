//! Registered memory.

use std::ffi::c_int;

use tidegate_ffi::fabric::sys::*;

use super::thing::{Table, close, enable, give_as, thing};
use crate::hardware::Kind;

pub(crate) static MR_FID: Table<fi_ops> = Table(fi_ops {
    close: Some(close::<fid_mr>),
    bind: Some(bind_region),
    control: Some(enable),
    ..fi_ops::EMPTY
});

pub(crate) static MR: Table<fi_ops_mr> = Table(fi_ops_mr {
    regattr: Some(register),
    ..fi_ops_mr::EMPTY
});

/// # Safety
///
/// As `fi_mr_regattr`.
pub(crate) unsafe extern "C" fn register(
    domain: *mut fid,
    attr: *const fi_mr_attr,
    _: u64,
    region: *mut *mut fid_mr,
) -> c_int {
    // SAFETY: the caller vouches for all three.
    unsafe {
        let card = thing::<fid_domain>(domain.cast()).card.clone();
        let part = *(*attr).mr_iov;
        let key = card.register(part.iov_base.expose_provenance(), part.iov_len);
        let mut head = fid_mr::zeroed();
        head.fid.ops = MR_FID.at();
        head.key = key;
        *region = give_as(head, card, Kind::Region, key);
    }
    0
}

/// # Safety
///
/// Both are objects of this library. The first is a region.
pub(crate) unsafe extern "C" fn bind_region(region: *mut fid, endpoint: *mut fid, _: u64) -> c_int {
    // SAFETY: the caller's promise; only endpoints are bound to regions here.
    unsafe {
        let region = thing::<fid_mr>(region.cast());
        let endpoint = thing::<fid_ep>(endpoint.cast()).id;
        region.card.bind_region(region.id, endpoint);
    }
    0
}
