//! Errors of the driver.

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

    /// Whether the call was not made, because another process has loaded the driver, and this one was forked from it.
    pub fn is_forked(&self) -> bool {
        self.code == Self::FORKED
    }

    /// `CUDA_ERROR_INVALID_VALUE`.
    pub fn is_invalid_value(&self) -> bool {
        self.code == 1
    }

    /// `CUDA_ERROR_OUT_OF_MEMORY`: there is too little memory of the device or of the host, or there are too few
    /// addresses.
    pub fn is_out_of_memory(&self) -> bool {
        self.code == 2
    }

    /// `CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED`.
    pub fn is_already_registered(&self) -> bool {
        self.code == 712
    }

    /// The MPS server has no room for another client, or no connections for it: `CUDA_ERROR_MPS_MAX_CLIENTS_REACHED`,
    /// `…_MAX_CONNECTIONS_REACHED`.
    pub fn is_mps_full(&self) -> bool {
        matches!(self.code, 808 | 809)
    }

    /// The driver or the device cannot do this: `CUDA_ERROR_NOT_SUPPORTED`, or a function that the driver does not
    /// have.
    pub fn is_not_supported(&self) -> bool {
        self.code == 801 || self.is_missing()
    }

    /// The loaded driver does not have the function.
    pub fn is_missing(&self) -> bool {
        self.code == Self::MISSING
    }

    /// The call is not possible during a capture, or makes the capture fail (`CUDA_ERROR_STREAM_CAPTURE_…` and
    /// `CUDA_ERROR_CAPTURED_EVENT`: 900 to 908).
    pub fn is_capture_error(&self) -> bool {
        (900..=908).contains(&self.code)
    }

    /// The device has given up its work. Every later call in this context fails, and mostly every later call of this
    /// process. The reason is an uncorrectable error of memory or of a link, an illegal access, a launch that timed out
    /// or failed, or an assertion. Or the MPS server has ended its service for the process (806, 810).
    pub fn is_context_lost(&self) -> bool {
        matches!(
            self.code,
            214 | 220 | 700 | 702 | 710 | 714..=719 | 806 | 810
        )
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
    fn the_codes_behind_the_predicates_are_those_of_the_header() {
        use crate::cuda::sys::CUresult as R;
        let is = |r: R, p: fn(&CudaError) -> bool| assert!(p(&with(r as i32)), "{r:?}");
        is(R::CUDA_ERROR_INVALID_VALUE, CudaError::is_invalid_value);
        is(R::CUDA_ERROR_OUT_OF_MEMORY, CudaError::is_out_of_memory);
        is(R::CUDA_ERROR_NOT_SUPPORTED, CudaError::is_not_supported);
        is(
            R::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
            CudaError::is_already_registered,
        );
        for capture in [
            R::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
            R::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
            R::CUDA_ERROR_CAPTURED_EVENT,
            R::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
        ] {
            is(capture, CudaError::is_capture_error);
        }
        assert!(!with(R::CUDA_ERROR_TIMEOUT as i32).is_capture_error());
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
        ] {
            is(lost, CudaError::is_context_lost);
        }
        assert!(!with(R::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES as i32).is_context_lost());
        assert!(!with(R::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE as i32).is_context_lost());
    }

    #[test]
    fn an_error_says_what_was_called_and_what_came_back() {
        assert_eq!(with(2).to_string(), "cuX: N (2): t");
        let missing = CudaError::missing("cuFuncLoad", 12_020);
        assert!(missing.is_missing() && missing.is_not_supported());
        assert_eq!(
            missing.to_string(),
            "cuFuncLoad: missing function: the installed driver (CUDA 12.2) does not have it"
        );
    }
}
