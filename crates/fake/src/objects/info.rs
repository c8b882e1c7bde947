//! Descriptions.

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::null_mut;

use tidegate_ffi::fabric::API_VERSION;
use tidegate_ffi::fabric::sys::*;

use crate::card::find;

/// A description and its parts.
#[repr(C)]
struct Whole {
    info: fi_info,
    tx: fi_tx_attr,
    rx: fi_rx_attr,
    ep: fi_ep_attr,
    domain: fi_domain_attr,
    fabric: fi_fabric_attr,
}

pub(crate) unsafe extern "C" fn version() -> u32 {
    1 << 16 | 17
}

pub(crate) unsafe extern "C" fn strerror(_: c_int) -> *const c_char {
    c"the fake card refuses".as_ptr()
}

/// # Safety
///
/// `from` is null, or from here.
pub(crate) unsafe extern "C" fn dupinfo(from: *const fi_info) -> *mut fi_info {
    let raw = Box::into_raw(Box::new(Whole {
        info: fi_info::zeroed(),
        tx: fi_tx_attr::zeroed(),
        rx: fi_rx_attr::zeroed(),
        ep: fi_ep_attr::zeroed(),
        domain: fi_domain_attr::zeroed(),
        fabric: fi_fabric_attr::zeroed(),
    }));
    // SAFETY: it is from a box; the caller vouches for the other.
    unsafe {
        if !from.is_null() {
            raw.copy_from_nonoverlapping(from.cast::<Whole>(), 1);
        }
        (*raw).info.next = null_mut();
        (*raw).info.tx_attr = &raw mut (*raw).tx;
        (*raw).info.rx_attr = &raw mut (*raw).rx;
        (*raw).info.ep_attr = &raw mut (*raw).ep;
        (*raw).info.domain_attr = &raw mut (*raw).domain;
        (*raw).info.fabric_attr = &raw mut (*raw).fabric;
    }
    raw.cast()
}

/// # Safety
///
/// `info` is from [`dupinfo`].
pub(crate) unsafe extern "C" fn freeinfo(info: *mut fi_info) {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(info.cast::<Whole>()) });
}

/// The provider's demands on registered memory.
const MODES: c_int = FI_MR_ENDPOINT | FI_MR_PROV_KEY;

/// # Safety
///
/// As `fi_getinfo`.
pub(crate) unsafe extern "C" fn getinfo(
    version: u32,
    node: *const c_char,
    _: *const c_char,
    _: u64,
    hints: *const fi_info,
    found: *mut *mut fi_info,
) -> c_int {
    assert_eq!(version, API_VERSION);
    // SAFETY: the hints are complete; strings end with a NUL; the caller's pointer lives.
    unsafe {
        let provider = (*(*hints).fabric_attr).prov_name;
        let domain = (*hints).domain_attr;
        let known = provider.is_null() || CStr::from_ptr(provider) == c"cxi";
        if node.is_null() || !known {
            return -FI_ENODATA;
        }
        let node = CStr::from_ptr(node);
        let Some(card) = node.to_str().ok().and_then(find) else {
            return -FI_ENODATA;
        };
        let modes = match card.config.free {
            true => FI_MR_PROV_KEY | (*domain).mr_mode & FI_MR_ENDPOINT,
            false => MODES,
        };
        if (*domain).mr_mode & modes != modes {
            return -FI_ENODATA;
        }
        let whole = dupinfo(std::ptr::null()).cast::<Whole>();
        (*whole).info.caps = FI_RMA | FI_MSG | FI_ATOMIC | FI_RMA_EVENT;
        // Names are few, so they are leaked.
        (*whole).fabric.prov_name = c"cxi".as_ptr().cast_mut();
        (*whole).domain.name = CString::from(node).into_raw();
        (*whole).domain.threading = (*domain).threading;
        (*whole).domain.mr_mode = modes;
        (*whole).domain.mr_key_size = 8;
        (*whole).domain.cq_data_size = if card.config.data { 8 } else { 0 };
        (*whole).domain.data_progress = FI_PROGRESS_MANUAL;
        (*whole).ep.max_msg_size = 1 << 20;
        (*whole).tx.size = 256;
        *found = whole.cast();
    }
    0
}
