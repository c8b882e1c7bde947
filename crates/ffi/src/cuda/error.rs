//! Errors of the driver.

use tidegate_hal::device::{DriverError, ErrorKind};

/// The result of a call to the driver.
pub type Result<T, E = CudaError> = std::result::Result<T, E>;

/// The driver refused a call, or the call reports an earlier failure on the device.
///
/// The code stays a number: drivers newer than this crate return codes that it does not know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CudaError {
    /// The function of the driver API that was called, with its version suffix.
    pub call: &'static str,
    /// The `CUresult`; or [`CudaError::MISSING`], [`CudaError::UNEXPECTED`] or [`CudaError::FORKED`], which no driver
    /// returns.
    pub code: i32,
    /// The code's name (`CUDA_ERROR_…`), or "unknown code N" if the driver has no name for it.
    pub name: String,
    /// The driver's description, and for PTX the compiler's log. Empty if the driver has none.
    pub text: String,
}

impl CudaError {
    /// The [`code`](Self::code) of a call to a function that the loaded driver does not have.
    pub const MISSING: i32 = -1;
    /// The [`code`](Self::code) of a call that succeeded with an answer that makes no sense.
    pub const UNEXPECTED: i32 = -2;
    /// The [`code`](Self::code) of a call that was not made, because another process has loaded the driver, and this
    /// one was forked from it.
    pub const FORKED: i32 = -3;

    pub(crate) fn missing(call: &'static str, version: i32) -> Self {
        CudaError {
            call,
            code: Self::MISSING,
            name: "missing function".to_owned(),
            text: format!(
                "the installed driver (CUDA {}.{}) does not have it",
                version / 1000,
                version % 1000 / 10
            ),
        }
    }

    #[cold]
    pub(crate) fn forked(call: &'static str) -> Self {
        CudaError {
            call,
            code: Self::FORKED,
            name: "forked".to_owned(),
            text: tidegate_hal::process::Forked.to_string(),
        }
    }

    pub(crate) fn unexpected(call: &'static str, text: String) -> Self {
        CudaError {
            call,
            code: Self::UNEXPECTED,
            name: "unexpected answer".to_owned(),
            text,
        }
    }

    /// The MPS server has no room for another client, or no connections for it: `CUDA_ERROR_MPS_MAX_CLIENTS_REACHED`,
    /// `…_MAX_CONNECTIONS_REACHED`.
    pub fn is_mps_full(&self) -> bool {
        matches!(self.code, 808 | 809)
    }

    /// The loaded driver does not have the function.
    pub fn is_missing(&self) -> bool {
        self.code == Self::MISSING
    }

    /// What to decide by.
    ///
    /// - A context is lost when the device has given up its work. Every later call in this context fails, and mostly
    ///   every later call of this process. The reason is an uncorrectable error of memory or of a link, an error that
    ///   the device has contained (226), an illegal access, a launch that timed out or failed, an assertion, tensor
    ///   memory that a kernel has not freed (721), or an error of another device for which CUDA waits (911). Or somebody
    ///   has destroyed the context (709), or the MPS server has ended its service for the process (806, 810).
    /// - A function that the driver does not have is unsupported.
    pub fn kind(&self) -> ErrorKind {
        match self.code {
            Self::FORKED => ErrorKind::Forked,
            1 => ErrorKind::Invalid,
            2 => ErrorKind::OutOfMemory,
            214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719 | 721 | 806 | 810 | 911 => {
                ErrorKind::ContextLost
            }
            712 => ErrorKind::AlreadyRegistered,
            Self::MISSING | 801 => ErrorKind::Unsupported,
            900..=908 => ErrorKind::Capture,
            _ => ErrorKind::Other,
        }
    }
}

impl From<CudaError> for DriverError {
    #[cold]
    fn from(error: CudaError) -> Self {
        DriverError {
            device: "cuda",
            kind: error.kind(),
            text: error.to_string(),
        }
    }
}

impl std::fmt::Display for CudaError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.call, self.name)?;
        // The name of an unknown code contains its number already. The numbers of this crate's own codes tell a reader
        // nothing.
        if self.code > 0 && !self.name.starts_with("unknown") {
            write!(f, " ({})", self.code)?;
        }
        if !self.text.is_empty() {
            write!(f, ": {}", self.text)?;
        }
        Ok(())
    }
}

impl std::error::Error for CudaError {}

/// `CUDA_ERROR_NOT_READY`.
pub(crate) const NOT_READY: i32 = 600;

#[cfg(test)]
mod tests {
    use super::*;

    fn with(code: i32) -> CudaError {
        CudaError {
            call: "cuX",
            code,
            name: "N".into(),
            text: "t".into(),
        }
    }

    #[test]
    fn the_codes_behind_the_kinds_are_those_of_the_header() {
        use crate::cuda::sys::CUresult as R;
        let kind = |code: R| with(code as i32).kind();
        for (code, expected) in [
            (R::CUDA_ERROR_INVALID_VALUE, ErrorKind::Invalid),
            (R::CUDA_ERROR_OUT_OF_MEMORY, ErrorKind::OutOfMemory),
            (R::CUDA_ERROR_NOT_SUPPORTED, ErrorKind::Unsupported),
            (
                R::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
                ErrorKind::AlreadyRegistered,
            ),
            (R::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, ErrorKind::Capture),
            (R::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, ErrorKind::Capture),
            (R::CUDA_ERROR_CAPTURED_EVENT, ErrorKind::Capture),
            (
                R::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
                ErrorKind::Capture,
            ),
            (R::CUDA_ERROR_TIMEOUT, ErrorKind::Other),
            (R::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, ErrorKind::Other),
            (R::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, ErrorKind::Other),
        ] {
            assert_eq!(kind(code), expected, "{code:?}");
        }
        for lost in [
            R::CUDA_ERROR_ECC_UNCORRECTABLE,
            R::CUDA_ERROR_NVLINK_UNCORRECTABLE,
            R::CUDA_ERROR_ILLEGAL_ADDRESS,
            R::CUDA_ERROR_LAUNCH_TIMEOUT,
            R::CUDA_ERROR_ASSERT,
            R::CUDA_ERROR_HARDWARE_STACK_ERROR,
            R::CUDA_ERROR_ILLEGAL_INSTRUCTION,
            R::CUDA_ERROR_MISALIGNED_ADDRESS,
            R::CUDA_ERROR_INVALID_ADDRESS_SPACE,
            R::CUDA_ERROR_INVALID_PC,
            R::CUDA_ERROR_LAUNCH_FAILED,
            R::CUDA_ERROR_CONTEXT_IS_DESTROYED,
            R::CUDA_ERROR_EXTERNAL_DEVICE,
        ] {
            assert_eq!(kind(lost), ErrorKind::ContextLost, "{lost:?}");
        }
        // CUDA_ERROR_CONTAINED and CUDA_ERROR_TENSOR_MEMORY_LEAK are newer than the bindings that are used.
        for lost in [226, 721] {
            assert_eq!(with(lost).kind(), ErrorKind::ContextLost, "{lost}");
        }
    }

    #[test]
    fn an_error_says_what_was_called_and_what_came_back() {
        assert_eq!(with(2).to_string(), "cuX: N (2): t");
        let missing = CudaError::missing("cuFuncLoad", 12_020);
        assert!(missing.is_missing());
        assert_eq!(missing.kind(), ErrorKind::Unsupported);
        assert_eq!(CudaError::forked("cuInit").kind(), ErrorKind::Forked);
        assert_eq!(
            missing.to_string(),
            "cuFuncLoad: missing function: the installed driver (CUDA 12.2) does not have it"
        );
    }
}
