//! Virtual memory management: physical memory and addresses apart, joined by mapping.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::error::{CudaError, Result};
use super::handle::{Device, DevicePtr, MemHandle};
use super::load::Driver;
use super::sys;
use super::table::call;

/// Processes pass physical memory to each other as a file descriptor.
pub(crate) const POSIX_FD: sys::CUmemAllocationHandleType =
    sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

pub(crate) fn location(device: Device) -> sys::CUmemLocation {
    sys::CUmemLocation {
        type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
        id: device.0,
    }
}

/// The properties of physical memory (`CUmemAllocationProp`): pinned memory of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct AllocationProp(sys::CUmemAllocationProp);

impl AllocationProp {
    /// Memory of `device`, for this process only.
    pub fn pinned(device: Device) -> Self {
        AllocationProp(sys::CUmemAllocationProp {
            type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
            location: location(device),
            win32HandleMetaData: std::ptr::null_mut(),
            allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
                compressionType: 0,
                gpuDirectRDMACapable: 0,
                usage: 0,
                reserved: [0; 4],
            },
        })
    }

    /// Makes the memory one that other processes can get, as a file descriptor ([`Driver::mem_export_fd`]).
    pub fn shareable(mut self) -> Self {
        self.0.requestedHandleTypes = POSIX_FD;
        self
    }
}

/// The access of a device to mapped memory (`CUmemAccessDesc`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct AccessDesc(sys::CUmemAccessDesc);

impl AccessDesc {
    /// `device` may read and write.
    pub fn read_write(device: Device) -> Self {
        AccessDesc(sys::CUmemAccessDesc {
            location: location(device),
            flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        })
    }
}

impl Driver {
    /// The granularity of memory with these properties. For the best speed, its size and the alignment of its addresses
    /// are multiples of this many bytes (`cuMemGetAllocationGranularity` of `CU_MEM_ALLOC_GRANULARITY_RECOMMENDED`).
    pub fn mem_granularity(&self, prop: &AllocationProp) -> Result<usize> {
        const RECOMMENDED: u32 = 1;
        let mut bytes = 0;
        // SAFETY: the structure is whole and lives; one size is written into a live variable.
        unsafe { call!(self.mem_get_allocation_granularity(&mut bytes, &prop.0, RECOMMENDED)) }?;
        Ok(bytes)
    }

    /// New physical memory, without an address (`cuMemCreate`). The size is a multiple of the
    /// [granularity](Self::mem_granularity).
    pub fn mem_create(&self, bytes: usize, prop: &AllocationProp) -> Result<MemHandle> {
        let mut handle = MemHandle(0);
        // SAFETY: the structure is whole and lives; one handle is written into a live variable; 0 is the one value
        // allowed for the flags.
        unsafe { call!(self.mem_create(&mut handle.0, bytes, &prop.0, 0)) }?;
        Ok(handle)
    }

    /// Releases the handle. The memory is freed when no mapping and no other process holds it (`cuMemRelease`).
    ///
    /// # Safety
    ///
    /// `handle` is alive and not used again.
    pub unsafe fn mem_release(&self, handle: MemHandle) -> Result<()> {
        // SAFETY: the caller vouches for the handle, and gives it up.
        unsafe { call!(self.mem_release(handle.0)) }
    }

    /// Reserves addresses without memory (`cuMemAddressReserve`). `alignment` is a power of two, or 0 for the driver's
    /// default. `hint` is the preferred beginning, or null.
    pub fn mem_address_reserve(
        &self,
        bytes: usize,
        alignment: usize,
        hint: DevicePtr,
    ) -> Result<DevicePtr> {
        let mut address = DevicePtr::NULL;
        // SAFETY: the function checks the numbers, takes no addresses that are in use, and writes one address, to one
        // that lives; 0 is the one value allowed for the flags.
        unsafe { call!(self.mem_address_reserve(&mut address.0, bytes, alignment, hint.0, 0)) }?;
        Ok(address)
    }

    /// Frees reserved addresses (`cuMemAddressFree`).
    ///
    /// # Safety
    ///
    /// `address` and `bytes` are a whole reservation, in which nothing is mapped, and which is not used again.
    pub unsafe fn mem_address_free(&self, address: DevicePtr, bytes: usize) -> Result<()> {
        // SAFETY: the caller vouches for the reservation, and gives it up.
        unsafe { call!(self.mem_address_free(address.0, bytes)) }
    }

