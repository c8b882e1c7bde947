//! The driver itself, devices, contexts.

use std::ffi::{c_char, c_int, c_uint};
use std::sync::Once;

use super::{CONTEXT, api, current, give};
use crate::codes;
use crate::handle::Handle;
use crate::machine::Machine;
use crate::settings::Settings;
use crate::state::state;

/// How much memory a device says that it has.
const MEMORY: usize = 16 << 30;

/// The version that it says it is of.
const VERSION: i32 = 13_000;

fn known(device: c_int) -> Result<c_int, i32> {
    match (0..Settings::get().devices).contains(&device) {
        true => Ok(device),
        false => Err(codes::INVALID_DEVICE),
    }
}

/// # Safety
///
/// There is room for `room` bytes.
unsafe fn give_text(to: *mut c_char, room: c_int, text: &str) -> Result<(), i32> {
    if to.is_null() || room <= 0 {
        return Err(codes::INVALID_VALUE);
    }
    let length = text.len().min(room as usize - 1);
    // SAFETY: the caller's promise.
    unsafe {
        to.copy_from_nonoverlapping(text.as_ptr().cast(), length);
        to.add(length).write(0);
    }
    Ok(())
}

/// The name of a code.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "it is the driver's")]
unsafe extern "C" fn cuGetErrorName(code: c_int, name: *mut *const c_char) -> i32 {
    match codes::name(code) {
        // SAFETY: the caller gives the address of a pointer.
        Some(text) => unsafe { give(name, text.as_ptr()) }.err().unwrap_or(0),
        None => codes::INVALID_VALUE,
    }
}

/// Words for a code.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "it is the driver's")]
unsafe extern "C" fn cuGetErrorString(code: c_int, text: *mut *const c_char) -> i32 {
    match codes::name(code) {
        // SAFETY: the caller gives the address of a pointer.
        Some(_) => unsafe { give(text, c"said by a driver without a GPU".as_ptr()) }
            .err()
            .unwrap_or(0),
        None => codes::INVALID_VALUE,
    }
}

api! {
    fn cuInit(flags: c_uint) {
        if flags != 0 {
            return Err(codes::INVALID_VALUE);
        }
        if let Err(error) = Machine::get() {
            eprintln!("fake GPU: {error}");
            return Err(codes::NOT_SUPPORTED);
        }
        static ONCE: Once = Once::new();
        ONCE.call_once(crate::device::start);
        Ok(())
    }

    fn cuDriverGetVersion(version: *mut c_int) {
        // SAFETY: `api`.
        unsafe { give(version, VERSION) }
    }

    fn cuDeviceGetCount(count: *mut c_int) {
        // SAFETY: `api`.
        unsafe { give(count, Settings::get().devices) }
    }

    fn cuDeviceGet(device: *mut c_int, ordinal: c_int) {
        // SAFETY: `api`.
        unsafe { give(device, known(ordinal)?) }
    }

    fn cuDeviceGetName(name: *mut c_char, room: c_int, device: c_int) {
        known(device)?;
        // SAFETY: `api`.
        unsafe { give_text(name, room, "none (a driver without a GPU)") }
    }

    fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: c_int) {
        let mut bytes = *b"no GPU, number  ";
        bytes[15] = known(device)? as u8;
        // SAFETY: `api`.
        unsafe { give(uuid, bytes) }
    }

    fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) {
        known(device)?;
        let settings = Settings::get();
        let found = match attribute {
            16 => settings.multiprocessors,
            75 => settings.capability / 10,
            76 => settings.capability % 10,
            // Threads of a block, of a multiprocessor, and of a warp.
            1 => 1024,
            39 => 2048,
            // Shared memory of a multiprocessor and of a block, and what each block takes in addition.
            81 => 228 << 10,
            97 => 227 << 10,
            111 => 1024,
            10 => settings.wave,
            133 => settings.mps,
            // Words of 64 bits in streams.
            93 | 122 => 1,
            // Memory in pools, mapped, by descriptors.
            102 | 103 | 115 => 1,
            // One address for the host and all devices.
            41 => 1,
            // What a NIC, and only it, could do with it.
            98 | 110 | 116 | 124 => 0,
            0..=200 => 0,
            _ => return Err(codes::INVALID_VALUE),
        };
        // SAFETY: `api`.
        unsafe { give(value, found) }
    }

    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) {
        known(device)?;
        // SAFETY: `api`.
        unsafe { give(bytes, MEMORY) }
    }

    fn cuDeviceGetPCIBusId(id: *mut c_char, room: c_int, device: c_int) {
        let text = format!("ffff:{:02x}:00.0", known(device)?);
        // SAFETY: `api`.
        unsafe { give_text(id, room, &text) }
    }

    fn cuDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int) {
        // SAFETY: `api`.
        unsafe { give(can, c_int::from(known(device)? != known(peer)?)) }
    }

    fn cuDeviceGetP2PAttribute(value: *mut c_int, attribute: c_int, device: c_int, peer: c_int) {
        known(device)?;
        known(peer)?;
        // Accesses, and atomic ones.
        let found = c_int::from(matches!(attribute, 2 | 3));
        // SAFETY: `api`.
        unsafe { give(value, found) }
    }

    fn cuDevicePrimaryCtxRetain(context: *mut Handle, device: c_int) {
        // SAFETY: `api`.
        unsafe { give(context, known(device)? as Handle + 1) }
    }

    fn cuDevicePrimaryCtxRelease_v2(device: c_int) {
        known(device).map(|_| ())
    }

    fn cuDevicePrimaryCtxSetFlags_v2(device: c_int, _flags: c_uint) {
        known(device).map(|_| ())
    }

    fn cuDevicePrimaryCtxGetState(device: c_int, flags: *mut c_uint, active: *mut c_int) {
        known(device)?;
        // SAFETY: `api`.
        unsafe { give(flags, 0) }?;
        // SAFETY: `api`.
        unsafe { give(active, 1) }
    }

    fn cuCtxSetCurrent(context: Handle) {
        if context > Settings::get().devices as Handle {
            return Err(codes::INVALID_CONTEXT);
        }
        CONTEXT.set(context);
        Ok(())
    }

    fn cuCtxGetCurrent(context: *mut Handle) {
        // SAFETY: `api`.
        unsafe { give(context, CONTEXT.get()) }
    }

    fn cuCtxGetLimit(value: *mut usize, _limit: c_int) {
        current()?;
        // SAFETY: `api`.
        unsafe { give(value, 0) }
    }

    fn cuCtxSetLimit(_limit: c_int, _value: usize) {
        current().map(|_| ())
    }

    fn cuCtxSynchronize() {
        current()?;
        state().until(|state| state.works.is_empty()).map(|_| ())
    }

    fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) {
        current()?;
        // SAFETY: `api`.
        unsafe { give(least, 0) }?;
        // SAFETY: `api`.
        unsafe { give(greatest, -5) }
    }

    fn cuCtxEnablePeerAccess(context: Handle, _flags: c_uint) {
        current()?;
        known(context as c_int - 1).map(|_| ())
    }
}
