//! The vendor of devices that do not exist.

use std::collections::BTreeMap;
use std::sync::Mutex;

use tidegate_gpu::GpuDevice;
use tidegate_gpu::driver::{Limits, Sharing, Start, Vendor};
use tidegate_hal::code::Code;

use super::driver::Null;

/// The devices of the process. Each test opens one of its own.
static DEVICES: Mutex<BTreeMap<usize, &'static Null>> = Mutex::new(BTreeMap::new());

static VENDOR: Vendor = Vendor {
    name: "null",
    count: || Ok(64),
    start: |ordinal| {
        let driver = *DEVICES
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
                wave: 32,
                dependent_launch: true,
                word_operations: true,
                sharing: Sharing::InTurn,
                launches: 128,
                queues: 32,
                queue_advice: "there are 32".into(),
                sharing_advice: "there is nothing to be done",
            },
            code: Code::new(&[]),
        })
    },
};

/// A device that no other test has.
pub(crate) fn open() -> (GpuDevice, &'static Null) {
    let null: &'static Null = Box::leak(Box::default());
    let ordinal = {
        let mut devices = DEVICES.lock().unwrap();
        let ordinal = devices.len();
        devices.insert(ordinal, null);
        ordinal
    };
    let device = GpuDevice::open(&VENDOR, ordinal).expect("it opens");
    null.did();
    (device, null)
}
