//! Memory pools: memory that is allocated and freed in the order of a stream.

use super::error::Result;
use super::handle::{Device, DevicePtr, Pool, Stream};
use super::load::Driver;
use super::sys;
use super::table::call;
use super::vmm;

/// The properties of a new pool (`CUmemPoolProps`): pinned memory of one device.
#[derive(Debug, Clone, Copy)]
pub struct PoolProps {
    raw: sys::CUmemPoolProps,
}

impl PoolProps {
    /// Memory of `device`, for this process only. The device's memory is the only limit.
    pub fn pinned(device: Device) -> Self {
        PoolProps {
            raw: sys::CUmemPoolProps {
                allocType: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
                handleTypes: sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
                location: vmm::location(device),
                win32SecurityAttributes: std::ptr::null_mut(),
                maxSize: 0,
                usage: 0,
                reserved: [0; 54],
            },
        }
    }
}

impl Driver {
    /// A new pool (`cuMemPoolCreate`).
    pub fn mem_pool_create(&self, props: &PoolProps) -> Result<Pool> {
        let mut pool = Pool::NULL;
        // SAFETY: the structure is whole and lives; one handle is written into a live variable.
        unsafe { call!(self.mem_pool_create(&mut pool.0, &props.raw)) }?;
        Ok(pool)
    }

    /// Sets how many free bytes the pool keeps: it gives only more than these back to the device at the next
    /// synchronisation (`cuMemPoolSetAttribute` of `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`).
    ///
    /// # Safety
    ///
    /// `pool` is alive.
    pub unsafe fn mem_pool_set_release_threshold(&self, pool: Pool, mut bytes: u64) -> Result<()> {
        let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        // SAFETY: the caller vouches for the handle; the value is of the attribute's type, and lives.
        unsafe { call!(self.mem_pool_set_attribute(pool.0, attribute, (&raw mut bytes).cast())) }
    }

    /// Allocates memory that can be used once the stream has come to this point (`cuMemAllocFromPoolAsync`).
    ///
    /// # Safety
    ///
    /// `pool` and `stream` are alive.
    pub unsafe fn mem_alloc_from_pool_async(
        &self,
        bytes: usize,
        pool: Pool,
        stream: Stream,
    ) -> Result<DevicePtr> {
        let mut address = DevicePtr::NULL;
        // SAFETY: the caller vouches for the handles; one address is written into a live variable.
        unsafe { call!(self.mem_alloc_from_pool_async(&mut address.0, bytes, pool.0, stream.0)) }?;
        Ok(address)
    }

    /// Frees memory when the stream comes to this point (`cuMemFreeAsync`).
    ///
    /// # Safety
    ///
    /// `stream` is alive, and `address` is from [`mem_alloc_from_pool_async`](Self::mem_alloc_from_pool_async). Every
    /// use of the memory is ordered before this point.
    pub unsafe fn mem_free_async(&self, address: DevicePtr, stream: Stream) -> Result<()> {
        // SAFETY: the caller vouches for the handle and the address, and gives the memory up.
        unsafe { call!(self.mem_free_async(address.0, stream.0)) }
    }
}
