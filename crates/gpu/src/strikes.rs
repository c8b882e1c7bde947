//! Mapping registers of NICs for the streams of a GPU, and ending that ([`crate::registers`] has the rules).

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use tidegate_hal::device::DeviceError;
use tidegate_hal::lock;
use tidegate_hal::memory::Ptr;
use tidegate_hal::nic::{Keep, Register};

use crate::driver::ErrorKind;
use crate::gpu::Gpu;
use crate::registers::{MAPPING, Page, STRIKES};

/// A register that streams may store to.
struct Mapped {
    gpu: Arc<Gpu>,
    page: usize,
    _keep: Keep,
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if !self.gpu.process.is_this() {
            return;
        }
        // No stream may be left that would do this when it ends.
        if self.gpu.registers.leave(self.page) {
            self.gpu.sweep_registers();
        }
    }
}

impl Gpu {
    /// See [`Device::map_register`](tidegate_hal::device::Device::map_register).
    ///
    /// # Safety
    ///
    /// As for [`Device::map_register`](tidegate_hal::device::Device::map_register).
    pub(crate) unsafe fn map_register(
        self: &Arc<Self>,
        register: &Register,
    ) -> Result<Register, DeviceError> {
        if !self.strikes {
            return Err(DeviceError::Unsupported {
                device: self.limits.vendor,
                what: format!("stores to registers of NICs, since {STRIKES} says `no`"),
            });
        }
        self.sweep_registers();
        self.enter()?;
        let size = rustix::param::page_size();
        let offset = register.at.0.addr() % size;
        let base = register.at.0.wrapping_sub(offset);
        let first = base.addr();
        // The lock is held while the driver is asked: if two threads want the same page, the second finds it
        // registered.
        let mut pages = lock(&self.registers.0);
        let device = match pages.join(first)? {
            Some(device) => device,
            None => {
                let base = NonNull::new(base.cast()).ok_or_else(|| DeviceError::System {
                    what: MAPPING,
                    detail: "there is none at address 0".into(),
                })?;
                // SAFETY: the caller's promise for the page, which is kept with the registration.
                let device = unsafe { self.register_page(base, size, &register.keep) }?;
                let page = Page {
                    base,
                    device,
                    users: 1,
                    going: false,
                    _keep: register.keep.clone(),
                };
                pages.0.insert(first, page);
                device
            }
        };
        drop(pages);
        let mapped = Mapped {
            gpu: self.clone(),
            page: first,
            _keep: register.keep.clone(),
        };
        Ok(Register {
            at: Ptr(std::ptr::without_provenance_mut(device as usize + offset)),
            keep: Arc::new(mapped),
        })
    }

    /// Registers a page, and returns its address on the GPU.
    ///
    /// # Safety
    ///
    /// The page is mapped as long as `keep` lives, which is held until the registration ends, and the GPU may store to
    /// it.
    unsafe fn register_page(
        &self,
        base: NonNull<c_void>,
        bytes: usize,
        keep: &Keep,
    ) -> Result<u64, DeviceError> {
        let refused = |detail: String| DeviceError::System {
            what: MAPPING,
            detail,
        };
        // SAFETY: the caller's promise.
        match unsafe { self.driver.register(base, bytes, false) } {
            Ok(()) => {}
            // The page was registered by code that may end the registration at any time.
            Err(error) if error.kind == ErrorKind::AlreadyRegistered => {
                return Err(refused(error.to_string()));
            }
            Err(memory) => {
                // SAFETY: as above; a mapped page that is no memory is a device's.
                unsafe { self.driver.register(base, bytes, true) }.map_err(|registers| {
                    refused(format!("as memory: {memory}; as registers: {registers}"))
                })?;
            }
        }
        // SAFETY: the page was just registered for devices.
        match unsafe { self.driver.registered(base) } {
            Ok(device) => Ok(device),
            Err(error) => {
                // It stays registered, since a stream may wait; so the page must stay mapped.
                std::mem::forget(keep.clone());
                Err(refused(error.to_string()))
            }
        }
    }

    /// Ends the registrations that nobody uses, if nothing waits.
    pub(crate) fn sweep_registers(&self) {
        if !self.registers.has_unused() {
            return;
        }
        // The lock is not held while streams are asked: this drops what they have passed, which may be registers.
        if self.idle(MAPPING).is_err() || self.enter().is_err() {
            return;
        }
        self.registers.take_back(|base| {
            // SAFETY: the page was registered, and stays mapped until this returns. Streams have passed all stores to
            // it, and no more will come, since the page is not given out any more.
            unsafe { self.driver.unregister(base) }
        });
    }
}
