//! Finding the library.

#[cfg(target_env = "gnu")]
use std::ffi::CStr;
use std::ffi::{CString, OsStr, c_char, c_int, c_void};
use std::sync::{Arc, OnceLock};

use libloading::os::unix;

use super::sys::{self, fi_fabric_attr, fi_info, fid_fabric};
use crate::open::{self, list};

/// The name under which the library is looked for, unless [`LIBRARY_VARIABLE`] gives another.
pub const LIBRARIES: &[&str] = &["libfabric.so.1"];

/// The environment variable that can name another library for [`Library::load`].
pub const LIBRARY_VARIABLE: &str = tidegate_hal::variables::LIBFABRIC.name;

/// The version of the interface that this crate uses, and the oldest library that it takes: 1.17.
pub const API_VERSION: u32 = version(1, 17);

/// A version as the library writes it: one number.
pub(crate) const fn version(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}

/// Why there is no library to call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// No library could be opened.
    #[error("no libfabric could be opened; tried {}", list(.tried))]
    Library {
        /// The names tried, and what the loader said of each.
        tried: Vec<(String, String)>,
    },
    /// A library was opened that is not libfabric, or a very old one.
    #[error(
        "{library} has no symbol {symbol} of version {version}: it is not libfabric, or one from before 1.4"
    )]
    Symbol {
        /// The library.
        library: String,
        /// The first of the functions that it lacks.
        symbol: &'static str,
        /// The version of that symbol.
        version: &'static str,
    },
    /// The library is older than what this crate can use.
    #[error("{library} is libfabric {}.{}, but {}.{} is needed", .found >> 16, .found & 0xffff, .needed >> 16, .needed & 0xffff)]
    TooOld {
        /// The library.
        library: String,
        /// Its version: the major number in the upper half.
        found: u32,
        /// The oldest version that can be used, in the same form.
        needed: u32,
    },
    /// The library's structures do not look as this crate expects.
    #[error("{library} does not have the layout of libfabric 1.17: {detail}")]
    Layout {
        /// The library.
        library: String,
        /// What is different.
        detail: &'static str,
    },
}

/// `fi_version`.
pub type Version = unsafe extern "C" fn() -> u32;
/// `fi_strerror`.
pub type StrError = unsafe extern "C" fn(c_int) -> *const c_char;
/// `fi_getinfo`.
pub type GetInfo = unsafe extern "C" fn(
    u32,
    *const c_char,
    *const c_char,
    u64,
    *const fi_info,
    *mut *mut fi_info,
) -> c_int;
/// `fi_freeinfo`.
pub type FreeInfo = unsafe extern "C" fn(*mut fi_info);
/// `fi_dupinfo`.
pub type DupInfo = unsafe extern "C" fn(*const fi_info) -> *mut fi_info;
/// `fi_fabric`.
pub type OpenFabric =
    unsafe extern "C" fn(*mut fi_fabric_attr, *mut *mut fid_fabric, *mut c_void) -> c_int;

/// The functions that the library exports. All other calls are operations of objects. The symbol versions are those of
/// 1.17. Newer libraries keep them, beside others of the same names with larger structures.
#[derive(Clone, Copy)]
pub struct Functions {
    /// `fi_version`, of version FABRIC_1.0.
    pub version: Version,
    /// `fi_strerror`, of version FABRIC_1.0.
    pub strerror: StrError,
    /// `fi_getinfo`, of version FABRIC_1.3.
    pub getinfo: GetInfo,
    /// `fi_freeinfo`, of version FABRIC_1.3.
    pub freeinfo: FreeInfo,
    /// `fi_dupinfo`, of version FABRIC_1.3.
    pub dupinfo: DupInfo,
    /// `fi_fabric`, of version FABRIC_1.1.
    pub fabric: OpenFabric,
}

struct Loaded {
    functions: Functions,
    name: String,
    version: u32,
}

/// The loaded library. Copies share it. It stays loaded until the process ends, because threads of the providers need
/// its code.
#[derive(Clone)]
pub struct Library(Arc<Loaded>);

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Library")
            .field("name", &self.0.name)
            .field("version", &self.version())
            .finish_non_exhaustive()
    }
}

