//! Owned objects of the library, and calls through their tables.

use std::any::Any;
use std::ffi::{c_int, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::error::{FabricError, Result};
use super::load::Library;
use super::sys;

/// Keeps something alive as long as it is held.
pub type Keep = Arc<dyn Any + Send + Sync>;

/// Gets an operation from a table: `operation!(table, type, name)` is `Some` only if there is a table, and it is long
/// enough and has the operation.
///
/// To be used inside `unsafe`: the table is null or live.
macro_rules! operation {
    ($table:expr, $type:ident, $name:ident) => {{
        let table: *const crate::fabric::sys::$type = $table;
        if table.is_null()
            || (&raw const (*table).size).read()
                <= std::mem::offset_of!(crate::fabric::sys::$type, $name)
        {
            None
        } else {
            (&raw const (*table).$name).read()
        }
    }};
}
pub(crate) use operation;

/// The same, but a missing operation is an error.
macro_rules! required {
    ($table:expr, $type:ident, $name:ident, $call:expr) => {
        crate::fabric::object::operation!($table, $type, $name)
            .ok_or_else(|| crate::fabric::error::FabricError::missing($call))
    };
}
pub(crate) use required;

/// An object of the library.
///
/// # Safety
///
/// The structure begins with a [`sys::fid`].
pub(crate) unsafe trait Object {}

macro_rules! object {
    ($($name:ident)*) => {$(
        // SAFETY: `fid` is the first field, at offset 0: see the layout assertions.
        unsafe impl Object for sys::$name {}
    )*};
}
object! { fid_fabric fid_domain fid_ep fid_av fid_cq fid_cntr fid_mr }

/// How many objects the library has refused to close since the process began, because something in it still used them.
/// They are leaked.
pub fn leaked_objects() -> usize {
    LEAKED.load(Ordering::Relaxed)
}

static LEAKED: AtomicUsize = AtomicUsize::new(0);

/// An object that this value owns, and closes.
pub(crate) struct Owned<T: Object> {
    raw: NonNull<T>,
    library: Library,
}

// SAFETY: the object may be closed by any thread: all domains are opened as FI_THREAD_SAFE (`Domain::open` refuses
// others), and fabrics are so always.
unsafe impl<T: Object> Send for Owned<T> {}
// SAFETY: a shared reference gives the pointer only. What is called through it is FI_THREAD_SAFE; the calls that the
// library wants serialised (bind, enable) are made by the one owner of the object, before it is shared.
unsafe impl<T: Object> Sync for Owned<T> {}

impl<T: Object> Owned<T> {
    /// The object that `call` makes.
    ///
    /// # Safety
    ///
    /// `raw` is null, or an object of this library that nothing else closes.
    pub(crate) unsafe fn new(library: &Library, call: &'static str, raw: *mut T) -> Result<Self> {
        match NonNull::new(raw) {
            Some(raw) => Ok(Owned {
                raw,
                library: library.clone(),
            }),
            None => Err(FabricError::unexpected(call, "success, and a null pointer")),
        }
    }

    pub(crate) fn as_ptr(&self) -> *mut T {
        self.raw.as_ptr()
    }

    /// The part with which all objects begin.
    pub(crate) fn fid(&self) -> *mut sys::fid {
        self.raw.as_ptr().cast()
    }

    pub(crate) fn library(&self) -> &Library {
        &self.library
    }

    /// The table that all objects have.
    fn ops(&self) -> *const sys::fi_ops {
        // SAFETY: the object lives as long as this value, and begins with a `fid`.
        unsafe { (*self.fid()).ops }
    }

    /// `fi_…_bind`.
    ///
    /// # Safety
    ///
    /// `other` lives as long as this object. No other thread uses this object meanwhile.
    pub(crate) unsafe fn bind(
        &self,
        call: &'static str,
        other: *mut sys::fid,
        flags: u64,
    ) -> Result<()> {
        // SAFETY: the table is the object's, and lives as long.
        let bind = unsafe { required!(self.ops(), fi_ops, bind, call) }?;
        // SAFETY: the object is alive, and the caller vouches for the other.
        let answer = unsafe { bind(self.fid(), other, flags) };
        self.library.check(call, answer.into())
    }

    /// `fi_control`.
    ///
    /// # Safety
    ///
    /// `argument` is of the type that the command takes.
    pub(crate) unsafe fn control(
        &self,
        call: &'static str,
        command: c_int,
        argument: *mut c_void,
    ) -> Result<()> {
        // SAFETY: the table is the object's, and lives as long.
        let control = unsafe { required!(self.ops(), fi_ops, control, call) }?;
        // SAFETY: the object is alive, and the caller vouches for the argument.
        let answer = unsafe { control(self.fid(), command, argument) };
        self.library.check(call, answer.into())
    }

    /// A provider's own table of operations on this object (`fi_open_ops`).
    pub(crate) fn open_ops(&self, name: &std::ffi::CStr) -> Result<NonNull<c_void>> {
        const CALL: &str = "fi_open_ops";
        // SAFETY: the table is the object's, and lives as long.
        let open = unsafe { required!(self.ops(), fi_ops, ops_open, CALL) }?;
        let mut table = null_mut();
        // SAFETY: the object is alive, the name ends with a NUL, and one pointer is written into a live variable.
        let answer = unsafe { open(self.fid(), name.as_ptr(), 0, &mut table, null_mut()) };
        self.library.check(CALL, answer.into())?;
        NonNull::new(table)
            .ok_or_else(|| FabricError::unexpected(CALL, "success, and a null pointer"))
    }

    /// Closes the object. Returns whether the library did. If not, the object lives on, and is leaked.
    fn close(&self) -> bool {
        // SAFETY: the table is the object's, and lives as long.
        let Some(close) = (unsafe { operation!(self.ops(), fi_ops, close) }) else {
            return false;
        };
        // SAFETY: the object is alive and this value's own, which `drop` and `close_now` give up.
        unsafe { close(self.fid()) == 0 }
    }

    /// Closes the object now. Returns whether the library did.
    pub(crate) fn close_now(self) -> bool {
        let this = std::mem::ManuallyDrop::new(self);
        let closed = this.close();
        if !closed {
            LEAKED.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: `this` is not dropped, so that the library is dropped once.
        drop(unsafe { std::ptr::read(&this.library) });
        closed
    }
}

impl<T: Object> Drop for Owned<T> {
    fn drop(&mut self) {
        if !self.close() {
            LEAKED.fetch_add(1, Ordering::Relaxed);
        }
    }
}
