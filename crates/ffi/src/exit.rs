//! Being told when the process exits, and with which status.
//!
//! `atexit` does not tell the status. glibc's `on_exit` does, and calls its handlers when `main` has returned and the
//! runtime of Rust has printed the error that `main` returned. It is found at run time, as all that is foreign here.

use libloading::os::unix;
use std::ffi::{c_char, c_int, c_void};
use std::panic::catch_unwind;
use std::path::Path;

/// Calls `handler` with the exit status when the process ends by `exit`: by a return from `main`, by a panic of the main
/// thread, or by [`std::process::exit`]. A signal, `abort` and `_exit` call nothing. In a process made by `fork` the
/// handler is called as well.
///
/// The library that this code is part of stays loaded from then on.
///
/// Returns whether the handler was registered. It is not where the C library has no `on_exit`.
pub fn on_exit(handler: fn(c_int)) -> bool {
    type Handler = extern "C" fn(c_int, *mut c_void);
    type OnExit = unsafe extern "C" fn(Handler, *mut c_void) -> c_int;
    let this = unix::Library::this();
    // SAFETY: the name is the C library's, and this is its type there (on_exit(3)).
    let Ok(on_exit) = (unsafe { this.get::<OnExit>(b"on_exit") }) else {
        return false;
    };
    stay_loaded();
    // SAFETY: `call` stays mapped till the end of the process (see above), and gets back the pointer that it expects.
    unsafe { on_exit(call, handler as *mut c_void) == 0 }
}

extern "C" fn call(status: c_int, handler: *mut c_void) {
    // SAFETY: `on_exit` above has registered this function together with a pointer of this type, and nothing else calls it.
    let handler: fn(c_int) = unsafe { std::mem::transmute(handler) };
    // A panic cannot go on through the C library.
    let _ = catch_unwind(|| handler(status));
}

/// Keeps the shared library that this code is part of, if it is part of one, from being unloaded: handlers outlive it.
fn stay_loaded() {
    #[repr(C)]
    struct Info {
        file: *const c_char,
        base: *mut c_void,
        symbol: *const c_char,
        address: *mut c_void,
    }
    type Dladdr = unsafe extern "C" fn(*const c_void, *mut Info) -> c_int;
    let this = unix::Library::this();
    // SAFETY: the name is the C library's, and this is its type there (dladdr(3)).
    let Ok(dladdr) = (unsafe { this.get::<Dladdr>(b"dladdr") }) else {
        return;
    };
    let mut info = Info {
        file: std::ptr::null(),
        base: std::ptr::null_mut(),
        symbol: std::ptr::null(),
        address: std::ptr::null_mut(),
    };
    // SAFETY: the address is one of this code, and `info` has the layout of a `Dl_info`.
    let found = unsafe { dladdr(call as *const c_void, &raw mut info) } != 0;
    if !found || info.file.is_null() {
        return;
    }
    // SAFETY: `dladdr` has found the object, whose name is a C string for as long as that is loaded: this code runs.
    let file = unsafe { std::ffi::CStr::from_ptr(info.file) };
    let file =
        Path::new(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(file.to_bytes()));
    const RTLD_NOLOAD: c_int = 4;
    let flags = unix::RTLD_LAZY | RTLD_NOLOAD;
    // SAFETY: nothing is loaded that is not loaded already, so no initialiser runs. A program is no library, and refused.
    if let Ok(library) = unsafe { unix::Library::open(Some(file), flags) } {
        // Never closed.
        let _ = library.into_raw();
    }
}
