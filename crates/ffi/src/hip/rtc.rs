//! AMD's compiler at run time, from `libhiprtc.so`.

use std::ffi::{CString, c_char, c_int};
use std::ptr::{null, null_mut};
use std::sync::{Mutex, OnceLock};

use libloading::os::unix;

use tidegate_hal::lock;

use super::sys::*;
use crate::open::{self, find, list};

/// The names under which the compiler is looked for, in this order: those of ROCm 7 and 6.
pub const COMPILERS: &[&str] = &["libhiprtc.so.7", "libhiprtc.so.6"];

/// The functions: method, symbol, arguments. All return a code.
#[doc(hidden)]
#[macro_export]
macro_rules! hiprtc_functions {
    ($each:ident) => {
        $each! {
            create_program = hiprtcCreateProgram(
                program: *mut hiprtcProgram, text: *const c_char, name: *const c_char, headers: c_int,
                texts: *const *const c_char, names: *const *const c_char
            );
            compile_program = hiprtcCompileProgram(
                program: hiprtcProgram, count: c_int, options: *const *const c_char
            );
            get_program_log_size = hiprtcGetProgramLogSize(program: hiprtcProgram, bytes: *mut usize);
            get_program_log = hiprtcGetProgramLog(program: hiprtcProgram, log: *mut c_char);
            get_code_size = hiprtcGetCodeSize(program: hiprtcProgram, bytes: *mut usize);
            get_code = hiprtcGetCode(program: hiprtcProgram, code: *mut c_char);
            destroy_program = hiprtcDestroyProgram(program: *mut hiprtcProgram);
        }
    };
}

macro_rules! table {
    ($($name:ident = $symbol:ident($($arg:ident: $type:ty),*);)*) => {
        /// The loaded compiler: a table of functions.
        ///
        /// It needs neither a GPU nor the runtime. The library stays loaded for good.
        pub struct Compiler {
            library: String,
            $($name: unsafe extern "C" fn($($type),*) -> hiprtcResult,)*
        }

        impl Compiler {
            /// The compiler from the first of `names` that can be opened.
            ///
            /// # Errors
            ///
            /// [`CompilerError`], if no library can be opened, or if the first one lacks a function.
            ///
            /// # Safety
            ///
            /// Opening a library runs its initialisers, which must be sound to run. A function of the library that has
            /// the name of one of `hiprtc`'s is that function.
            pub unsafe fn load_from(names: &[&str]) -> Result<Compiler, CompilerError> {
                // SAFETY: the caller vouches for the library's initialisers.
                let opened = unsafe { open::first(names, unix::RTLD_LAZY | unix::RTLD_LOCAL) };
                let (opened, library) = opened.map_err(CompilerError::Library)?;
                let opened = opened.into();
                let lacks = |symbol| CompilerError::Symbol { library: library.clone(), symbol };
                let compiler = Compiler {
                    $(
                        // SAFETY: the caller vouches for the type.
                        $name: unsafe { find(&opened, stringify!($symbol)) }
                            .ok_or_else(|| lacks(stringify!($symbol)))?,
                    )*
                    library,
                };
                // The table's pointers need the code.
                std::mem::forget(opened);
                Ok(compiler)
            }
        }
    };
}

hiprtc_functions!(table);

/// Why some text was not compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompilerError {
    /// No library could be opened. It has the names tried, with the loader's message for each.
    #[error("no compiler could be opened; tried {}", list(.0))]
    Library(Vec<(String, String)>),
    /// A library was opened that is not the compiler.
    #[error("{library} has no symbol {symbol}: it is not the HIP compiler")]
    Symbol {
        /// The library.
        library: String,
        /// The function that it lacks.
        symbol: &'static str,
    },
    /// A text has a zero byte.
    #[error("the source has a zero byte")]
    Zero,
    /// The compiler refused a call.
    #[error("{library} refuses {call} with code {code}: {log}")]
    Refused {
        /// The library.
        library: String,
        /// The function that was called.
        call: &'static str,
        /// The code that it returned.
        code: u32,
        /// The compiler's messages.
        log: String,
    },
}

/// A program of the compiler, which is destroyed at the end.
struct Program<'c> {
    compiler: &'c Compiler,
    raw: hiprtcProgram,
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: the program was created, and nobody else has it.
        unsafe { (self.compiler.destroy_program)(&mut self.raw) };
    }
}

