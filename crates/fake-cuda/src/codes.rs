//! The driver's codes (`CUresult`), as far as this one returns them.

pub(crate) const SUCCESS: i32 = 0;
pub(crate) const INVALID_VALUE: i32 = 1;
pub(crate) const OUT_OF_MEMORY: i32 = 2;
pub(crate) const NOT_INITIALIZED: i32 = 3;
pub(crate) const INVALID_DEVICE: i32 = 101;
pub(crate) const INVALID_CONTEXT: i32 = 201;
pub(crate) const INVALID_PTX: i32 = 218;
pub(crate) const NOT_FOUND: i32 = 500;
pub(crate) const INVALID_HANDLE: i32 = 400;
pub(crate) const NOT_READY: i32 = 600;
pub(crate) const LAUNCH_FAILED: i32 = 719;
pub(crate) const COOPERATIVE_LAUNCH_TOO_LARGE: i32 = 720;
pub(crate) const NOT_SUPPORTED: i32 = 801;
pub(crate) const CAPTURE_UNSUPPORTED: i32 = 900;
pub(crate) const CAPTURE_INVALIDATED: i32 = 901;
pub(crate) const CAPTURE_UNMATCHED: i32 = 903;
pub(crate) const CAPTURE_UNJOINED: i32 = 904;
pub(crate) const CAPTURE_ISOLATION: i32 = 905;

/// The name of a code.
pub(crate) fn name(code: i32) -> Option<&'static std::ffi::CStr> {
    Some(match code {
        SUCCESS => c"CUDA_SUCCESS",
        INVALID_VALUE => c"CUDA_ERROR_INVALID_VALUE",
        OUT_OF_MEMORY => c"CUDA_ERROR_OUT_OF_MEMORY",
        NOT_INITIALIZED => c"CUDA_ERROR_NOT_INITIALIZED",
        INVALID_DEVICE => c"CUDA_ERROR_INVALID_DEVICE",
        INVALID_CONTEXT => c"CUDA_ERROR_INVALID_CONTEXT",
        INVALID_PTX => c"CUDA_ERROR_INVALID_PTX",
        NOT_FOUND => c"CUDA_ERROR_NOT_FOUND",
        INVALID_HANDLE => c"CUDA_ERROR_INVALID_HANDLE",
        NOT_READY => c"CUDA_ERROR_NOT_READY",
        LAUNCH_FAILED => c"CUDA_ERROR_LAUNCH_FAILED",
        COOPERATIVE_LAUNCH_TOO_LARGE => c"CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
        NOT_SUPPORTED => c"CUDA_ERROR_NOT_SUPPORTED",
        CAPTURE_UNSUPPORTED => c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        CAPTURE_INVALIDATED => c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
        CAPTURE_UNMATCHED => c"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
        CAPTURE_UNJOINED => c"CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
        CAPTURE_ISOLATION => c"CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
        _ => return None,
    })
}
