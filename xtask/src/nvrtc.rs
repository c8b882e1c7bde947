//! NVRTC, NVIDIA's compiler of device code, as a library that is loaded from a folder. It compiles to PTX, and needs
//! neither a GPU nor a driver.
//!
//! `dlopen` and `dlsym` are those of the C library with which the standard library is linked, so this program still has
//! no dependency.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

/// A header that sources include by name.
pub(crate) struct Header {
    /// The name between the quotes.
    pub(crate) name: String,
    /// Its text.
    pub(crate) text: String,
}

/// `nvrtcProgram`.
type Program = *mut c_void;

type CreateProgram = unsafe extern "C" fn(
    *mut Program,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> c_int;
type CompileProgram = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int;
type GetSize = unsafe extern "C" fn(Program, *mut usize) -> c_int;
type GetText = unsafe extern "C" fn(Program, *mut c_char) -> c_int;
type DestroyProgram = unsafe extern "C" fn(*mut Program) -> c_int;
type ErrorString = unsafe extern "C" fn(c_int) -> *const c_char;

/// The library. It stays loaded until the process ends.
pub(crate) struct Nvrtc {
    create_program: CreateProgram,
    compile_program: CompileProgram,
    get_ptx_size: GetSize,
    get_ptx: GetText,
    get_log_size: GetSize,
    get_log: GetText,
    destroy_program: DestroyProgram,
    error_string: ErrorString,
}

unsafe extern "C" {
    fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlerror() -> *const c_char;
}

const RTLD_NOW: c_int = 2;

impl Nvrtc {
    /// Loads it from a folder with `libnvrtc.so.13`.
    pub(crate) fn load(folder: &Path) -> Result<Nvrtc, String> {
        // NVRTC looks for this library by name alone, and gets the one that is loaded already.
        open(&folder.join("libnvrtc-builtins.so.13.0"))?;
        let library = open(&folder.join("libnvrtc.so.13"))?;
        let symbol = |name: &CStr| {
            // SAFETY: `library` is a handle of `dlopen` that is never closed; the name is a C string.
            let symbol = unsafe { dlsym(library, name.as_ptr()) };
            if symbol.is_null() {
                Err(format!("libnvrtc.so.13 has no {}", name.to_string_lossy()))
            } else {
                Ok(symbol)
            }
        };
        // SAFETY: each symbol is the function of that name in NVRTC 13, and `nvrtc.h` declares it with the field's
        // type.
        unsafe {
            use std::mem::transmute;
            Ok(Nvrtc {
                create_program: transmute::<*mut c_void, CreateProgram>(symbol(
                    c"nvrtcCreateProgram",
                )?),
                compile_program: transmute::<*mut c_void, CompileProgram>(symbol(
                    c"nvrtcCompileProgram",
                )?),
                get_ptx_size: transmute::<*mut c_void, GetSize>(symbol(c"nvrtcGetPTXSize")?),
                get_ptx: transmute::<*mut c_void, GetText>(symbol(c"nvrtcGetPTX")?),
                get_log_size: transmute::<*mut c_void, GetSize>(symbol(c"nvrtcGetProgramLogSize")?),
                get_log: transmute::<*mut c_void, GetText>(symbol(c"nvrtcGetProgramLog")?),
                destroy_program: transmute::<*mut c_void, DestroyProgram>(symbol(
                    c"nvrtcDestroyProgram",
                )?),
                error_string: transmute::<*mut c_void, ErrorString>(symbol(
                    c"nvrtcGetErrorString",
                )?),
            })
        }
    }

    /// Compiles the source called `name` to PTX. It can include only `headers`, since no file is read. The error is the
    /// compiler's output.
    pub(crate) fn compile(
        &self,
        name: &str,
        text: &str,
        headers: &[Header],
        options: &[&str],
    ) -> Result<String, String> {
        let source = c_string(text)?;
        let name = c_string(name)?;
        let names = c_strings(headers.iter().map(|header| header.name.as_str()))?;
        let texts = c_strings(headers.iter().map(|header| header.text.as_str()))?;
        let options = c_strings(options.iter().copied())?;
        let (names, texts, options) = (pointers(&names), pointers(&texts), pointers(&options));

        let mut program = Destroyed {
            nvrtc: self,
            program: ptr::null_mut(),
        };
        // SAFETY: all arguments are C strings, or arrays of the given length, that live until the call returns; it
        // keeps no pointer.
        let created = unsafe {
            (self.create_program)(
                &mut program.program,
                source.as_ptr(),
                name.as_ptr(),
                count(&names),
                texts.as_ptr(),
                names.as_ptr(),
            )
        };
        self.check(created)?;
        // SAFETY: the program was created above, and the options are the given number of C strings.
        let compiled =
            unsafe { (self.compile_program)(program.program, count(&options), options.as_ptr()) };
        let said = self.text(&program, self.get_log_size, self.get_log)?;
        let said = said.trim();
        if let Err(error) = self.check(compiled) {
            return Err(format!("{error}\n{said}").trim_end().to_owned());
        }
        if !said.is_empty() {
            eprintln!("{said}");
        }
        self.text(&program, self.get_ptx_size, self.get_ptx)
    }

    /// One of the texts of a compiled program.
    fn text(&self, program: &Destroyed<'_>, size: GetSize, get: GetText) -> Result<String, String> {
        let mut length = 0;
        // SAFETY: the program exists, and the pointer leads to a number.
        self.check(unsafe { size(program.program, &mut length) })?;
        let mut bytes = vec![0_u8; length];
        // SAFETY: the program exists. The buffer has room for as many bytes as it said, with the closing NUL.
        self.check(unsafe { get(program.program, bytes.as_mut_ptr().cast()) })?;
        let text = CStr::from_bytes_until_nul(&bytes).map_err(|error| error.to_string())?;
        Ok(text.to_string_lossy().into_owned())
    }

    fn check(&self, result: c_int) -> Result<(), String> {
        if result == 0 {
            return Ok(());
        }
        // SAFETY: the function takes any number, and returns a C string that is never freed.
        let name = unsafe { CStr::from_ptr((self.error_string)(result)) };
        Err(name.to_string_lossy().into_owned())
    }
}

/// A program that is destroyed at the end. It is null until it is created.
struct Destroyed<'a> {
    nvrtc: &'a Nvrtc,
    program: Program,
}

impl Drop for Destroyed<'_> {
    fn drop(&mut self) {
        if !self.program.is_null() {
            // SAFETY: it was created, and nothing else uses it. The result does not matter here.
            unsafe { (self.nvrtc.destroy_program)(&mut self.program) };
        }
    }
}

fn open(file: &Path) -> Result<*mut c_void, String> {
    let name = CString::new(file.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
    // SAFETY: the name is a C string, and the code that runs at loading is NVIDIA's.
    let library = unsafe { dlopen(name.as_ptr(), RTLD_NOW) };
    if !library.is_null() {
        return Ok(library);
    }
    // SAFETY: after a call that failed it returns a C string, which lives until the next call on this thread.
    let why = unsafe { CStr::from_ptr(dlerror()) };
    Err(format!("cannot load it: {}", why.to_string_lossy()))
}

fn c_string(text: &str) -> Result<CString, String> {
    CString::new(text).map_err(|error| error.to_string())
}

fn c_strings<'a>(texts: impl Iterator<Item = &'a str>) -> Result<Vec<CString>, String> {
    texts.map(c_string).collect()
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).collect()
}

fn count<T>(items: &[T]) -> c_int {
    c_int::try_from(items.len()).expect("a handful")
}
