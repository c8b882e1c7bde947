//! Starting a GPU: its context, and its limits.
//!
//! # MPS
//!
//! With MPS (`CU_DEVICE_ATTRIBUTE_MPS_ENABLED`) kernels of several processes run at the same time; without it, the GPU
//! gives each process its turn. MPS can limit a process to a portion of the multiprocessors
//! (`CUDA_MPS_ACTIVE_THREAD_PERCENTAGE`, or a setting of its server). The driver then gives the portion as the device's
//! number of multiprocessors, or else as the context's, so the lower number counts. The percentage itself is not used,
//! since it would be applied twice. To give each process as many blocks as possible, leave the percentage alone.
//!
//! # Hardware queues
//!
//! Without MPS each process has 8, or as many as [`QUEUES`] says. With MPS each has 2 unless [`QUEUES`] says otherwise,
//! and all processes of a GPU share what the server has ([`CONNECTIONS`]). If there are too few left, a process gets no
//! context; the error is [`DeviceError::Exhausted`].

use tidegate_ffi::cuda::{self, ContextFlags, CudaError, Device, DeviceAttribute, PoolProps};
use tidegate_gpu::driver::{Doing as _, DriverError, Limits, SharedMemory, Sharing, Start, Vendor};
use tidegate_hal::code::Code;
use tidegate_hal::device::DeviceError;

use crate::driver::CudaDriver;

/// NVIDIA's GPUs.
pub(crate) static CUDA: Vendor = Vendor {
    name: "cuda",
    count,
    start,
};

/// The environment variable that tells the driver how many hardware queues to use.
pub const QUEUES: &str = "CUDA_DEVICE_MAX_CONNECTIONS";

/// Settings for a process's environment, to be made before its driver starts: the largest number of hardware queues,
/// and code that is loaded at once, so that no later call loads it behind a wait. The launcher sets them for its ranks.
pub const ENVIRONMENT: [(&str, &str); 2] = [(QUEUES, "32"), ("CUDA_MODULE_LOADING", "EAGER")];

/// How many connections MPS gives to all processes of a GPU together. This is the number of older drivers; newer ones
/// have 120.
const CONNECTIONS: usize = 96;

/// How many launches a GPU can have resident at a time, from compute capability 7.0 on. (A process without MPS has too
/// few hardware queues to come near this number.)
const LAUNCHES: usize = 128;

/// The batch kernel. (All its forms would bring code for AMD GPUs into each program.)
const BATCH: Code = Code::new(&[
    ("sm_80", tidegate_kernels::BATCH_PTX.as_bytes()),
    ("sm_90", tidegate_kernels::BATCH_SM_90_PTX.as_bytes()),
]);

/// The same for streams that are stamped.
const STAMPED: Code = Code::new(&[
    ("sm_80", tidegate_kernels::STAMPED_PTX.as_bytes()),
    ("sm_90", tidegate_kernels::STAMPED_SM_90_PTX.as_bytes()),
]);

fn missing(detail: String) -> DeviceError {
    DeviceError::Missing {
        device: "cuda",
        detail,
    }
}

/// The driver, initialised.
pub(crate) fn driver() -> Result<&'static cuda::Driver, DeviceError> {
    let driver = cuda::Driver::load().map_err(|error| missing(error.to_string()))?;
    driver.init().map_err(|error| missing(error.to_string()))?;
    Ok(driver)
}

fn count() -> Result<usize, DeviceError> {
    let count = driver()?.device_count();
    count.map_err(|error| missing(error.to_string()))
}

