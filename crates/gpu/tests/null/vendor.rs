//! The vendor of devices that do not exist.

use std::collections::BTreeMap;
use std::sync::Mutex;

use tidegate_gpu::GpuDevice;
use tidegate_gpu::driver::{Limits, SharedMemory, Sharing, Start, Vendor};
use tidegate_hal::code::Code;
use tidegate_hal::device::DeviceError;

use super::driver::Null;

/// The devices of the process, each with the width of its waves. Each test opens one of its own.
static DEVICES: Mutex<BTreeMap<usize, (usize, &'static Null)>> = Mutex::new(BTreeMap::new());

static VENDOR: Vendor = Vendor {
    name: "null",
    count: || Ok(64),
    start: |ordinal| {
        let (wave, driver) = *DEVICES
            .lock()
            .unwrap()
            .get(&ordinal)
            .expect("made by `open`");
        Ok(Start {
            driver,
            limits: Limits {
                vendor: "null",
                name: "no device".into(),
                ordinal,
                uuid: [ordinal as u8; 16],
                multiprocessors: 32,
                shared_memory: SharedMemory::default(),
                wave,
                dependent_launch: true,
                word_operations: true,
                sharing: Sharing::InTurn,
                launches: 128,
                queues: 32,
                queue_advice: "there are 32".into(),
                sharing_advice: "there is nothing to be done",
            },
            code: Code::new(&[]),
            stamped: Code::new(&[]),
        })
    },
};

/// A device that no other test has, with waves of this width.
pub(crate) fn open(wave: usize) -> Result<(GpuDevice, &'static Null), DeviceError> {
    let null: &'static Null = Box::leak(Box::default());
    let ordinal = {
        let mut devices = DEVICES.lock().unwrap();
        let ordinal = devices.len();
        devices.insert(ordinal, (wave, null));
        ordinal
    };
    let device = GpuDevice::open(&VENDOR, ordinal)?;
    null.did();
    Ok((device, null))
}
