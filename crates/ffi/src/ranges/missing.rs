//! Why there are no ranges.

use libloading::os::unix;

use crate::open;

/// Why there are no ranges.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Missing {
    /// No profiler has started this process.
    #[error("{variable} is not set: no profiler for NVTX has started this process")]
    NoProfiler {
        /// The variable by which it would have said so.
        variable: &'static str,
    },
    /// There is no library.
    #[error("no library for {what} can be loaded; tried {}", open::list(tried))]
    NoLibrary {
        /// What the library is for.
        what: &'static str,
        /// The names that were tried, with the loader's message for each.
        tried: Vec<(String, String)>,
    },
    /// The library has not what it must have.
    #[error("{library} has no function `{function}`")]
    NoFunction {
        /// The library.
        library: String,
        /// The function.
        function: &'static str,
    },
    /// The profiler refuses.
    #[error("{library} refuses: `InitializeInjectionNvtx2` returned 0")]
    Refused {
        /// The library of the profiler.
        library: String,
    },
}

/// A function of a library that stays loaded.
///
/// # Safety
///
/// `F` is the type of a function pointer, and the function that `library` has under `name` is of this type.
pub(super) unsafe fn function<F: Copy>(
    library: &unix::Library,
    name: &'static str,
    shown: &str,
) -> Result<F, Missing> {
    // SAFETY: the caller vouches for the type.
    let found = unsafe { library.get::<F>(name) };
    found
        .map(|symbol| *symbol)
        .map_err(|_| Missing::NoFunction {
            library: shown.to_owned(),
            function: name,
        })
}