impl Program<'_> {
    /// Reads a text or code of the program.
    fn read(
        &self,
        size: unsafe extern "C" fn(hiprtcProgram, *mut usize) -> hiprtcResult,
        read: unsafe extern "C" fn(hiprtcProgram, *mut c_char) -> hiprtcResult,
    ) -> Result<Vec<u8>, hiprtcResult> {
        let mut bytes = 0;
        // SAFETY: `create_program` made the program, which `drop` destroys; one number is written, to one that lives.
        told(unsafe { size(self.raw, &mut bytes) })?;
        let mut read_bytes = vec![0_u8; bytes];
        if bytes > 0 {
            // SAFETY: the program is live, as above. There is room for as many bytes as it has just said.
            told(unsafe { read(self.raw, read_bytes.as_mut_ptr().cast()) })?;
        }
        Ok(read_bytes)
    }

    fn log(&self) -> String {
        let compiler = self.compiler;
        let log = self.read(compiler.get_program_log_size, compiler.get_program_log);
        let log = log.unwrap_or_default();
        String::from_utf8_lossy(&log)
            .trim_end_matches('\0')
            .trim()
            .to_owned()
    }
}

fn told(code: hiprtcResult) -> Result<(), hiprtcResult> {
    if code == HIPRTC_SUCCESS {
        Ok(())
    } else {
        Err(code)
    }
}

impl Compiler {
    /// The compiler of this machine, from [`COMPILERS`]. It is looked for once: later calls return the same answer, an
    /// error as well.
    ///
    /// # Errors
    ///
    /// As for [`load_from`](Self::load_from).
    pub fn load() -> Result<&'static Compiler, CompilerError> {
        static COMPILER: OnceLock<Result<Compiler, CompilerError>> = OnceLock::new();
        COMPILER
            // SAFETY: these are names of AMD's compiler, under which every program finds it.
            .get_or_init(|| unsafe { Compiler::load_from(COMPILERS) })
            .as_ref()
            .map_err(CompilerError::clone)
    }

    /// Compiles a text to a code object. `name` is for messages. Headers are names and texts: an `#include` of the name
    /// finds the text. One thread compiles at a time, because HIP 5.2 crashes otherwise.
    ///
    /// # Errors
    ///
    /// [`CompilerError::Refused`], with the compiler's messages. [`CompilerError::Zero`] if a text has a zero byte.
    pub fn compile(
        &self,
        name: &str,
        text: &str,
        headers: &[(&str, &str)],
        options: &[&str],
    ) -> Result<Vec<u8>, CompilerError> {
        let all = |texts: &mut dyn Iterator<Item = &str>| {
            let texts = texts.map(CString::new).collect::<Result<Vec<_>, _>>();
            texts.map_err(|_| CompilerError::Zero)
        };
        let own = all(&mut [name, text].into_iter())?;
        let names = all(&mut headers.iter().map(|(name, _)| *name))?;
        let texts = all(&mut headers.iter().map(|(_, text)| *text))?;
        let options = all(&mut options.iter().copied())?;
        let [names, texts, options] = [&names, &texts, &options]
            .map(|texts| texts.iter().map(|text| text.as_ptr()).collect::<Vec<_>>());
        static ONE: Mutex<()> = Mutex::new(());
        let _one = lock(&ONE);
        let mut program = Program {
            compiler: self,
            raw: null_mut(),
        };
        // SAFETY: one handle is written. All texts end with a NUL, and live; there are as many as their number says.
        let created = unsafe {
            (self.create_program)(
                &mut program.raw,
                own[1].as_ptr(),
                own[0].as_ptr(),
                names.len() as c_int,
                list_of(&texts),
                list_of(&names),
            )
        };
        if let Err(code) = told(created) {
            // There is nothing to be destroyed.
            std::mem::forget(program);
            return Err(self.refused("hiprtcCreateProgram", code, String::new()));
        }
        // SAFETY: the program is live. The texts end with a NUL, and there are as many as their number says.
        let compiled = unsafe {
            (self.compile_program)(program.raw, options.len() as c_int, list_of(&options))
        };
        told(compiled).map_err(|code| self.refused("hiprtcCompileProgram", code, program.log()))?;
        let code = program.read(self.get_code_size, self.get_code);
        code.map_err(|code| self.refused("hiprtcGetCode", code, String::new()))
    }

    #[cold]
    fn refused(&self, call: &'static str, code: hiprtcResult, log: String) -> CompilerError {
        CompilerError::Refused {
            library: self.library.clone(),
            call,
            code,
            log,
        }
    }
}

/// The address of a list; null, if it is empty.
fn list_of(texts: &[*const c_char]) -> *const *const c_char {
    if texts.is_empty() {
        null()
    } else {
        texts.as_ptr()
    }
}
