//! Errors of the driver, as errors of the hal.

use tidegate_ffi::cuda::CudaError;
use tidegate_hal::device::DeviceError;
use tidegate_hal::process::Forked;

/// The hal's error for an error of the driver, which happened while doing `what`.
pub(crate) fn device_error(what: &'static str, error: CudaError) -> DeviceError {
    if error.is_forked() {
        DeviceError::Forked(Forked)
    } else if error.is_out_of_memory() {
        DeviceError::Exhausted {
            what: "memory of the device",
            detail: format!("{what}: {error}"),
        }
    } else if error.is_not_supported() || error.is_missing() {
        DeviceError::Unsupported {
            device: "cuda",
            what: format!("{what}: {error}"),
        }
    } else {
        DeviceError::System {
            what,
            detail: error.to_string(),
        }
    }
}

/// Adds what was being done when the driver refused.
pub(crate) trait Doing<T> {
    fn doing(self, what: &'static str) -> Result<T, DeviceError>;
}

impl<T> Doing<T> for Result<T, CudaError> {
    fn doing(self, what: &'static str) -> Result<T, DeviceError> {
        self.map_err(|error| device_error(what, error))
    }
}