fn start(ordinal: usize) -> Result<Start, DeviceError> {
    let what = "starting the GPU";
    let driver = driver()?;
    let device = driver.device(ordinal as i32).doing(what)?;
    let attribute = |attribute| {
        let value = driver.device_attribute(device, attribute);
        value.doing(what)
    };
    let major = attribute(DeviceAttribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(DeviceAttribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let name = driver.device_name(device).doing(what)?;
    if major < 8 {
        return Err(DeviceError::Unsupported {
            device: "cuda",
            what: format!("{name} has compute capability {major}.x; 8.0 is needed"),
        });
    }
    // A driver that does not know this attribute (before about CUDA 12.3) counts as without MPS, so waits have gates.
    let mps = attribute(DeviceAttribute::CU_DEVICE_ATTRIBUTE_MPS_ENABLED).is_ok_and(|on| on != 0);
    // An older driver does not know this attribute.
    let word_operations =
        attribute(DeviceAttribute::CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS)
            .is_ok_and(|can| can != 0);
    let multiprocessors = attribute(DeviceAttribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
    let wave = attribute(DeviceAttribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE)?;
    let [most_shared, block_shared, reserved] = [
        attribute(DeviceAttribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)?,
        attribute(DeviceAttribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        attribute(DeviceAttribute::CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK)?,
    ];
    // The driver spins or yields, depending on the number of processors. An error is ignored, because the context may
    // be in use already.
    let _ = driver.primary_ctx_set_flags(device, ContextFlags::SCHED_AUTO);
    let context = driver.primary_ctx_retain(device);
    let context = context.map_err(|error| no_context(what, error))?;
    // SAFETY: the context was just retained, and is never released.
    unsafe { driver.ctx_set_current(context) }.doing(what)?;
    let uuid = driver.device_uuid(device).doing(what)?;
    let own = pool(driver, device).doing(what)?;
    let (_, priority) = driver.ctx_stream_priority_range().doing(what)?;
    let limits = Limits {
        vendor: "cuda",
        name,
        ordinal,
        uuid,
        multiprocessors: portion(
            multiprocessors,
            driver.ctx_multiprocessors().ok().filter(|_| mps),
        ),
        shared_memory: shared_memory(most_shared as usize, reserved as usize),
        wave: wave as usize,
        dependent_launch: major >= 9,
        word_operations,
        sharing: if mps {
            Sharing::Together
        } else {
            Sharing::InTurn
        },
        launches: LAUNCHES,
        queues: queues(std::env::var(QUEUES).ok().as_deref(), mps),
        queue_advice: queue_advice(mps),
        sharing_advice: "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE makes it less still",
    };
    let driver = CudaDriver {
        driver,
        device,
        context,
        pool: own,
        priority,
        capability: (major as u32, minor.max(0) as u32),
        block_shared: block_shared as usize,
    };
    Ok(Start {
        // It lives as long as the process, as the context does.
        driver: Box::leak(Box::new(driver)),
        limits,
        code: BATCH,
        stamped: STAMPED,
    })
}

/// A pool from which freed memory is allocated again. Giving it back to the system would cost a synchronisation.
fn pool(driver: &cuda::Driver, device: Device) -> cuda::Result<cuda::Pool> {
    let pool = driver.mem_pool_create(&PoolProps::pinned(device))?;
    // SAFETY: the pool was just made.
    unsafe { driver.mem_pool_set_release_threshold(pool, u64::MAX) }?;
    Ok(pool)
}

/// How many hardware queues a process has, if the environment variable is `set`. Without MPS a first stream is always
/// admitted, even if the variable says fewer than three queues. With MPS the default of two queues admits none.
fn queues(set: Option<&str>, mps: bool) -> usize {
    let set = set.and_then(|value| value.trim().parse().ok());
    let queues = set.unwrap_or(if mps { 2 } else { 8usize }).clamp(1, 32);
    if mps { queues } else { queues.max(3) }
}

fn queue_advice(mps: bool) -> String {
    let set = std::env::var(QUEUES).unwrap_or_else(|_| "not set".into());
    let more = if mps {
        format!(
            " (under MPS it is 2 unless it is set, and all processes of a GPU share {CONNECTIONS}: set it to {CONNECTIONS} divided by their number)"
        )
    } else {
        String::new()
    };
    format!("{QUEUES} is {set}, and can be set up to 32 before the process starts{more}")
}

/// The sizes that the shared memory of a multiprocessor can have, if it has at most so much (CUDA programming guide,
/// "Compute Capabilities"), and what each block takes in addition.
fn shared_memory(most: usize, reserved: usize) -> SharedMemory {
    let sizes = [8, 16, 32, 64, 100, 132, 164, 196, 228].map(|size| size << 10);
    let mut sizes: Vec<_> = sizes.into_iter().filter(|size| *size < most).collect();
    sizes.push(most);
    SharedMemory { sizes, reserved }
}

/// How many multiprocessors a process may use: the device's number, and under MPS the context's.
fn portion(device: i32, context: Option<usize>) -> usize {
    let device = device.max(1) as usize;
    context
        .filter(|count| *count > 0)
        .unwrap_or(device)
        .min(device)
}

/// The error if the driver makes no context.
fn no_context(what: &'static str, error: CudaError) -> DeviceError {
    if !error.is_mps_full() {
        return DriverError::from(error).doing(what);
    }
    let set = std::env::var(QUEUES).unwrap_or_else(|_| "not set".into());
    DeviceError::Exhausted {
        what: "what the MPS server has for processes",
        detail: format!(
            "{what}: {error}; all processes of a GPU share {CONNECTIONS} connections, and {QUEUES}, the number for each, is {set}: set it to {CONNECTIONS} divided by the number of processes (or there are too many of them for the server)"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_portion_is_what_the_device_or_the_context_says() {
        assert_eq!(portion(132, None), 132);
        assert_eq!(portion(132, Some(33)), 33);
        assert_eq!(portion(33, Some(132)), 33);
        assert_eq!(portion(132, Some(0)), 132);
        assert_eq!(portion(0, None), 1);
    }

    #[test]
    fn mps_gives_two_queues_if_it_is_not_asked() {
        assert_eq!(queues(None, false), 8);
        assert_eq!(queues(None, true), 2);
        for mps in [false, true] {
            assert_eq!(queues(Some(" 12 "), mps), 12);
            assert_eq!(queues(Some("64"), mps), 32);
        }
        // Two queues are for the device's own streams, and without MPS there is one for a stream.
        assert_eq!((queues(Some("0"), false), queues(Some("0"), true)), (3, 1));
    }
}
