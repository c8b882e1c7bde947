//! Descriptions, and opening objects.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use tidegate_ffi::fabric::API_VERSION;
use tidegate_ffi::fabric::sys::*;

use crate::card::{Card, Kind};
use crate::find;
use crate::tables::*;

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

/// An object: what the library's user sees of it, and what is behind that.
#[repr(C)]
pub(crate) struct Thing<H> {
    head: H,
    pub(crate) card: Arc<Card>,
    pub(crate) id: u64,
    kind: Kind,
}

/// # Safety
///
/// `object` is one of ours, and its head is an `H`.
pub(crate) unsafe fn thing<'a, H>(object: *mut H) -> &'a Thing<H> {
    // SAFETY: the caller's promise.
    unsafe { &*object.cast::<Thing<H>>() }
}

fn give<H>(head: H, card: Arc<Card>, kind: Kind) -> *mut H {
    let id = card.make(kind);
    give_as(head, card, kind, id)
}

fn give_as<H>(head: H, card: Arc<Card>, kind: Kind, id: u64) -> *mut H {
    Box::into_raw(Box::new(Thing {
        head,
        card,
        id,
        kind,
    }))
    .cast()
}

/// # Safety
///
/// `fid` begins an object of ours whose head is an `H`.
pub(crate) unsafe extern "C" fn close<H>(fid: *mut fid) -> c_int {
    // SAFETY: the caller's promise.
    let object = unsafe { thing::<H>(fid.cast()) };
    if !object.card.close(object.kind, object.id) {
        return -FI_EBUSY;
    }
    // SAFETY: it was made by `give_as`, and is not used again.
    drop(unsafe { Box::from_raw(fid.cast::<Thing<H>>()) });
    0
}

pub(crate) unsafe extern "C" fn close_fabric(fid: *mut fid) -> c_int {
    // SAFETY: the library's user closes what `open_fabric` gave.
    drop(unsafe { Box::from_raw(fid.cast::<fid_fabric>()) });
    0
}

pub(crate) unsafe extern "C" fn version() -> u32 {
    1 << 16 | 17
}

pub(crate) unsafe extern "C" fn strerror(_: c_int) -> *const c_char {
    c"the fake card refuses".as_ptr()
}

pub(crate) unsafe extern "C" fn tostr(
    buffer: *mut c_char,
    _: usize,
    _: *const c_void,
    _: c_int,
) -> *mut c_char {
    buffer
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
        let (domain, wanted) = ((*hints).domain_attr, MODES);
        let known = provider.is_null() || CStr::from_ptr(provider) == c"cxi";
        if node.is_null() || !known || (*domain).mr_mode & wanted != wanted {
            return -FI_ENODATA;
        }
        let node = CStr::from_ptr(node);
        let Some(card) = node.to_str().ok().and_then(find) else {
            return -FI_ENODATA;
        };
        let whole = dupinfo(std::ptr::null()).cast::<Whole>();
        (*whole).info.caps = FI_RMA | FI_MSG | FI_ATOMIC | FI_RMA_EVENT;
        // Names are few, and live as long as the process.
        (*whole).fabric.prov_name = c"cxi".as_ptr().cast_mut();
        (*whole).domain.name = CString::from(node).into_raw();
        (*whole).domain.threading = (*domain).threading;
        (*whole).domain.mr_mode = MODES;
        (*whole).domain.mr_key_size = 8;
        (*whole).domain.cq_data_size = if card.config.data { 8 } else { 0 };
        (*whole).domain.data_progress = FI_PROGRESS_MANUAL;
        (*whole).ep.max_msg_size = 1 << 20;
        (*whole).tx.size = 256;
        *found = whole.cast();
    }
    0
}

/// What memory needs.
const MODES: c_int = FI_MR_ENDPOINT | FI_MR_PROV_KEY;

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
