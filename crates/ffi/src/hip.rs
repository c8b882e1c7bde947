//! The HIP runtime of AMD's GPUs, from `libamdhip64.so`.
//!
//! # Model
//!
//! [`Driver::load`] opens the library of ROCm 7 or 6. It fills a table of function pointers, each looked up by its
//! exact name. The methods of [`Driver`] have the names of the functions without `hip`, in snake case, and take the
//! same arguments: out-parameters stay pointers. Each returns a [`Result`] in place of the code. What AMD documents for
//! a function holds for its method, too. Sizes are in bytes.
//!
//! [`sys`] has the types and the numbers that go in. `tests/hip_layout.rs` compares all of them with the bindings of
//! the crate `cubecl-hip-sys`, which are made from AMD's headers. Numbers that come *out* of the library stay integers.
//!
//! [`Compiler`] is AMD's compiler for device code, from another library: `libhiprtc.so`.
//!
//! Loading sets nothing in the environment, and does not initialise the runtime. Variables that it reads at its start
//! can be set until [`Driver::init`].
//!
//! # Failure
//!
//! - [`LoadError`]: no library, something else under its name, or a release that is too old. An older library is not
//!   used: between ROCm 5 and 6 the numbers of `hipMemoryType` changed, and so did the layout of the device's
//!   properties.
//! - [`HipError`]: the call, the code as a number, and the runtime's words for it. If the library lacks a function,
//!   only its call fails ([`HipError::is_missing`]).
//! - [`CompilerError`]: no compiler, or a text that it refuses, with its messages.
//! - "Not ready" is an answer, not an error: [`Driver::is_done`] makes `false` of it.
//! - In a forked child every call fails with [`HipError::FORKED`], and is not made.

mod calls;
mod error;
mod load;
mod rtc;
pub mod sys;
mod table;

pub use error::{HipError, Result, version_text};
pub use load::{Driver, LIBRARIES, LoadError, MIN_VERSION, OLDER};
pub use rtc::{COMPILERS, Compiler, CompilerError};
