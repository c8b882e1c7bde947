//! Devices and their properties, and the properties of the links between them.

use std::ffi::{CStr, c_char, c_int};

use super::error::Result;
use super::handle::Device;
use super::load::Driver;
use super::sys;
use super::table::call;
use super::{DeviceAttribute, P2pAttribute};

impl Driver {
    /// How many devices are visible to the process (`cuDeviceGetCount`).
    pub fn device_count(&self) -> Result<usize> {
        let mut count: c_int = 0;
        // SAFETY: the function writes one int into a live variable.
        unsafe { call!(self.device_get_count(&mut count)) }?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// The device with this ordinal, from 0 (`cuDeviceGet`).
    pub fn device(&self, ordinal: i32) -> Result<Device> {
        let mut device = 0;
        // SAFETY: the function checks the ordinal, and writes one device into a live variable.
        unsafe { call!(self.device_get(&mut device, ordinal)) }?;
        Ok(Device(device))
    }

    /// The name of the device's model (`cuDeviceGetName`).
    pub fn device_name(&self, device: Device) -> Result<String> {
        let mut name: [c_char; 256] = [0; 256];
        // SAFETY: the function writes no more than the length it is given, which is the buffer's.
        unsafe { call!(self.device_get_name(name.as_mut_ptr(), name.len() as c_int, device.0)) }?;
        Ok(text(&name))
    }

    /// A number that no other device has, on any machine (`cuDeviceGetUuid_v2`).
    pub fn device_uuid(&self, device: Device) -> Result<[u8; 16]> {
        let mut uuid = sys::CUuuid { bytes: [0; 16] };
        // SAFETY: the function writes one structure into a live variable.
        unsafe { call!(self.device_get_uuid(&mut uuid, device.0)) }?;
        Ok(uuid.bytes.map(|byte| byte as u8))
    }

    /// One of the device's properties (`cuDeviceGetAttribute`).
    pub fn device_attribute(&self, device: Device, attribute: DeviceAttribute) -> Result<i32> {
        let mut value = 0;
        // SAFETY: the function writes one int into a live variable.
        unsafe { call!(self.device_get_attribute(&mut value, attribute, device.0)) }?;
        Ok(value)
    }

    /// A property of the link from `source` to `target`: whether it has native atomics, for example
    /// (`cuDeviceGetP2PAttribute`).
    pub fn device_p2p_attribute(
        &self,
        attribute: P2pAttribute,
        source: Device,
        target: Device,
    ) -> Result<i32> {
        let mut value = 0;
        // SAFETY: the function writes one int into a live variable.
        unsafe { call!(self.device_get_p2p_attribute(&mut value, attribute, source.0, target.0)) }?;
        Ok(value)
    }
}

/// The text in a buffer, up to the first NUL or to the end of the buffer.
fn text(buffer: &[c_char]) -> String {
    let bytes: Vec<u8> = buffer.iter().map(|&c| c as u8).collect();
    match CStr::from_bytes_until_nul(&bytes) {
        Ok(text) => text.to_string_lossy().into_owned(),
        Err(_) => String::from_utf8_lossy(&bytes).into_owned(),
    }
}
