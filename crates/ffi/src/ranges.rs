//! Ranges of time that profilers show: NVTX of NVIDIA's tools, and roctx of AMD's.
//!
//! # Model
//!
//! A thread begins a range with a text, and ends it. Ranges of a thread nest.
//!
//! NVTX has no library. A profiler puts the path of a library of its own into `NVTX_INJECTION64_PATH`. The program loads
//! it, and calls its function `InitializeInjectionNvtx2` with a function that returns tables. The profiler writes its
//! functions into those tables. This is the protocol of NVTX 3, as its headers carry it out in each program.
//!
//! roctx is a library with two functions.
//!
//! # Failure
//!
//! [`Missing`], if there is nothing to load. A profiler that leaves out a function gets no ranges.

use std::ffi::CStr;

mod missing;
mod nvtx;
mod roctx;

pub use missing::Missing;

/// A profiler that gets ranges.
#[derive(Clone, Copy, Debug)]
pub struct Ranges(Kind);

#[derive(Clone, Copy, Debug)]
enum Kind {
    Nvtx(&'static nvtx::Nvtx),
    Roctx(&'static roctx::Roctx),
}

impl Ranges {
    /// NVTX: the profiler whose library `NVTX_INJECTION64_PATH` names. The library is loaded once for the process.
    ///
    /// # Errors
    ///
    /// [`Missing`].
    pub fn nvtx() -> Result<Self, Missing> {
        nvtx::Nvtx::get().map(|nvtx| Ranges(Kind::Nvtx(nvtx)))
    }

    /// roctx: the library of ROCm.
    ///
    /// # Errors
    ///
    /// [`Missing`].
    pub fn roctx() -> Result<Self, Missing> {
        roctx::Roctx::get(0).map(|roctx| Ranges(Kind::Roctx(roctx)))
    }

    /// The profiler that has started this process: one for NVTX that has set its variable, or else one for roctx, which
    /// has loaded that library before the program began. `None` if there is none.
    pub fn attached() -> Option<Result<Self, Missing>> {
        match Self::nvtx() {
            Err(Missing::NoProfiler { .. }) => {
                let roctx = roctx::Roctx::get(libc::RTLD_NOLOAD).ok()?;
                Some(Ok(Ranges(Kind::Roctx(roctx))))
            }
            found => Some(found),
        }
    }

    /// The library.
    pub fn library(&self) -> &'static str {
        match self.0 {
            Kind::Nvtx(nvtx) => &nvtx.library,
            Kind::Roctx(roctx) => &roctx.library,
        }
    }

    /// Begins a range of this thread.
    pub fn push(&self, text: &CStr) {
        match self.0 {
            Kind::Nvtx(nvtx) => nvtx.push(text),
            Kind::Roctx(roctx) => roctx.push(text),
        }
    }

    /// Ends the range of this thread that was begun last.
    pub fn pop(&self) {
        match self.0 {
            Kind::Nvtx(nvtx) => nvtx.pop(),
            Kind::Roctx(roctx) => roctx.pop(),
        }
    }
}