    /// Maps physical memory at reserved addresses (`cuMemMap`). No device may access it yet. `offset` is an offset into
    /// the memory, and must be 0 with today's drivers.
    ///
    /// # Safety
    ///
    /// `handle` is alive. The addresses belong to a reservation of the caller, and nothing is mapped there.
    pub unsafe fn mem_map(
        &self,
        address: DevicePtr,
        bytes: usize,
        offset: usize,
        handle: MemHandle,
    ) -> Result<()> {
        // SAFETY: the caller vouches for handle and addresses; 0 is the one value allowed for the flags.
        unsafe { call!(self.mem_map(address.0, bytes, offset, handle.0, 0)) }
    }

    /// Unmaps the memory from its addresses, which stay reserved (`cuMemUnmap`).
    ///
    /// # Safety
    ///
    /// The range consists of whole mappings of the caller. Nothing uses it any more, on any device.
    pub unsafe fn mem_unmap(&self, address: DevicePtr, bytes: usize) -> Result<()> {
        // SAFETY: the caller vouches for the range, and gives it up.
        unsafe { call!(self.mem_unmap(address.0, bytes)) }
    }

    /// Sets the access of devices to mapped memory (`cuMemSetAccess`). Devices that are not named keep their access.
    ///
    /// # Safety
    ///
    /// The range consists of whole mappings of the caller. No enqueued work relies on an access that is taken away.
    pub unsafe fn mem_set_access(
        &self,
        address: DevicePtr,
        bytes: usize,
        access: &[AccessDesc],
    ) -> Result<()> {
        // SAFETY: the caller vouches for the range; a description has the layout of the driver's, and the number is the
        // slice's.
        unsafe {
            call!(self.mem_set_access(address.0, bytes, access.as_ptr().cast(), access.len()))
        }
    }

    /// A file descriptor of the memory (`cuMemExportToShareableHandle`). Every process that has it can map the memory,
    /// and keeps the memory from being freed. The memory must have been made [`shareable`](AllocationProp::shareable).
    ///
    /// # Safety
    ///
    /// `handle` is alive.
    pub unsafe fn mem_export_fd(&self, handle: MemHandle) -> Result<OwnedFd> {
        let mut fd: c_int = -1;
        // SAFETY: the caller vouches for the handle; for this type of handle one int is written into a live variable; 0
        // is the one value allowed for the flags.
        unsafe {
            call!(self.mem_export_to_shareable_handle((&raw mut fd).cast(), handle.0, POSIX_FD, 0,))
        }?;
        if fd < 0 {
            return Err(CudaError::unexpected(
                self.table.mem_export_to_shareable_handle.name,
                format!("success, and the file descriptor {fd}"),
            ));
        }
        // SAFETY: the driver has opened the descriptor for this call, and nothing else owns it; it is not negative.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// The memory of a file descriptor, which the caller has to release (`cuMemImportFromShareableHandle`). After the
    /// call, the descriptor can be closed.
    pub fn mem_import_fd(&self, fd: BorrowedFd<'_>) -> Result<MemHandle> {
        let mut handle = MemHandle(0);
        // For this type of handle, the pointer *is* the number.
        let number = std::ptr::without_provenance_mut::<c_void>(fd.as_raw_fd() as usize);
        // SAFETY: the descriptor is open; the function checks what it is for; one handle is written into a live
        // variable.
        unsafe { call!(self.mem_import_from_shareable_handle(&mut handle.0, number, POSIX_FD)) }?;
        Ok(handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_property_says_what_was_asked_for_and_nothing_else() {
        let plain = AllocationProp::pinned(Device(3)).0;
        assert_eq!(plain.location.id, 3);
        assert_eq!(
            plain.location.type_,
            sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE
        );
        assert_eq!(plain.requestedHandleTypes.0, 0);
        let shared = AllocationProp::pinned(Device(3)).shareable().0;
        assert_eq!(shared.requestedHandleTypes.0, 1);
        assert_eq!(shared.allocFlags.gpuDirectRDMACapable, 0);
        assert_eq!(shared.allocFlags.usage, 0);
    }

    #[test]
    fn access_is_written_as_the_driver_reads_it() {
        let access = AccessDesc::read_write(Device(1)).0;
        assert_eq!((access.location.id, access.flags as u32), (1, 3));
        assert_eq!(size_of::<AccessDesc>(), 12);
    }
}
