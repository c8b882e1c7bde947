//! Starting a GPU: its pool, and its limits.
//!
//! # Hardware queues
//!
//! The runtime deals the streams of a process to a few hardware queues (`GPU_MAX_HW_QUEUES`, 4 of them). A wait in a
//! queue would stop all its streams. A stream with a mask of compute units has a queue of its own, so all streams get a
//! full mask. The kernel's driver has [`QUEUES`] for a device at a time. If there are more, it serves them in turn, and
//! then no wait may rely on work of another stream. So no more streams are made.
//!
//! # What nobody has seen
//!
//! No AMD GPU has run this yet. So everything is off that was only measured on other devices: kernels that begin early,
//! operations of streams on words (there they are kernels that poll), several processes on one GPU, and copies of the
//! nodes of recordings.

use std::collections::HashMap;
use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;
use std::sync::Mutex;

use tidegate_ffi::hip::{self, sys};
use tidegate_gpu::driver::{
    Doing as _, Driver as _, Limits, Result, SharedMemory, Sharing, Start, Vendor, told,
};
use tidegate_hal::device::DeviceError;

use crate::driver::{HipDriver, made};

/// AMD's GPUs.
pub(crate) static HIP: Vendor = Vendor {
    name: "hip",
    count,
    start,
};

/// How many streams of a process can wait: the kernel's driver has 24 hardware queues for a device, and the runtime
/// takes 4 of them for streams without a mask.
const QUEUES: usize = 20;

fn missing(detail: String) -> DeviceError {
    DeviceError::Missing {
        device: "hip",
        detail,
    }
}

/// Initialises the runtime.
fn init(driver: &hip::Driver) -> Result<(), DeviceError> {
    // SAFETY: the call takes flags only, and 0 is the one value that is allowed.
    unsafe { driver.init(0) }.map_err(|error| no_gpu(&error))
}

/// The error if there is no GPU, or the runtime does not start.
fn no_gpu(error: &hip::HipError) -> DeviceError {
    missing(if error.is_no_device() {
        format!(
            "no AMD GPU: {error} (there must be a /dev/kfd that this user may open, and ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES may hide GPUs)"
        )
    } else {
        error.to_string()
    })
}

/// The runtime, initialised.
fn driver() -> Result<&'static hip::Driver, DeviceError> {
    let driver = hip::Driver::load().map_err(|error| missing(error.to_string()))?;
    init(driver)?;
    Ok(driver)
}

fn count() -> Result<usize, DeviceError> {
    devices(driver()?)
}

fn devices(driver: &hip::Driver) -> Result<usize, DeviceError> {
    let mut count = 0;
    // SAFETY: one int is written, to one that lives.
    unsafe { driver.get_device_count(&mut count) }.map_err(|error| no_gpu(&error))?;
    Ok(usize::try_from(count).unwrap_or(0))
}

fn properties(driver: &hip::Driver, ordinal: i32) -> Result<Box<sys::hipDeviceProp_tR0600>> {
    let mut properties = Box::new(MaybeUninit::zeroed());
    // SAFETY: one structure is written, to one that lives.
    told(unsafe { driver.get_device_properties(properties.as_mut_ptr(), ordinal) })?;
    // SAFETY: it was written; besides, zeros are a value of it, which has numbers and an address.
    Ok(unsafe { properties.assume_init() })
}

/// The text in a buffer up to its NUL.
fn text(buffer: &[c_char]) -> String {
    let bytes: Vec<u8> = buffer.iter().map(|byte| *byte as u8).collect();
    match CStr::from_bytes_until_nul(&bytes) {
        Ok(text) => text.to_string_lossy().into_owned(),
        Err(_) => String::from_utf8_lossy(&bytes).into_owned(),
    }
}

/// What tells the device from all others. Some devices have no UUID; then it is where the device is on its machine.
fn identity(properties: &sys::hipDeviceProp_tR0600) -> [u8; 16] {
    let uuid = properties.uuid.bytes.map(|byte| byte as u8);
    if uuid != [0; 16] {
        return uuid;
    }
    let mut place = *b"pci.............";
    let numbers = [
        properties.pciDomainID,
        properties.pciBusID,
        properties.pciDeviceID,
    ];
    for (bytes, number) in place[4..].chunks_mut(4).zip(numbers) {
        bytes.copy_from_slice(&number.to_ne_bytes());
    }
    place
}

