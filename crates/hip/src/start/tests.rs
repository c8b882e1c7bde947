use super::*;
use crate::skipped;

#[test]
fn a_mask_has_all_units() {
    assert_eq!(full_mask(1), [1]);
    assert_eq!(full_mask(32), [u32::MAX]);
    assert_eq!(full_mask(40), [u32::MAX, 0xff]);
    assert_eq!(full_mask(304).len(), 10);
    for units in [1, 31, 33, 64, 104, 304] {
        let bits: u32 = full_mask(units).iter().map(|word| word.count_ones()).sum();
        assert_eq!(bits as usize, units);
    }
}

#[test]
fn a_device_without_a_uuid_has_its_place() {
    // SAFETY: zeros are a value of it, which has numbers and an address.
    let mut properties: sys::hipDeviceProp_tR0600 = unsafe { MaybeUninit::zeroed().assume_init() };
    properties.pciBusID = 0xc1;
    let first = identity(&properties);
    properties.pciBusID = 0xc2;
    assert!(first != identity(&properties) && first.starts_with(b"pci."));
    properties.uuid.bytes[3] = 7;
    assert_eq!(identity(&properties)[..4], [0, 0, 0, 7]);
}

/// Loads HIP 5.2, as Debian has it (`libamdhip64-5`), which is too old for everything else.
#[test]
fn a_machine_without_a_gpu_is_told_so() {
    const TEST: &str = "a_machine_without_a_gpu_is_told_so";
    // SAFETY: this is the name of the runtime.
    let driver = match unsafe { hip::Driver::load_from(&["libamdhip64.so.5"], 0) } {
        Ok(driver) => driver,
        Err(error) => return skipped::skipped(TEST, &error.to_string()),
    };
    if std::path::Path::new("/dev/kfd").exists() {
        return skipped::skipped(TEST, "there is an AMD GPU");
    }
    let error = init(&driver).unwrap_err();
    assert!(matches!(error, DeviceError::Missing { device: "hip", .. }));
    let text = error.to_string();
    assert!(text.contains("no AMD GPU: hipInit: "), "{text}");
    let text = devices(&driver).unwrap_err().to_string();
    assert!(text.contains("no AMD GPU: hipGetDeviceCount: "), "{text}");
}
