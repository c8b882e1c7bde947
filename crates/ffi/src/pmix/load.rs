//! Finding the library.

use std::ffi::{CStr, OsStr, c_char};
use std::sync::{Arc, OnceLock};

use libloading::os::unix;

use super::error::{PmixError, Result};
use super::sys::{self, pmix_info_t, pmix_proc_t, pmix_scope_t, pmix_status_t, pmix_value_t};
use crate::open::{self, list};

/// The name under which the library is looked for, unless [`LIBRARY_VARIABLE`] gives another.
pub const LIBRARIES: &[&str] = &["libpmix.so.2"];

/// The environment variable that can name another library for [`Library::load`]. If the Open MPI that started the
/// process has its own PMIx, name that one.
pub const LIBRARY_VARIABLE: &str = tidegate_hal::variables::LIBPMIX.name;

/// The oldest major version that can be used: in earlier versions a value is smaller.
pub const OLDEST: u32 = 3;

/// Why there is no library to call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// No library could be opened.
    #[error("no PMIx library could be opened; tried {} ({LIBRARY_VARIABLE} may name another)", list(.tried))]
    Library {
        /// The names tried, and what the loader said of each.
        tried: Vec<(String, String)>,
    },
    /// A library was opened that is not PMIx.
    #[error("{library} has no symbol {symbol}: it is not PMIx, or not what this crate knows of it")]
    Symbol {
        /// The library.
        library: String,
        /// The first of the functions that it lacks.
        symbol: &'static str,
    },
    /// The library is older than what this crate can use, or does not say how old it is.
    #[error("{library} says that it is {found:?}, but PMIx {OLDEST} or later is needed")]
    TooOld {
        /// The library.
        library: String,
        /// What `PMIx_Get_version` says.
        found: String,
    },
}

/// The functions that are called.
#[derive(Clone, Copy)]
pub struct Functions {
    /// `PMIx_Get_version`.
    pub version: unsafe extern "C" fn() -> *const c_char,
    /// `PMIx_Error_string`.
    pub error_string: unsafe extern "C" fn(pmix_status_t) -> *const c_char,
    /// `PMIx_Init`.
    pub init: unsafe extern "C" fn(*mut pmix_proc_t, *mut pmix_info_t, usize) -> pmix_status_t,
    /// `PMIx_Finalize`.
    pub finalize: unsafe extern "C" fn(*const pmix_info_t, usize) -> pmix_status_t,
    /// `PMIx_Put`.
    pub put: unsafe extern "C" fn(pmix_scope_t, *const c_char, *mut pmix_value_t) -> pmix_status_t,
    /// `PMIx_Commit`.
    pub commit: unsafe extern "C" fn() -> pmix_status_t,
    /// `PMIx_Fence`.
    pub fence:
        unsafe extern "C" fn(*const pmix_proc_t, usize, *const pmix_info_t, usize) -> pmix_status_t,
    /// `PMIx_Get`.
    pub get: unsafe extern "C" fn(
        *const pmix_proc_t,
        *const c_char,
        *const pmix_info_t,
        usize,
        *mut *mut pmix_value_t,
    ) -> pmix_status_t,
    /// `PMIx_Value_free`, which exists from version 5 on. Before that, the header frees values by itself.
    pub value_free: Option<unsafe extern "C" fn(*mut pmix_value_t, usize)>,
}

struct Loaded {
    functions: Functions,
    name: String,
    said: String,
}

/// The loaded library. Copies share it. It stays loaded until the process ends, because the library's own thread needs
/// its code.
#[derive(Clone)]
pub struct Library(Arc<Loaded>);

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Library")
            .field("name", &self.0.name)
            .field("version", &self.0.said)
            .finish_non_exhaustive()
    }
}

impl Library {
    /// The library that [`LIBRARY_VARIABLE`] names, or else one of [`LIBRARIES`]. It is looked for once: later calls
    /// return the same answer, even an error. If the process has loaded such a library already, as MPI does, that one
    /// is found.
    ///
    /// # Errors
    ///
    /// [`LoadError`].
    pub fn load() -> Result<Library, LoadError> {
        static LIBRARY: OnceLock<Result<Library, LoadError>> = OnceLock::new();
        LIBRARY
            .get_or_init(|| {
                let names = open::chosen(LIBRARY_VARIABLE, LIBRARIES);
                // SAFETY: these are the names of PMIx. Every program that is linked to it relies on finding PMIx under
                // them.
                unsafe { Library::load_from(&names) }
            })
            .clone()
    }

