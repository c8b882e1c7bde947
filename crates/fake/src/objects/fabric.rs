//! Fabrics, and the library that opens them.

use std::ffi::{c_int, c_void};

use tidegate_ffi::fabric::sys::*;
use tidegate_ffi::fabric::{Functions, Library};

use super::domain::open_domain;
use super::info::{dupinfo, freeinfo, getinfo, strerror, version};
use super::thing::Table;

pub(crate) static FABRIC_FID: Table<fi_ops> = Table(fi_ops {
    close: Some(close_fabric),
    ..fi_ops::EMPTY
});

pub(crate) static FABRIC: Table<fi_ops_fabric> = Table(fi_ops_fabric {
    domain: Some(open_domain),
    ..fi_ops_fabric::EMPTY
});

const FUNCTIONS: Functions = Functions {
    version,
    strerror,
    getinfo,
    freeinfo,
    dupinfo,
    fabric: open_fabric,
};

/// The library.
pub fn library() -> Library {
    // SAFETY: the functions keep to what libfabric says, as far as this crate goes.
    unsafe { Library::from_functions(FUNCTIONS, "the fake card's".into()) }.expect("a library")
}

/// # Safety
///
/// As `fi_fabric`.
pub(crate) unsafe extern "C" fn open_fabric(
    _: *mut fi_fabric_attr,
    fabric: *mut *mut fid_fabric,
    _: *mut c_void,
) -> c_int {
    let mut head = fid_fabric::zeroed();
    head.fid.ops = FABRIC_FID.at();
    head.ops = FABRIC.at();
    // SAFETY: the caller vouches for the pointer.
    unsafe { *fabric = Box::into_raw(Box::new(head)) };
    0
}

pub(crate) unsafe extern "C" fn close_fabric(fid: *mut fid) -> c_int {
    // SAFETY: the library's user closes what `open_fabric` gave.
    drop(unsafe { Box::from_raw(fid.cast::<fid_fabric>()) });
    0
}
