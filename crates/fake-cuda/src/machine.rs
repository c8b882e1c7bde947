//! The machine, which carries out kernels: `machine/`, a library beside this one for each width of a warp.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;

use libloading::Library;

use crate::args::Launch;
use crate::settings::Settings;

/// The flags of a step.
pub(crate) const OVER: u32 = 1;
pub(crate) const LETS: u32 = 2;
pub(crate) const MOVED: u32 = 4;

pub(crate) struct Machine {
    kernel: unsafe extern "C" fn(*const c_char) -> usize,
    sizes: unsafe extern "C" fn(usize, *mut c_uint, c_uint) -> c_uint,
    begin: unsafe extern "C" fn(
        usize,
        *const *const c_void,
        *const c_uint,
        *const c_uint,
        c_uint,
    ) -> *mut c_void,
    step: unsafe extern "C" fn(*mut c_void, c_int) -> c_uint,
    end: unsafe extern "C" fn(*mut c_void),
    error: unsafe extern "C" fn() -> *const c_char,
}

/// A grid that was begun. Only the device's thread has grids.
pub(crate) struct Grid(*mut c_void);

impl Machine {
    /// The machine, if its library is there.
    pub(crate) fn get() -> Result<&'static Self, String> {
        static MACHINE: OnceLock<Result<Machine, String>> = OnceLock::new();
        MACHINE
            .get_or_init(Self::open)
            .as_ref()
            .map_err(String::clone)
    }

    fn open() -> Result<Self, String> {
        let name = format!("libtidegate_kernels_{}.so", Settings::get().wave);
        let path = beside(&name).ok_or("this library does not know where it is")?;
        // SAFETY: it stands beside this library, and was made for it; it has no initialisers but C++'s own.
        let library = unsafe { Library::new(&path) }.map_err(|error| error.to_string())?;
        // SAFETY: `machine.hpp` declares these functions so.
        let machine = unsafe {
            Machine {
                kernel: *library.get("tidegate_kernel").map_err(text)?,
                sizes: *library.get("tidegate_sizes").map_err(text)?,
                begin: *library.get("tidegate_begin").map_err(text)?,
                step: *library.get("tidegate_step").map_err(text)?,
                end: *library.get("tidegate_end").map_err(text)?,
                error: *library.get("tidegate_error").map_err(text)?,
            }
        };
        std::mem::forget(library);
        Ok(machine)
    }

    /// The machine's number for this kernel, if it has it.
    pub(crate) fn kernel(&self, name: &str) -> Option<usize> {
        let name = CString::new(name).ok()?;
        // SAFETY: it reads a name, which lives.
        let kernel = unsafe { (self.kernel)(name.as_ptr()) };
        (kernel != 0).then_some(kernel)
    }

    /// The sizes of the kernel's arguments, according to its source.
    pub(crate) fn sizes(&self, kernel: usize) -> Vec<usize> {
        let mut sizes = [0; 32];
        // SAFETY: the kernel is the machine's, and there is room for as many.
        let count = unsafe { (self.sizes)(kernel, sizes.as_mut_ptr(), sizes.len() as c_uint) };
        let known = sizes.iter().take(count as usize);
        known.map(|size| *size as usize).collect()
    }

    /// Begins a grid.
    pub(crate) fn begin(&self, launch: &Launch) -> Option<Grid> {
        let (blocks, threads) = (launch.blocks.as_ptr(), launch.threads.as_ptr());
        let kernel = launch.function.kernel;
        // SAFETY: the kernel is the machine's; the launch has an argument for each parameter, as the kernel's PTX says, and
        // its source says the same (`cuModuleGetFunction`); blocks and threads are three numbers each.
        let grid =
            unsafe { (self.begin)(kernel, launch.arguments(), blocks, threads, launch.shared) };
        (!grid.is_null()).then_some(Grid(grid))
    }

    /// Goes on with a grid. Returns the flags of the step.
    ///
    /// # Safety
    ///
    /// The memory that the grid accesses is there.
    pub(crate) unsafe fn step(&self, grid: &Grid, previous_over: bool) -> u32 {
        // SAFETY: the grid was begun, and not ended; the caller promises for the rest.
        unsafe { (self.step)(grid.0, c_int::from(previous_over)) }
    }

    pub(crate) fn end(&self, grid: Grid) {
        // SAFETY: the grid was begun, and is given up.
        unsafe { (self.end)(grid.0) };
    }

    /// The message of the last error.
    pub(crate) fn error(&self) -> Option<String> {
        // SAFETY: it gives null, or a text that stays.
        let error = unsafe { (self.error)() };
        if error.is_null() {
            return None;
        }
        // SAFETY: as above.
        let text = unsafe { CStr::from_ptr(error) };
        Some(text.to_string_lossy().into_owned())
    }
}

fn text(error: libloading::Error) -> String {
    error.to_string()
}

/// The path of another library beside this one.
fn beside(name: &str) -> Option<PathBuf> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let here = (beside as fn(&str) -> Option<PathBuf>) as *const c_void;
    // SAFETY: it writes one structure, to one that lives.
    if unsafe { libc::dladdr(here, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: it was written; besides, zeros are a value of it.
    let file = unsafe { info.assume_init() }.dli_fname;
    if file.is_null() {
        return None;
    }
    // SAFETY: the loader's name of a library that is loaded.
    let here = unsafe { CStr::from_ptr(file) }.to_str().ok()?;
    let path = std::fs::canonicalize(here).ok()?;
    Some(path.with_file_name(name))
}
