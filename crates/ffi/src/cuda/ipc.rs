//! Legacy memory handles between processes. They hold nothing: memory that its owner frees is gone for whoever opened it; [file
//! descriptors](super::Driver::mem_export_fd) keep it.

use std::ffi::c_char;

use super::error::Result;
use super::handle::DevicePtr;
use super::load::Driver;
use super::sys;
use super::table::call;

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`.
const LAZY_ENABLE_PEER_ACCESS: u32 = 1;

/// A name for device memory that another process of the same machine can open (`CUipcMemHandle`). It may be sent as bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IpcMemHandle(pub [u8; 64]);

impl Driver {
    /// A name for the *whole* allocation in which `address` lies (`cuIpcGetMemHandle`).
    ///
    /// # Errors
    ///
    /// For an address that is not in memory from [`mem_alloc`](Self::mem_alloc): mapped and pooled memory has no such names.
    pub fn ipc_mem_handle(&self, address: DevicePtr) -> Result<IpcMemHandle> {
        let mut handle = sys::CUipcMemHandle { reserved: [0; 64] };
        // SAFETY: the function looks the address up and does not use it; one structure is written, to one that lives.
        unsafe { call!(self.ipc_get_mem_handle(&mut handle, address.0)) }?;
        Ok(IpcMemHandle(handle.reserved.map(|byte| byte as u8)))
    }

    /// Where the allocation begins in this process, with peer access enabled if it is needed (`cuIpcOpenMemHandle_v2`).
    ///
    /// # Safety
    ///
    /// `handle` is from [`ipc_mem_handle`](Self::ipc_mem_handle) of another process on this machine. That process does
    /// not free the memory while it is open here.
    pub unsafe fn ipc_open_mem_handle(&self, handle: &IpcMemHandle) -> Result<DevicePtr> {
        let mut address = DevicePtr::NULL;
        let handle = sys::CUipcMemHandle {
            reserved: handle.0.map(|byte| byte as c_char),
        };
        // SAFETY: the caller vouches for the handle; one address is written, to one that lives.
        unsafe {
            call!(self.ipc_open_mem_handle(&mut address.0, handle, LAZY_ENABLE_PEER_ACCESS))
        }?;
        Ok(address)
    }

    /// Closes what was opened (`cuIpcCloseMemHandle`).
    ///
    /// # Safety
    ///
    /// `address` is from [`ipc_open_mem_handle`](Self::ipc_open_mem_handle), and nothing uses the memory here any more.
    pub unsafe fn ipc_close_mem_handle(&self, address: DevicePtr) -> Result<()> {
        // SAFETY: the caller vouches for the address, and gives it up.
        unsafe { call!(self.ipc_close_mem_handle(address.0)) }
    }
}
