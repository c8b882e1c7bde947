//! roctx.

use std::ffi::{CStr, c_char, c_int};
use std::sync::OnceLock;

use libloading::os::unix;

use super::missing::{Missing, function};
use crate::open;

/// The newer library, and then the older one, which the profilers of ROCm before 6.2 know.
const LIBRARIES: [&str; 5] = [
    "librocprofiler-sdk-roctx.so.1",
    "librocprofiler-sdk-roctx.so.0",
    "librocprofiler-sdk-roctx.so",
    "libroctx64.so.4",
    "libroctx64.so",
];

/// The functions.
#[derive(Debug)]
pub(super) struct Roctx {
    pub(super) library: String,
    push: unsafe extern "C" fn(*const c_char) -> c_int,
    pop: unsafe extern "C" fn() -> c_int,
}

impl Roctx {
    /// The library, opened with these flags besides the usual ones.
    pub(super) fn get(flags: c_int) -> Result<&'static Self, Missing> {
        static ONE: OnceLock<Roctx> = OnceLock::new();
        if let Some(one) = ONE.get() {
            return Ok(one);
        }
        let flags = flags | unix::RTLD_NOW | unix::RTLD_LOCAL;
        // SAFETY: the initialisers of ROCm's libraries may run at any time, as in each program that is linked to them.
        let opened = unsafe { open::first(&LIBRARIES, flags) };
        let (library, shown) = opened.map_err(|tried| Missing::NoLibrary {
            what: "roctx",
            tried,
        })?;
        // SAFETY: these are the types of both functions in `roctx.h`.
        let found = unsafe {
            Roctx {
                push: function(&library, "roctxRangePushA", &shown)?,
                pop: function(&library, "roctxRangePop", &shown)?,
                library: shown,
            }
        };
        // It is used until the process ends.
        std::mem::forget(library);
        Ok(ONE.get_or_init(|| found))
    }

    pub(super) fn push(&self, text: &CStr) {
        // SAFETY: the library stays loaded, and the text ends with a zero byte. The library copies it.
        unsafe { (self.push)(text.as_ptr()) };
    }

    pub(super) fn pop(&self) {
        // SAFETY: the library stays loaded. Without an open range the function returns an error.
        unsafe { (self.pop)() };
    }
}