impl Library {
    /// The library that [`LIBRARY_VARIABLE`] names, or else one of [`LIBRARIES`]. It is looked for once: later calls
    /// return the same answer, even an error.
    ///
    /// This sets no environment variable: see [`ENVIRONMENT`](super::ENVIRONMENT).
    ///
    /// # Errors
    ///
    /// [`LoadError`].
    pub fn load() -> Result<Library, LoadError> {
        static LIBRARY: OnceLock<Result<Library, LoadError>> = OnceLock::new();
        LIBRARY
            .get_or_init(|| {
                let names = open::chosen(LIBRARY_VARIABLE, LIBRARIES);
                // SAFETY: these are the names of libfabric. Every program that is linked to it relies on finding
                // libfabric under them.
                unsafe { Library::load_from(&names) }
            })
            .clone()
    }

    /// The library from the first of `names` that can be opened. A name without a slash is looked for where the dynamic
    /// loader looks. If the first library that opens is no usable libfabric, the call fails, and tries no further
    /// names.
    ///
    /// # Errors
    ///
    /// [`LoadError`].
    ///
    /// # Safety
    ///
    /// Opening a library runs its initialisers, which must be sound to run. Under the names and versions of
    /// [`Functions`], the library must have those functions of libfabric.
    pub unsafe fn load_from<S: AsRef<OsStr>>(names: &[S]) -> Result<Library, LoadError> {
        // SAFETY: the caller vouches for the library's initialisers.
        let opened = unsafe { open::first(names, unix::RTLD_NOW | unix::RTLD_LOCAL) };
        let (library, name) = opened.map_err(|tried| LoadError::Library { tried })?;
        // The handle is never closed: the pointers in the table, and the providers' threads, need the code until the
        // process ends.
        let handle = library.into_raw();
        // SAFETY: the caller vouches for the library's functions.
        match unsafe { fill(handle) } {
            // SAFETY: as above.
            Ok(functions) => unsafe { Library::from_functions(functions, name) },
            Err((symbol, version)) => Err(LoadError::Symbol {
                library: name,
                symbol,
                version,
            }),
        }
    }

    /// A library whose functions the caller has found in another way; they may be linked statically, for example.
    /// `name` is for messages.
    ///
    /// # Errors
    ///
    /// [`LoadError::TooOld`], [`LoadError::Layout`].
    ///
    /// # Safety
    ///
    /// The functions do what those of libfabric do, and can be called until the process ends.
    pub unsafe fn from_functions(functions: Functions, name: String) -> Result<Library, LoadError> {
        // SAFETY: the function has no parameters, and needs no initialisation.
        let found = unsafe { (functions.version)() };
        if found < API_VERSION {
            return Err(LoadError::TooOld {
                library: name,
                found,
                needed: API_VERSION,
            });
        }
        // SAFETY: the caller vouches for the functions.
        if let Err(detail) = unsafe { look(&functions) } {
            return Err(LoadError::Layout {
                library: name,
                detail,
            });
        }
        Ok(Library(Arc::new(Loaded {
            functions,
            name,
            version: found,
        })))
    }

    /// The name under which the library was found.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The library's version (`fi_version`): major, minor.
    pub fn version(&self) -> (u32, u32) {
        (self.0.version >> 16, self.0.version & 0xffff)
    }

    /// The functions that the library exports, for calls that this crate does not wrap.
    pub fn functions(&self) -> &Functions {
        &self.0.functions
    }
}

/// Checks that an empty description looks as the bindings say: it has all parts, and zeros in them.
///
/// # Safety
///
/// The functions are libfabric's.
unsafe fn look(functions: &Functions) -> Result<(), &'static str> {
    // SAFETY: without an argument, the function makes an empty description.
    let info = unsafe { (functions.dupinfo)(std::ptr::null()) };
    if info.is_null() {
        return Err("fi_dupinfo makes no empty description");
    }
    // SAFETY: the pointer is not null, and the description lives until it is freed, below.
    let found = unsafe { empty(&*info) };
    // SAFETY: the description is from `fi_dupinfo`, and is not used again.
    unsafe { (functions.freeinfo)(info) };
    found
}