/// A mask with all of so many compute units.
fn full_mask(units: usize) -> Vec<u32> {
    let word = |first: usize| match units - first {
        left @ ..32 => (1 << left) - 1,
        _ => u32::MAX,
    };
    (0..units.max(1)).step_by(32).map(word).collect()
}

fn start(ordinal: usize) -> Result<Start, DeviceError> {
    let what = "starting the GPU";
    let driver = driver()?;
    let all = (0..devices(driver)? as i32).map(|device| properties(driver, device));
    let all = all.collect::<Result<Vec<_>>>().doing(what)?;
    let own = all
        .get(ordinal)
        .ok_or_else(|| missing(format!("there is no GPU {ordinal}")))?;
    let (name, architecture) = (text(&own.name), text(&own.gcnArchName));
    let multiprocessors = own.multiProcessorCount.max(1) as usize;
    let mut device = HipDriver {
        hip: driver,
        ordinal: ordinal as i32,
        devices: all.iter().map(|each| identity(each)).collect(),
        pool: 0,
        mask: full_mask(multiprocessors),
        architecture,
        whole: false,
        large_bar: own.isLargeBar != 0,
        flush: own.hdpMemFlushCntl.expose_provenance(),
        parameters: Mutex::new(HashMap::new()),
    };
    device.enter().doing(what)?;
    device.pool = pool(driver, ordinal as i32).doing(what)?;
    device.whole = has_whole(&device);
    let limits = Limits {
        vendor: "hip",
        name,
        ordinal,
        uuid: identity(own),
        multiprocessors,
        // A compute unit has a memory of its own for it.
        shared_memory: SharedMemory::default(),
        wave: own.warpSize as usize,
        dependent_launch: false,
        word_operations: false,
        sharing: Sharing::Unknown,
        launches: QUEUES,
        queues: QUEUES,
        queue_advice: format!(
            "each stream has a hardware queue of its own, and a process can have {QUEUES} of them"
        ),
        sharing_advice: "use one process for each GPU",
    };
    Ok(Start {
        // It lives as long as the process.
        driver: Box::leak(Box::new(device)),
        limits,
        code: tidegate_kernels::BATCH,
        stamped: tidegate_kernels::STAMPED,
    })
}

/// Whether the runtime has whole memory that is not cached: one piece is made, and given back.
fn has_whole(device: &HipDriver) -> bool {
    let made = device
        .uncached()
        .and_then(|(prop, unit)| device.create(unit, &prop));
    let Ok(handle) = made else {
        return false;
    };
    // SAFETY: it was just made, and nobody else has it.
    unsafe { device.hip.mem_release(handle) }.is_ok()
}

/// The address of a pool from which freed memory is allocated again. Giving it back to the system would cost a
/// synchronisation.
fn pool(driver: &hip::Driver, ordinal: i32) -> Result<usize> {
    let properties = sys::hipMemPoolProps {
        allocType: sys::hipMemAllocationTypePinned,
        handleTypes: sys::hipMemHandleTypeNone,
        location: sys::hipMemLocation {
            type_: sys::hipMemLocationTypeDevice,
            id: ordinal,
        },
        win32SecurityAttributes: std::ptr::null_mut(),
        maxSize: 0,
        reserved: [0; 56],
    };
    // SAFETY: the structure is complete and lives; one handle is written, to one that lives.
    let pool = made(|pool| unsafe { driver.mem_pool_create(pool, &properties) })?;
    let mut keep = u64::MAX;
    let (attribute, value) = (sys::hipMemPoolAttrReleaseThreshold, (&raw mut keep).cast());
    // SAFETY: the pool was just made; the attribute is a 64-bit number, which is read.
    told(unsafe { driver.mem_pool_set_attribute(pool, attribute, value) })?;
    Ok(pool.expose_provenance())
}

#[cfg(test)]
mod tests;