    /// The library from the first of `names` that can be opened. A name without a slash is looked for where the dynamic
    /// loader looks. If the first library that opens is no usable PMIx, the call fails, and tries no further names.
    ///
    /// # Errors
    ///
    /// [`LoadError`].
    ///
    /// # Safety
    ///
    /// Opening a library runs its initialisers, which must be sound to run. Under the names of [`Functions`], the
    /// library must have those functions of PMIx.
    pub unsafe fn load_from<S: AsRef<OsStr>>(names: &[S]) -> Result<Library, LoadError> {
        // Global: the library's own plugins look for its symbols there.
        // SAFETY: the caller vouches for the library's initialisers.
        let opened = unsafe { open::first(names, unix::RTLD_NOW | unix::RTLD_GLOBAL) };
        let (library, name) = opened.map_err(|tried| LoadError::Library { tried })?;
        // SAFETY: the caller vouches for the library's functions.
        let functions = unsafe { fill(&library) };
        // The handle is never closed: the pointers in the table, and the library's thread, need the code until the
        // process ends.
        let _ = library.into_raw();
        match functions {
            // SAFETY: as above.
            Ok(functions) => unsafe { Library::from_functions(functions, name) },
            Err(symbol) => Err(LoadError::Symbol {
                library: name,
                symbol,
            }),
        }
    }

    /// A library whose functions the caller has found in another way. `name` is for messages.
    ///
    /// # Errors
    ///
    /// [`LoadError::TooOld`].
    ///
    /// # Safety
    ///
    /// The functions do what those of PMIx do, and can be called until the process ends.
    pub unsafe fn from_functions(functions: Functions, name: String) -> Result<Library, LoadError> {
        // SAFETY: the function has no parameters, needs no initialisation, and returns a constant.
        let said = unsafe { text((functions.version)()) };
        match parse_version(&said) {
            Some(version) if version.0 >= OLDEST => Ok(Library(Arc::new(Loaded {
                functions,
                name,
                said,
            }))),
            _ => Err(LoadError::TooOld {
                library: name,
                found: said,
            }),
        }
    }

    pub(super) fn functions(&self) -> &Functions {
        &self.0.functions
    }

    /// A status as a result.
    pub(super) fn check(&self, call: &'static str, status: pmix_status_t) -> Result<()> {
        if status == sys::PMIX_SUCCESS {
            return Ok(());
        }
        // SAFETY: the function takes any number, and returns a constant.
        let text = unsafe { text((self.0.functions.error_string)(status)) };
        Err(PmixError {
            call,
            code: status,
            text,
        })
    }
}

/// # Safety
///
/// `chars` is null, or points to a string that ends with a NUL.
unsafe fn text(chars: *const c_char) -> String {
    if chars.is_null() {
        return String::new();
    }
    // SAFETY: it is not null; the caller vouches for the rest.
    unsafe { CStr::from_ptr(chars) }
        .to_string_lossy()
        .into_owned()
}

/// The `(4, 2)` of `OpenPMIx 4.2.2rc2 (PMIx Standard: 4.1, …)`.
fn parse_version(said: &str) -> Option<(u32, u32)> {
    said.split_whitespace().find_map(|word| {
        let mut numbers = word.split(|c: char| !c.is_ascii_digit());
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    })
}

/// Finds all functions, or returns the name of the first that is missing.
///
/// # Safety
///
/// The library's functions of these names have these types.
unsafe fn fill(library: &unix::Library) -> Result<Functions, &'static str> {
    macro_rules! find {
        ($symbol:literal) => {{
            // SAFETY: the caller vouches for the type, which the field has.
            let found = unsafe { library.get($symbol.as_bytes()) };
            *found.map_err(|_| $symbol)?
        }};
    }
    Ok(Functions {
        version: find!("PMIx_Get_version"),
        error_string: find!("PMIx_Error_string"),
        init: find!("PMIx_Init"),
        finalize: find!("PMIx_Finalize"),
        put: find!("PMIx_Put"),
        commit: find!("PMIx_Commit"),
        fence: find!("PMIx_Fence"),
        get: find!("PMIx_Get"),
        // SAFETY: as above.
        value_free: unsafe { library.get(b"PMIx_Value_free") }
            .ok()
            .map(|found| *found),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_versions() {
        let said = "OpenPMIx 4.2.2rc2 (PMIx Standard: 4.1, Stable ABI: 0.0, Provisional ABI: 0.0)";
        assert_eq!(parse_version(said), Some((4, 2)));
        assert_eq!(parse_version("OpenPMIx: 5.0.8rc1 "), Some((5, 0)));
        assert_eq!(parse_version("PMIx 3.2.3, repo rev: v3.2.3"), Some((3, 2)));
        assert_eq!(parse_version("no version"), None);
        assert_eq!(parse_version(""), None);
    }
}
