//! Finding the driver.

use std::ffi::{CStr, c_char, c_int};
use std::sync::OnceLock;

use libloading::Library;
use libloading::os::unix;
use tidegate_hal::process::Process;

use super::error::{CudaError, NOT_READY, Result};
use super::table::{self, Table};
use crate::open::{self, list};

/// The names under which the driver is looked for, in this order. Drivers install the first. Some installations make
/// the second a link to it.
pub const LIBRARIES: &[&str] = &["libcuda.so.1", "libcuda.so"];

/// The oldest driver that can be used: 12.0, which has all [required](table::REQUIRED) functions. Versions are written
/// as `cuDriverGetVersion` does: 1000 times the major number and 10 times the minor number.
pub const MIN_VERSION: i32 = 12_000;

/// Why there is no driver to call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// No library could be opened.
    #[error("no CUDA driver library could be opened; tried {}", list(.tried))]
    Library {
        /// The names tried, and what the loader said of each.
        tried: Vec<(String, String)>,
    },
    /// A library was opened that is not the driver, or a very old one.
    #[error("{library} has no symbol {symbol}: it is not a CUDA driver library, or one from before CUDA {}.{}", MIN_VERSION / 1000, MIN_VERSION % 1000 / 10)]
    Symbol {
        /// The library.
        library: String,
        /// The first of the functions that it lacks.
        symbol: &'static str,
    },
    /// The driver is older than what this crate can use.
    #[error("{library} is the driver of CUDA {}.{}, but {}.{} is needed", .found / 1000, .found % 1000 / 10, .needed / 1000, .needed % 1000 / 10)]
    TooOld {
        /// The library.
        library: String,
        /// Its version, in the form of [`MIN_VERSION`].
        found: i32,
        /// The oldest version that can be used, in the same form.
        needed: i32,
    },
    /// The driver does not tell its version.
    #[error("{library} refuses cuDriverGetVersion with code {code}{}", if *.code == 34 { ": it is the toolkit's stub, made for linking only" } else { "" })]
    Version {
        /// The library.
        library: String,
        /// What it returned.
        code: i32,
    },
}

