//! Being told when the process exits, and with which status.
//!
//! `atexit` does not tell the status. glibc's `on_exit` does, and calls its handlers when `main` has returned and the
//! runtime of Rust has printed the error that `main` returned. It is found at run time, like all foreign functions
//! here.

use libloading::os::unix;
use std::ffi::{c_char, c_int, c_void};
use std::panic::catch_unwind;
use std::path::Path;

/// Calls `handler` with the exit status when the process ends by `exit`: by a return from `main`, by a panic of the
/// main thread, or by [`std::process::exit`]. A signal, `abort` and `_exit` call nothing. In a process made by `fork`
/// the handler is called as well.
///
/// The library that this code is part of stays loaded from then on.
///
/// Returns whether the handler was registered. It is not registered if the C library has no `on_exit`, or if the
/// library that this code is part of cannot be kept loaded.
pub fn on_exit(handler: fn(c_int)) -> bool {
    type Handler = extern "C" fn(c_int, *mut c_void);
    type OnExit = unsafe extern "C" fn(Handler, *mut c_void) -> c_int;
    let this = unix::Library::this();
    // SAFETY: the name is the C library's, and this is its type there (on_exit(3)).
    let Ok(on_exit) = (unsafe { this.get::<OnExit>(b"on_exit") }) else {
        return false;
    };
    if !stays_loaded() {
        return false;
    }
    // SAFETY: `call` stays mapped till the end of the process (`stays_loaded`), and gets back the pointer that it
    // expects.
    unsafe { on_exit(call, handler as *mut c_void) == 0 }
}

extern "C" fn call(status: c_int, handler: *mut c_void) {
    // SAFETY: `on_exit` above has registered this function together with a pointer of this type, and nothing else calls
    // it.
    let handler: fn(c_int) = unsafe { std::mem::transmute(handler) };
    // A panic must not unwind through the C library.
    let _ = catch_unwind(|| handler(status));
}

/// Keeps the shared library that this code is part of, if it is part of one, from being unloaded: handlers outlive it.
/// Returns whether the code stays: a program's own code always does.
fn stays_loaded() -> bool {
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
        return false;
    };
    let object_of = |address: *const c_void| {
        let mut info = Info {
            file: std::ptr::null(),
            base: std::ptr::null_mut(),
            symbol: std::ptr::null(),
            address: std::ptr::null_mut(),
        };
        // SAFETY: the call takes any address, and `info` has the layout of a `Dl_info`.
        let found = unsafe { dladdr(address, &raw mut info) } != 0;
        found.then_some(info)
    };
    let Some(info) = object_of(call as *const c_void) else {
        return false;
    };
    // SAFETY: the call takes any number, and answers 0 to one that it does not know.
    let headers = unsafe { libc::getauxval(libc::AT_PHDR) } as usize;
    let program = object_of(std::ptr::with_exposed_provenance(headers));
    if program.is_some_and(|program| program.base == info.base) {
        return true;
    }
    if info.file.is_null() {
        return false;
    }
    // SAFETY: `dladdr` has found the object, whose name is a C string for as long as that is loaded: this code runs.
    let file = unsafe { std::ffi::CStr::from_ptr(info.file) };
    let file =
        Path::new(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(file.to_bytes()));
    const RTLD_NOLOAD: c_int = 4;
    let flags = unix::RTLD_LAZY | RTLD_NOLOAD;
    // SAFETY: nothing is loaded that is not loaded already, so no initialiser runs.
    let library = unsafe { unix::Library::open(Some(file), flags) };
    // The handle is never closed.
    library.map(unix::Library::into_raw).is_ok()
}

#[cfg(test)]
mod tests {
    /// Rank 0 can leave in the background only where this is so.
    #[test]
    fn the_code_of_a_program_stays_loaded() {
        assert!(super::stays_loaded());
    }
}
