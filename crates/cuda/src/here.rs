//! The driver and the GPUs of this machine, for people. No GPU is started, so this is quick, and takes no memory of
//! any.

use tidegate_ffi::cuda::DeviceAttribute;
use tidegate_gpu::driver::Doing as _;
use tidegate_hal::device::DeviceError;

use crate::start;

/// The driver and the GPUs of this machine.
///
/// # Examples
///
/// ```
/// match tidegate_cuda::here() {
///     Ok(here) => println!("{}: {} GPUs", here.library, here.gpus.len()),
///     Err(error) => println!("{error}"), // it says which libraries were looked for
/// }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Here {
    /// The name under which the driver was found.
    pub library: String,
    /// The newest version of CUDA that it supports: 13 and 0.
    pub version: (u32, u32),
    /// The GPUs that the process sees, in its order.
    pub gpus: Vec<HereGpu>,
}

/// A GPU of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HereGpu {
    /// Its name.
    pub name: String,
    /// Its compute capability. Below 8.0 it cannot be used.
    pub capability: (u32, u32),
    /// How many multiprocessors it has for this process.
    pub multiprocessors: usize,
    /// Whether an MPS server runs kernels of several processes at the same time.
    pub mps: bool,
}

/// Lists the GPUs.
///
/// # Errors
///
/// [`DeviceError::Missing`] if there is no driver. It names the libraries that were tried.
pub fn here() -> Result<Here, DeviceError> {
    let driver = start::driver()?;
    let what = "asking for the GPUs";
    let version = driver.version().max(0) as u32;
    let gpu = |ordinal| {
        let device = driver.device(ordinal as i32).doing(what)?;
        let attribute = |attribute| driver.device_attribute(device, attribute);
        let number = |which| {
            attribute(which)
                .map(|value| value.max(0) as u32)
                .doing(what)
        };
        Ok::<_, DeviceError>(HereGpu {
            name: driver.device_name(device).doing(what)?,
            capability: (
                number(DeviceAttribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                number(DeviceAttribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            multiprocessors: number(DeviceAttribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?
                as usize,
            // An older driver does not know this attribute.
            mps: attribute(DeviceAttribute::CU_DEVICE_ATTRIBUTE_MPS_ENABLED)
                .is_ok_and(|on| on != 0),
        })
    };
    Ok(Here {
        library: driver.library().to_owned(),
        version: (version / 1000, version % 1000 / 10),
        gpus: (0..driver.device_count().doing(what)?)
            .map(gpu)
            .collect::<Result<_, _>>()?,
    })
}