/// The loaded driver: a table of functions.
///
/// It holds no state of its own: the driver keeps its state for the process. The library stays loaded until the process
/// ends, because the driver's own threads need its code.
pub struct Driver {
    /// The process that has loaded the driver. In a forked child, calls to the driver may do anything, and may hang.
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
    /// The driver of this machine, from [`LIBRARIES`]. It is looked for once: later calls return the same answer, even
    /// an error. So all parts of a process agree whether there is a driver.
    ///
    /// This initialises nothing, and sets no environment variable. Call [`init`](Self::init) next.
    ///
    /// # Errors
    ///
    /// [`LoadError`].
    pub fn load() -> Result<&'static Driver, LoadError> {
        static DRIVER: OnceLock<Result<Driver, LoadError>> = OnceLock::new();
        DRIVER
            // SAFETY: these are the names of the driver's library. Every program that is linked to it relies on finding
            // the driver under them.
            .get_or_init(|| unsafe { Driver::load_from(LIBRARIES) })
            .as_ref()
            .map_err(LoadError::clone)
    }

    /// The driver from the first of `names` that can be opened. A name without a slash is looked for where the dynamic
    /// loader looks. If the first library that opens is no usable driver, the call fails, and tries no further names:
    /// nobody wants two drivers in one process.
    ///
    /// # Errors
    ///
    /// [`LoadError`].
    ///
    /// # Safety
    ///
    /// Opening a library runs its initialisers, which must be sound to run. Under the names of
    /// [`REQUIRED`](table::REQUIRED) and [`OPTIONAL`](table::OPTIONAL), the library must have those functions of the
    /// driver API.
    pub unsafe fn load_from(names: &[&str]) -> Result<Driver, LoadError> {
        // SAFETY: the caller vouches for the library's initialisers.
        let opened = unsafe { open::first(names, unix::RTLD_LAZY | unix::RTLD_LOCAL) };
        let (library, name) = opened.map_err(|tried| LoadError::Library { tried })?;
        // SAFETY: the caller vouches for the library's functions.
        unsafe { Driver::from_library(library.into(), name) }
    }

    /// # Safety
    ///
    /// As for [`load_from`](Self::load_from): the functions that `library` has under the table's names have the types
    /// that the table declares.
    unsafe fn from_library(library: Library, name: String) -> Result<Driver, LoadError> {
        type Version = unsafe extern "C" fn(*mut c_int) -> i32;
        // SAFETY: the caller vouches for the types of all functions.
        let table = unsafe { Table::fill(&library) };
        let get: Option<Version> = match &table {
            Ok(table) => Some(table.driver_get_version.call),
            // For an old driver, an error that names its version tells more than the first symbol that it lacks.
            // SAFETY: the caller vouches for the type.
            Err(_) => unsafe { open::find(&library, "cuDriverGetVersion") },
        };
        let mut version = 0;
        if let Some(get) = get {
            // SAFETY: the function writes one int into a live variable; it needs no initialisation.
            let code = unsafe { get(&mut version) };
            if code != 0 {
                return Err(LoadError::Version {
                    library: name,
                    code,
                });
            }
            if version < MIN_VERSION {
                return Err(LoadError::TooOld {
                    library: name,
                    found: version,
                    needed: MIN_VERSION,
                });
            }
        }
        let table = match table {
            Ok(table) => table,
            Err(symbol) => {
                return Err(LoadError::Symbol {
                    library: name,
                    symbol,
                });
            }
        };
        // The library is never closed: the pointers in the table, and the driver's own threads, need the code until the
        // process ends.
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

    /// The newest CUDA version that this driver supports, in the form of [`MIN_VERSION`]: 13000 is 13.0.
    pub fn version(&self) -> i32 {
        self.version
    }

    /// Starts the driver (`cuInit`). Until then all other calls fail, except for those that load it. Further calls do
    /// nothing.
    ///
    /// # Errors
    ///
    /// There is no device, or the part of the driver in the operating system is missing or has another version.
    pub fn init(&self) -> Result<()> {
        // SAFETY: the function takes flags only, and 0 is the one value allowed.
        unsafe { table::call!(self.init(0)) }
    }

    /// The driver's name and description of a code. If it has none, the name is "unknown code N", and the description
    /// is empty.
    pub fn describe(&self, code: i32) -> (String, String) {
        let ask = |function: unsafe extern "C" fn(c_int, *mut *const c_char) -> i32| {
            let mut text = std::ptr::null();
            // SAFETY: the function takes any number, and writes one pointer into a live variable.
            let answer = unsafe { function(code, &mut text) };
            if answer != 0 || text.is_null() {
                return None;
            }
            // SAFETY: a pointer that it returns is to a string that ends with a NUL and is never freed.
            let text = unsafe { CStr::from_ptr(text) };
            Some(text.to_string_lossy().into_owned())
        };
        (
            ask(self.table.get_error_name.call).unwrap_or_else(|| format!("unknown code {code}")),
            ask(self.table.get_error_string.call).unwrap_or_default(),
        )
    }

    /// Refuses `call` in a forked child of the process that has loaded the driver.
    #[inline]
    pub(crate) fn here(&self, call: &'static str) -> Result<()> {
        if self.process.is_this() {
            Ok(())
        } else {
            Err(CudaError::forked(call))
        }
    }

    /// The code that `call` has returned, as a result.
    pub(crate) fn check(&self, call: &'static str, code: i32) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        Err(self.error(call, code))
    }

    /// The code that a query has returned, as a result. "Not ready" is `false`; its description is not looked up.
    pub(crate) fn query(&self, call: &'static str, code: i32) -> Result<bool> {
        match code {
            0 => Ok(true),
            NOT_READY => Ok(false),
            _ => Err(self.error(call, code)),
        }
    }

    #[cold]
    pub(crate) fn error(&self, call: &'static str, code: i32) -> CudaError {
        let (name, text) = self.describe(code);
        CudaError {
            call,
            code,
            name,
            text,
        }
    }

    #[cold]
    pub(crate) fn missing(&self, call: &'static str) -> CudaError {
        CudaError::missing(call, self.version)
    }
}
