//! Memory pools: memory that is allocated and freed in the order of a stream.

use std::ffi::c_void;

use super::error::Result;
use super::handle::{Device, DevicePtr, Pool, Stream};
use super::load::Driver;
use super::sys;
use super::table::call;
use super::vmm;

/// What a new pool is made of (`CUmemPoolProps`): pinned memory of one device.
#[derive(Debug, Clone, Copy)]
pub struct PoolProps {
    raw: sys::CUmemPoolProps,
}

impl PoolProps {
    /// Memory of `device`, for this process only, as much as there is.
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

    /// Other processes can be given the pool, as a file descriptor.
    pub fn shareable(mut self) -> Self {
        self.raw.handleTypes = vmm::POSIX_FD;
        self
    }

    /// No more than so many bytes, rounded up by the driver; 0 is as much as there is.
    pub fn max_size(mut self, bytes: usize) -> Self {
        self.raw.maxSize = bytes;
        self
    }
}

/// How a pool behaves (`CUmemPool_attribute`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolAttribute {
    /// So many bytes are kept when they are free, and not given back to the device at the next synchronisation.
    ReleaseThreshold(u64),
    /// Memory freed on one stream can be used on another that waited for it by an event.
    ReuseFollowEventDependencies(bool),
    /// Memory whose freeing has already been executed can be used on every stream.
    ReuseAllowOpportunistic(bool),
    /// The driver may make streams wait for each other to use memory again.
    ReuseAllowInternalDependencies(bool),
}

impl Driver {
    /// The pool that the device has from the beginning; it is never destroyed (`cuDeviceGetDefaultMemPool`).
    pub fn device_default_mem_pool(&self, device: Device) -> Result<Pool> {
        let mut pool = Pool::NULL;
        // SAFETY: the function checks the device, and writes one handle, to one that lives.
        unsafe { call!(self.device_get_default_mem_pool(&mut pool.0, device.0)) }?;
        Ok(pool)
    }

    /// A new pool (`cuMemPoolCreate`).
    pub fn mem_pool_create(&self, props: &PoolProps) -> Result<Pool> {
        let mut pool = Pool::NULL;
        // SAFETY: the structure is whole and lives; one handle is written, to one that lives.
        unsafe { call!(self.mem_pool_create(&mut pool.0, &props.raw)) }?;
        Ok(pool)
    }

    /// Destroys the pool; memory that is still allocated from it stays until it is freed (`cuMemPoolDestroy`).
    ///
    /// # Safety
    ///
    /// `pool` is alive, not a device's default pool, and not used again.
    pub unsafe fn mem_pool_destroy(&self, pool: Pool) -> Result<()> {
        // SAFETY: the caller vouches for the handle, and gives it up.
        unsafe { call!(self.mem_pool_destroy(pool.0)) }
    }

    /// How the pool is to behave (`cuMemPoolSetAttribute`).
    ///
    /// # Safety
    ///
    /// `pool` is alive.
    pub unsafe fn mem_pool_set_attribute(
        &self,
        pool: Pool,
        attribute: PoolAttribute,
    ) -> Result<()> {
        use sys::CUmemPool_attribute as A;
        let set = |attribute, value: *mut c_void| {
            // SAFETY: the caller vouches for the handle; below, the value lives, and is of the attribute's type.
            unsafe { call!(self.mem_pool_set_attribute(pool.0, attribute, value)) }
        };
        // The header says which type: an int for the switches, a 64-bit number for the threshold.
        let switch = |attribute, on: bool| {
            let mut on = i32::from(on);
            set(attribute, (&raw mut on).cast())
        };
        match attribute {
            PoolAttribute::ReleaseThreshold(mut bytes) => set(
                A::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                (&raw mut bytes).cast(),
            ),
            PoolAttribute::ReuseFollowEventDependencies(on) => {
                switch(A::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, on)
            }
            PoolAttribute::ReuseAllowOpportunistic(on) => {
                switch(A::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, on)
            }
            PoolAttribute::ReuseAllowInternalDependencies(on) => {
                switch(A::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, on)
            }
        }
    }

    /// Gives free memory back to the device, but for so many bytes (`cuMemPoolTrimTo`).
    ///
    /// # Safety
    ///
    /// `pool` is alive.
    pub unsafe fn mem_pool_trim_to(&self, pool: Pool, bytes: usize) -> Result<()> {
        // SAFETY: the caller vouches for the handle.
        unsafe { call!(self.mem_pool_trim_to(pool.0, bytes)) }
    }

    /// Memory that can be used once the stream has come to this point (`cuMemAllocFromPoolAsync`).
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
        // SAFETY: the caller vouches for the handles; one address is written, to one that lives.
        unsafe { call!(self.mem_alloc_from_pool_async(&mut address.0, bytes, pool.0, stream.0)) }?;
        Ok(address)
    }

    /// Frees memory when the stream comes to this point (`cuMemFreeAsync`).
    ///
    /// # Safety
    ///
    /// `stream` is alive; `address` is from [`mem_alloc_from_pool_async`](Self::mem_alloc_from_pool_async) or
    /// [`mem_alloc`](Self::mem_alloc); nothing uses the memory that is not ordered before this point.
    pub unsafe fn mem_free_async(&self, address: DevicePtr, stream: Stream) -> Result<()> {
        // SAFETY: the caller vouches for the handle and the address, and gives the memory up.
        unsafe { call!(self.mem_free_async(address.0, stream.0)) }
    }
}
