//! Memory: copies, fills, pinned host memory, and what the driver knows of an address.

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
        /// For copies of the current context.
        NONE = 0;
        /// For all contexts.
        PORTABLE = 1;
        /// For kernels, too: the memory gets an address for devices.
        DEVICE_MAP = 2;
    }
}

flags! {
    /// What host memory is registered as (`CU_MEMHOSTREGISTER_…`).
    RegisterFlags {
        /// Pinned for copies of the current context.
        NONE = 0;
        /// Pinned for all contexts.
        PORTABLE = 1;
        /// For kernels, too: the memory gets an address for devices.
        DEVICE_MAP = 2;
        /// The addresses are registers of another device, which the process has mapped, instead of memory. On Linux
        /// they must be physically contiguous, and devices do not snoop caches for them. Some systems allow this to
        /// privileged users only (`CUDA_ERROR_NOT_PERMITTED`).
        IO_MEMORY = 4;
    }
}

impl Driver {
    /// Enqueues a copy of `bytes` from host to device (`cuMemcpyHtoDAsync_v2`). If host memory is not pinned, it may be
    /// read before or after this returns.
    ///
    /// # Safety
    ///
    /// `stream` is alive. Whenever the copy is executed (at each replay, if it is captured), `source` is readable and
    /// `target` is writable for so many bytes. Meanwhile nothing else writes `source` or touches `target`.
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
    /// `stream` is alive. Whenever the fill is executed, `target` is writable for so many bytes, and nothing else
    /// touches them.
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

    /// New pinned host memory (`cuMemHostAlloc`). Its contents are undefined.
    pub fn mem_host_alloc(&self, bytes: usize, flags: HostFlags) -> Result<NonNull<c_void>> {
        let mut address = std::ptr::null_mut();
        // SAFETY: the function checks the flags, and writes one pointer into a live variable.
        unsafe { call!(self.mem_host_alloc(&mut address, bytes, flags.0)) }?;
        NonNull::new(address).ok_or_else(|| null(self.table.mem_host_alloc.name))
    }

    /// Pins memory that the process has mapped itself, in whole pages, for the current context
    /// (`cuMemHostRegister_v2`). The driver refuses memory that is already registered
    /// ([`ErrorKind::AlreadyRegistered`](tidegate_hal::device::ErrorKind)).
    ///
    /// # Safety
    ///
    /// `address` stays mapped for so many bytes until it is unregistered: memory that is mapped there later would not
    /// be registered. The memory is of the kind that the flags say.
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
    /// `address` was given to [`mem_host_register`](Self::mem_host_register), and is still mapped. No device uses the
    /// memory any more.
    pub unsafe fn mem_host_unregister(&self, address: NonNull<c_void>) -> Result<()> {
        // SAFETY: the caller vouches for the address, and that no device uses it.
        unsafe { call!(self.mem_host_unregister(address.as_ptr())) }
    }

    /// The address by which kernels reach pinned host memory (`cuMemHostGetDevicePointer_v2`).
    ///
    /// # Safety
    ///
    /// `address` lies in memory from [`mem_host_alloc`](Self::mem_host_alloc) that is not freed, or in memory that is
    /// [registered](Self::mem_host_register) for devices.
    pub unsafe fn mem_host_device_ptr(&self, address: NonNull<c_void>) -> Result<DevicePtr> {
        let mut device = DevicePtr::NULL;
        // SAFETY: the caller vouches for the address; one address is written into a live variable; 0 is the one value
        // allowed for the flags.
        unsafe { call!(self.mem_host_get_device_pointer(&mut device.0, address.as_ptr(), 0)) }?;
        Ok(device)
    }

    /// An attribute of an address (`cuPointerGetAttribute`): its value, extended with zeros to 64 bits. If the
    /// attribute is longer (`P2P_TOKENS`), its first 8 bytes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](tidegate_hal::device::ErrorKind) for most attributes, if the driver does not know the
    /// address.
    pub fn pointer_attribute(
        &self,
        address: DevicePtr,
        attribute: PointerAttribute,
    ) -> Result<u64> {
        // The longest attribute of the enumeration needs half of this.
        let mut value = [0u64; 4];
        // SAFETY: the function looks the address up, and accesses nothing there. The value that it writes fits into the
        // buffer, which is aligned for it.
        unsafe {
            call!(self.pointer_get_attribute(value.as_mut_ptr().cast(), attribute, address.0))
        }?;
        Ok(value[0])
    }
}

pub(crate) fn null(call: &'static str) -> CudaError {
    CudaError::unexpected(call, "success, and a null pointer".to_owned())
}
