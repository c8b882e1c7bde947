//! The parts of all objects.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use tidegate_ffi::fabric::sys::*;

use crate::hardware::{Hardware, Kind};

/// A table that does not move.
pub(crate) struct Table<T>(pub(super) T);

// SAFETY: tables hold integers and function pointers.
unsafe impl<T> Sync for Table<T> {}

impl<T> Table<T> {
    pub(crate) fn at(&'static self) -> *mut T {
        (&raw const self.0).cast_mut()
    }
}

/// An object: the structure that the library's user sees, and the state behind it.
#[repr(C)]
pub(crate) struct Thing<H> {
    head: H,
    pub(crate) card: Arc<Hardware>,
    pub(crate) id: u64,
    kind: Kind,
}

/// # Safety
///
/// `object` is one of this library's, and its head is an `H`.
pub(crate) unsafe fn thing<'a, H>(object: *mut H) -> &'a Thing<H> {
    // SAFETY: the caller's promise.
    unsafe { &*object.cast::<Thing<H>>() }
}

pub(super) fn give<H>(head: H, card: Arc<Hardware>, kind: Kind) -> *mut H {
    let id = card.make(kind);
    give_as(head, card, kind, id)
}

pub(super) fn give_as<H>(head: H, card: Arc<Hardware>, kind: Kind, id: u64) -> *mut H {
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
/// `fid` is the beginning of an object of this library whose head is an `H`.
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

pub(crate) unsafe extern "C" fn enable(_: *mut fid, command: c_int, _: *mut c_void) -> c_int {
    if command == FI_ENABLE { 0 } else { -FI_ENOSYS }
}