/// # Safety
///
/// The parts of `info` are null or live.
unsafe fn empty(info: &fi_info) -> Result<(), &'static str> {
    if info.tx_attr.is_null()
        || info.rx_attr.is_null()
        || info.ep_attr.is_null()
        || info.domain_attr.is_null()
        || info.fabric_attr.is_null()
    {
        return Err("an empty description lacks parts");
    }
    // SAFETY: no pointer is null, so all parts are live, as the caller has promised.
    let (tx, rx, ep, domain, fabric) = unsafe {
        (
            &*info.tx_attr,
            &*info.rx_attr,
            &*info.ep_attr,
            &*info.domain_attr,
            &*info.fabric_attr,
        )
    };
    let zero = info.caps == 0
        && info.next.is_null()
        && info.src_addr.is_null()
        && info.nic.is_null()
        && (tx.caps, tx.inject_size, tx.tclass) == (0, 0, 0)
        && (rx.caps, rx.iov_limit) == (0, 0)
        && (ep.type_, ep.max_msg_size) == (sys::FI_EP_UNSPEC, 0)
        && ep.auth_key.is_null()
        && (domain.mr_mode, domain.cntr_cnt, domain.tclass) == (0, 0, 0)
        && domain.name.is_null()
        && fabric.prov_name.is_null()
        && fabric.api_version == 0;
    if zero {
        Ok(())
    } else {
        Err("an empty description is not empty")
    }
}

#[cfg(target_env = "gnu")]
unsafe extern "C" {
    // The C library's.
    fn dlvsym(handle: *mut c_void, symbol: *const c_char, version: *const c_char) -> *mut c_void;
}

/// Finds all functions, or returns the first symbol that is missing, with its version.
///
/// # Safety
///
/// `handle` belongs to an open library, whose functions of these names and versions have these types.
#[cfg(target_env = "gnu")]
unsafe fn fill(handle: *mut c_void) -> Result<Functions, (&'static str, &'static str)> {
    macro_rules! find {
        ($symbol:literal, $version:literal, $type:ty) => {{
            let symbol = const { cstr(concat!($symbol, "\0")) };
            let version = const { cstr(concat!($version, "\0")) };
            // SAFETY: the caller vouches for the handle; the strings end with a NUL.
            let found = unsafe { dlvsym(handle, symbol.as_ptr(), version.as_ptr()) };
            if found.is_null() {
                return Err(($symbol, $version));
            }
            // SAFETY: the caller vouches for the type, which is a function pointer's; the address is not null.
            unsafe { std::mem::transmute::<*mut c_void, $type>(found) }
        }};
    }
    Ok(Functions {
        version: find!("fi_version", "FABRIC_1.0", Version),
        strerror: find!("fi_strerror", "FABRIC_1.0", StrError),
        getinfo: find!("fi_getinfo", "FABRIC_1.3", GetInfo),
        freeinfo: find!("fi_freeinfo", "FABRIC_1.3", FreeInfo),
        dupinfo: find!("fi_dupinfo", "FABRIC_1.3", DupInfo),
        fabric: find!("fi_fabric", "FABRIC_1.1", OpenFabric),
    })
}

/// Without versions of symbols, the C library would find functions that expect larger structures than this crate's. So
/// nothing is found here.
///
/// # Safety
///
/// None here.
#[cfg(not(target_env = "gnu"))]
unsafe fn fill(_: *mut c_void) -> Result<Functions, (&'static str, &'static str)> {
    Err(("dlvsym", "any"))
}

#[cfg(target_env = "gnu")]
const fn cstr(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a name ends with its only NUL"),
    }
}

/// `text` as C wants it; `None` if it has a NUL inside.
pub(crate) fn c_string(text: &str) -> Option<CString> {
    CString::new(text).ok()
}
