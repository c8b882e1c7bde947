//! Memory: copies, fills, pinned host memory, plain device memory.

use std::ffi::c_void;
use std::ptr::NonNull;

use super::PointerAttribute;
use super::error::{CudaError, Result};
use super::handle::{DevicePtr, Stream, flags};
use super::load::Driver;
use super::table::call;

flags! {
    /// What pinned host memory is for (`CU_MEMHOSTALLOC_…`).
    HostFlags {
        /// The current context's copies.
        NONE = 0;
        /// All contexts.
        PORTABLE = 1;
        /// Kernels as well: it has an address for devices.
        DEVICE_MAP = 2;
    }
}

flags! {
    /// What host memory is registered as (`CU_MEMHOSTREGISTER_…`).
    RegisterFlags {
        /// Pinned, for the current context's copies.
        NONE = 0;
        /// Pinned for all contexts.
        PORTABLE = 1;
        /// For kernels as well: it has an address for devices.
        DEVICE_MAP = 2;
        /// It is no memory but registers of another device, which the process has mapped. On Linux it must be physically
        /// contiguous, and devices do not snoop caches for it. Some systems let only the privileged do this
        /// (`CUDA_ERROR_NOT_PERMITTED`).
        IO_MEMORY = 4;
    }
}

impl Driver {
    /// Enqueues a copy of `bytes` from host to device (`cuMemcpyHtoDAsync_v2`). Host memory that is not pinned may have
    /// been read when this returns, or not.
    ///
    /// # Safety
    ///
    /// `stream` is alive. When the copy is executed (each time, if it is captured), `source` is readable and `target`
    /// writable for so many bytes, and nobody writes the one or touches the other meanwhile.
    pub unsafe fn memcpy_htod_async(
        &self,
        target: DevicePtr,
        source: *const c_void,
        bytes: usize,
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: the caller vouches for the handle and both ranges.
        unsafe { call!(self.memcpy_h_to_d_async(target.0, source, bytes, stream.0)) }
    }

    /// Enqueues a copy of `bytes` from device to host (`cuMemcpyDtoHAsync_v2`).
    ///
    /// # Safety
    ///
    /// As for [`memcpy_htod_async`](Self::memcpy_htod_async).
    pub unsafe fn memcpy_dtoh_async(
        &self,
        target: *mut c_void,
        source: DevicePtr,
        bytes: usize,
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: the caller vouches for the handle and both ranges.
        unsafe { call!(self.memcpy_d_to_h_async(target, source.0, bytes, stream.0)) }
    }

    /// Enqueues a copy of `bytes` from device to device (`cuMemcpyDtoDAsync_v2`).
    ///
    /// # Safety
    ///
    /// As for [`memcpy_htod_async`](Self::memcpy_htod_async); the ranges do not overlap.
    pub unsafe fn memcpy_dtod_async(
        &self,
        target: DevicePtr,
        source: DevicePtr,
        bytes: usize,
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: the caller vouches for the handle and both ranges.
        unsafe { call!(self.memcpy_d_to_d_async(target.0, source.0, bytes, stream.0)) }
    }

    /// Enqueues a fill of `count` bytes (`cuMemsetD8Async`).
    ///
    /// # Safety
    ///
    /// `stream` is alive. When the fill is executed, `target` is writable for so many bytes, and nobody else touches them.
    pub unsafe fn memset_d8_async(
        &self,
        target: DevicePtr,
        value: u8,
        count: usize,
        stream: Stream,
    ) -> Result<()> {
        // SAFETY: the caller vouches for the handle and the range.
        unsafe { call!(self.memset_d8_async(target.0, value, count, stream.0)) }
    }

    /// New pinned host memory (`cuMemHostAlloc`). Its contents are whatever was there.
    pub fn mem_host_alloc(&self, bytes: usize, flags: HostFlags) -> Result<NonNull<c_void>> {
        let mut address = std::ptr::null_mut();
        // SAFETY: the function checks the flags, and writes one pointer, to one that lives.
        unsafe { call!(self.mem_host_alloc(&mut address, bytes, flags.0)) }?;
        NonNull::new(address).ok_or_else(|| null(self.table.mem_host_alloc.name))
    }

    /// Pins memory that the process has mapped otherwise, in whole pages, for the current context
    /// (`cuMemHostRegister_v2`). Memory that is registered already is refused
    /// ([`is_already_registered`](CudaError::is_already_registered)).
    ///
    /// # Safety
    ///
    /// `address` is mapped for so many bytes until it is unregistered: what is mapped there later is not what was registered.
    /// It is what the flags say.
    pub unsafe fn mem_host_register(
        &self,
        address: NonNull<c_void>,
        bytes: usize,
        flags: RegisterFlags,
    ) -> Result<()> {
        // SAFETY: the caller vouches for the range; the function checks the flags.
        unsafe { call!(self.mem_host_register(address.as_ptr(), bytes, flags.0)) }
    }

    /// Ends a registration (`cuMemHostUnregister`). It may wait for all kernels of the context.
    ///
    /// # Safety
    ///
    /// `address` was given to [`mem_host_register`](Self::mem_host_register), is still mapped, and no device uses it any
    /// more.
    pub unsafe fn mem_host_unregister(&self, address: NonNull<c_void>) -> Result<()> {
        // SAFETY: the caller vouches for the address, and that nothing of a device leads there.
        unsafe { call!(self.mem_host_unregister(address.as_ptr())) }
    }

    /// The address under which kernels find pinned host memory (`cuMemHostGetDevicePointer_v2`).
    ///
    /// # Safety
    ///
    /// `address` lies in memory from [`mem_host_alloc`](Self::mem_host_alloc) that is not freed, or in such as was
    /// [registered](Self::mem_host_register) for devices, and is still.
    pub unsafe fn mem_host_device_ptr(&self, address: NonNull<c_void>) -> Result<DevicePtr> {
        let mut device = DevicePtr::NULL;
        // SAFETY: the caller vouches for the address; one address is written, to one that lives; 0 is the one value
        // allowed for the flags.
        unsafe { call!(self.mem_host_get_device_pointer(&mut device.0, address.as_ptr(), 0)) }?;
        Ok(device)
    }

    /// What the driver knows of an address (`cuPointerGetAttribute`): the value as the attribute's own type, extended
    /// with zeros to 64 bits. Of an attribute that is longer (`P2P_TOKENS`), the first 8 bytes.
    ///
    /// # Errors
    ///
    /// For most attributes, that it knows nothing of the address: [`is_invalid_value`](CudaError::is_invalid_value).
    pub fn pointer_attribute(
        &self,
        address: DevicePtr,
        attribute: PointerAttribute,
    ) -> Result<u64> {
        // Twice what the longest attribute of the enumeration needs.
        let mut value = [0u64; 4];
        // SAFETY: the function looks the address up and does not use it; what it writes fits into the buffer, which is
        // aligned for it.
        unsafe {
            call!(self.pointer_get_attribute(value.as_mut_ptr().cast(), attribute, address.0))
        }?;
        Ok(value[0])
    }
}

pub(crate) fn null(call: &'static str) -> CudaError {
    CudaError::unexpected(call, "success, and a null pointer".to_owned())
}
