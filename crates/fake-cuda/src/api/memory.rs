//! Memory.

use std::ffi::{c_int, c_uint, c_ulonglong};

use cudarc::driver::sys;

use super::{api, current, give};
use crate::codes;
use crate::handle::Handle;
use crate::memory::{self, Kind};
use crate::settings::Settings;
use crate::state::state;

/// The one kind of handle that there is.
const DESCRIPTOR: c_uint = 1;

/// The number of the device that memory is to be on.
///
/// # Safety
///
/// `prop` is null, or whole.
unsafe fn device(prop: *const sys::CUmemAllocationProp) -> Result<i32, i32> {
    if prop.is_null() {
        return Err(codes::INVALID_VALUE);
    }
    // SAFETY: the caller's promise.
    let (id, reserved) = unsafe { ((*prop).location.id, (*prop).allocFlags.reserved) };
    // The driver of a GPU refuses this, too, so a program must not leave these bytes as they were.
    if reserved != [0; 4] {
        return Err(codes::INVALID_VALUE);
    }
    match (0..Settings::get().devices).contains(&id) {
        true => Ok(id),
        false => Err(codes::INVALID_DEVICE),
    }
}

api! {
    fn cuMemHostAlloc(at: *mut usize, bytes: usize, _flags: c_uint) {
        current()?;
        let made = memory::alloc(bytes, Kind::Host)?;
        // SAFETY: `api`.
        unsafe { give(at, made) }
    }

    fn cuMemFreeHost(at: usize) {
        match memory::is_piece(at, |kind| kind == Kind::Host) {
            true => memory::free(at),
            false => return Err(codes::INVALID_VALUE),
        }
        Ok(())
    }

    fn cuMemHostRegister_v2(at: usize, bytes: usize, _flags: c_uint) {
        current()?;
        memory::register(at, bytes)
    }

    fn cuMemHostUnregister(at: usize) {
        memory::unregister(at)
    }

    fn cuMemHostGetDevicePointer_v2(to: *mut u64, at: usize, _flags: c_uint) {
        memory::find(at).filter(|kind| !matches!(kind, Kind::Device(_))).ok_or(codes::INVALID_VALUE)?;
        // SAFETY: `api`.
        unsafe { give(to, at as u64) }
    }

    fn cuMemAlloc_v2(at: *mut u64, bytes: usize) {
        let made = memory::alloc(bytes, Kind::Device(current()?))?;
        // SAFETY: `api`.
        unsafe { give(at, made as u64) }
    }

    fn cuMemFree_v2(at: u64) {
        // It waits for all that may use it.
        let idle = state().until(|state| state.works.is_empty())?;
        if !memory::is_piece(at as usize, |kind| matches!(kind, Kind::Device(_))) {
            return Err(codes::INVALID_VALUE);
        }
        memory::free(at as usize);
        drop(idle);
        Ok(())
    }

    fn cuPointerGetAttribute(value: *mut c_int, attribute: c_int, at: u64) {
        let kind = memory::find(at as usize).ok_or(codes::INVALID_VALUE)?;
        let found = match (attribute, kind) {
            // Of the host, and of a device.
            (2, Kind::Host | Kind::Registered) => 1,
            (2, Kind::Device(_)) => 2,
            (9, Kind::Host | Kind::Registered) => 0,
            (9, Kind::Device(device)) => device,
            _ => return Err(codes::INVALID_VALUE),
        };
        // SAFETY: `api`.
        unsafe { give(value, found) }
    }

    fn cuMemPoolCreate(pool: *mut Handle, _props: *const sys::CUmemPoolProps) {
        current()?;
        let made = state().fresh();
        // SAFETY: `api`.
        unsafe { give(pool, made) }
    }

    fn cuMemPoolDestroy(_pool: Handle) {
        Ok(())
    }

    fn cuMemPoolSetAttribute(_pool: Handle, _attribute: c_int, _value: *mut u64) {
        Ok(())
    }

    fn cuMemPoolTrimTo(_pool: Handle, _bytes: usize) {
        Ok(())
    }

    fn cuMemGetAllocationGranularity(bytes: *mut usize, prop: *const sys::CUmemAllocationProp, _which: c_uint) {
        // SAFETY: `api`.
        unsafe { device(prop) }?;
        // SAFETY: `api`.
        unsafe { give(bytes, memory::GRANULARITY) }
    }

    fn cuMemCreate(handle: *mut u64, bytes: usize, prop: *const sys::CUmemAllocationProp, _flags: c_ulonglong) {
        // SAFETY: `api`.
        let made = memory::create(bytes, unsafe { device(prop) }?)?;
        // SAFETY: `api`.
        unsafe { give(handle, made) }
    }

    fn cuMemRelease(handle: u64) {
        memory::release(handle)
    }

    fn cuMemAddressReserve(at: *mut u64, bytes: usize, _alignment: usize, _hint: u64, _flags: c_ulonglong) {
        let made = memory::reserve(bytes)?;
        // SAFETY: `api`.
        unsafe { give(at, made as u64) }
    }

    fn cuMemAddressFree(at: u64, bytes: usize) {
        memory::free_addresses(at as usize, bytes)
    }

    fn cuMemMap(at: u64, bytes: usize, offset: usize, handle: u64, _flags: c_ulonglong) {
        if offset != 0 {
            return Err(codes::INVALID_VALUE);
        }
        memory::map_file(at as usize, bytes, handle)
    }

    fn cuMemUnmap(at: u64, bytes: usize) {
        memory::unmap_file(at as usize, bytes)
    }

    fn cuMemSetAccess(at: u64, bytes: usize, access: *const sys::CUmemAccessDesc, count: usize) {
        for index in 0..count {
            // SAFETY: `api`: there are so many; the flags are a number, whichever it is.
            let flags = unsafe { (&raw const (*access.add(index)).flags).cast::<u32>().read() };
            memory::allow(at as usize, bytes, flags & 2 != 0)?;
        }
        Ok(())
    }

    fn cuMemGetAccess(flags: *mut c_ulonglong, _location: *const sys::CUmemLocation, at: u64) {
        memory::find(at as usize).ok_or(codes::INVALID_VALUE)?;
        // SAFETY: `api`.
        unsafe { give(flags, 3) }
    }

    fn cuMemExportToShareableHandle(to: *mut c_int, handle: u64, kind: c_uint, _flags: c_ulonglong) {
        if kind != DESCRIPTOR {
            return Err(codes::NOT_SUPPORTED);
        }
        let fd = memory::export(handle)?;
        // SAFETY: `api`.
        unsafe { give(to, fd) }
    }

    fn cuMemImportFromShareableHandle(handle: *mut u64, from: usize, kind: c_uint) {
        if kind != DESCRIPTOR {
            return Err(codes::NOT_SUPPORTED);
        }
        let fd = c_int::try_from(from).map_err(|_| codes::INVALID_VALUE)?;
        let made = memory::import(fd)?;
        // SAFETY: `api`.
        unsafe { give(handle, made) }
    }
}
