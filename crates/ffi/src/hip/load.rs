//! Finding the runtime.

use std::ffi::{CStr, c_char};
use std::sync::OnceLock;

use libloading::os::unix;
use tidegate_hal::process::Process;

use super::error::{HipError, Result, version_text};
use super::sys;
use super::table::Table;
use crate::open::{self, list};

/// The names under which the runtime is looked for, in this order: those of ROCm 7 and 6.
pub const LIBRARIES: &[&str] = &["libamdhip64.so.7", "libamdhip64.so.6"];

/// Names of older releases. They are opened only if no other is found, to say which one there is.
pub const OLDER: &[&str] = &["libamdhip64.so.5", "libamdhip64.so"];

/// The oldest version that is taken, as `hipRuntimeGetVersion` counts: 10,000,000 for the major number, 100,000 for the
/// minor one.
pub const MIN_VERSION: i32 = 60_000_000;

/// Why there is no runtime to call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// No library could be opened.
    #[error("no HIP runtime could be opened; tried {}", list(.tried))]
    Library {
        /// The names tried, with the loader's message for each.
        tried: Vec<(String, String)>,
    },
    /// A library was opened that is not the runtime, or not all of it.
    #[error(
        "{library} has no symbol {symbol}: it is not the HIP runtime of ROCm {} or newer",
        version_text(MIN_VERSION)
    )]
    Symbol {
        /// The library.
        library: String,
        /// The first of the functions that it lacks.
        symbol: &'static str,
    },
    /// The runtime is older than this crate can use.
    #[error("{library} is found and too old: it is HIP {}, and {} is needed (ROCm {1} or newer)", version_text(*.found), version_text(*.needed))]
    TooOld {
        /// The library.
        library: String,
        /// Its version, as `hipRuntimeGetVersion` counts.
        found: i32,
        /// The oldest version that would do.
        needed: i32,
    },
    /// The runtime does not say its version.
    #[error("{library} refuses hipRuntimeGetVersion with code {code}")]
    Version {
        /// The library.
        library: String,
        /// The code that it returned.
        code: u32,
    },
}

/// The loaded runtime: a table of functions.
///
/// It has no state of its own. The library stays loaded for good, since it has threads that would lose their code.
pub struct Driver {
    /// The process that has loaded the library. In a child, a call could do anything, and hang.
    process: Process,
    pub(crate) table: Table,
    library: String,
    version: i32,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver")
            .field("library", &self.library)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

impl Driver {
    /// The runtime of this machine, from [`LIBRARIES`]. It is looked for once: later calls return the same answer, an
    /// error as well.
    ///
    /// # Errors
    ///
    /// [`LoadError`].
    pub fn load() -> Result<&'static Driver, LoadError> {
        static DRIVER: OnceLock<Result<Driver, LoadError>> = OnceLock::new();
        let names: Vec<_> = LIBRARIES.iter().chain(OLDER).copied().collect();
        DRIVER
            // SAFETY: these are names of the runtime's library. Every program that is linked to it relies on finding
            // the runtime under them.
            .get_or_init(|| unsafe { Driver::load_from(&names, MIN_VERSION) })
            .as_ref()
            .map_err(LoadError::clone)
    }

    /// The runtime from the first of `names` that can be opened, if its version is at least `oldest`. The names after
    /// it are not tried, since two runtimes in one process are never intended.
    ///
    /// Tests load older libraries. From [`MIN_VERSION`] on, the library has all functions that are needed, or this
    /// fails.
    ///
    /// # Errors
    ///
    /// [`LoadError`].
    ///
    /// # Safety
    ///
    /// Opening a library runs its initialisers, which must be sound to run. A function of the library that has the name
    /// of one of HIP's is that function.
    pub unsafe fn load_from(names: &[&str], oldest: i32) -> Result<Driver, LoadError> {
        // SAFETY: the caller vouches for the library's initialisers.
        let opened = unsafe { open::first(names, unix::RTLD_LAZY | unix::RTLD_LOCAL) };
        let (library, name) = opened.map_err(|tried| LoadError::Library { tried })?;
        let library = library.into();
        // SAFETY: the caller vouches for the library's functions.
        let table = unsafe { Table::fill(&library) };
        let Some(get) = table.runtime_get_version else {
            return Err(LoadError::Symbol {
                library: name,
                symbol: "hipRuntimeGetVersion",
            });
        };
        let mut version = 0;
        // SAFETY: the function writes one int, to one that lives. It needs no initialisation.
        let code = unsafe { get(&mut version) };
        if code != sys::hipSuccess {
            return Err(LoadError::Version {
                library: name,
                code,
            });
        }
        if version < oldest {
            return Err(LoadError::TooOld {
                library: name,
                found: version,
                needed: oldest,
            });
        }
        if let Some(symbol) = table.lacks().filter(|_| oldest >= MIN_VERSION) {
            return Err(LoadError::Symbol {
                library: name,
                symbol,
            });
        }
        // The pointers in the table, and the runtime's own threads, need the code until the process ends.
        std::mem::forget(library);
        Ok(Driver {
            process: Process::this(),
            table,
            library: name,
            version,
        })
    }

    /// The name under which the library was found.
    pub fn library(&self) -> &str {
        &self.library
    }

    /// The version of the library, as `hipRuntimeGetVersion` counts.
    pub fn version(&self) -> i32 {
        self.version
    }

    /// What a query returned: "not ready" is `false`.
    ///
    /// # Errors
    ///
    /// Any other error.
    pub fn is_done(result: Result<()>) -> Result<bool> {
        match result {
            Ok(()) => Ok(true),
            Err(error) if error.code == sys::hipErrorNotReady as i32 => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The runtime's name and words for a code.
    fn describe(&self, code: sys::hipError_t) -> (String, String) {
        let ask = |function: Option<unsafe extern "C" fn(sys::hipError_t) -> *const c_char>| {
            // SAFETY: the function takes any number.
            let text = unsafe { function?(code) };
            // SAFETY: a pointer that it returns is to a string that ends with a NUL and is never freed.
            let text = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })?;
            Some(text.to_string_lossy().into_owned())
        };
        (
            ask(self.table.get_error_name).unwrap_or_else(|| "unknown error".to_owned()),
            ask(self.table.get_error_string).unwrap_or_default(),
        )
    }

    /// Refuses `call` in a child of the process that has loaded the library.
    #[inline]
    pub(crate) fn here(&self, call: &'static str) -> Result<()> {
        if self.process.is_this() {
            Ok(())
        } else {
            Err(HipError::forked(call))
        }
    }

    /// The code that `call` returned, as a result.
    #[inline]
    pub(crate) fn check(&self, call: &'static str, code: sys::hipError_t) -> Result<()> {
        if code == sys::hipSuccess {
            return Ok(());
        }
        Err(self.error(call, code))
    }

    #[cold]
    fn error(&self, call: &'static str, code: sys::hipError_t) -> HipError {
        let (name, text) = if code == sys::hipErrorNotReady {
            // It is an answer, and costs no words.
            Default::default()
        } else {
            self.describe(code)
        };
        HipError {
            call,
            code: code as i32,
            name,
            text,
        }
    }
}
