//! Registers of NICs, for streams of a GPU to store to.
//!
//! # Model
//!
//! A register lies in a page that the process has mapped: the doorbell of a counter, say. For the GPU the page is
//! registered with the driver (`cuMemHostRegister`), which gives it an address there; once, however many registers lie
//! in it, and for one GPU: another that wants the same page is refused.
//!
//! A page is registered as memory, and if the system refuses that, as registers of another device. In this order: real
//! registers are no memory to the system, so it cannot take them for such; but memory could be taken for registers,
//! which GPUs write past the caches of those who look.
//!
//! # What is kept
//!
//! The driver ends a registration only when nothing runs on the device, as it frees pinned memory. So whoever lets the
//! last register of a page go leaves the page registered; a window that is made later may use it again. When a stream
//! ends, or a register is mapped, and nothing waits on the device, the pages that nobody uses are taken back. Until then
//! the registry keeps what has mapped the page: at its addresses there is never something else, which the GPU could
//! store to or the driver would take for registered. (Where ranks are threads, another thread may enqueue a wait between
//! the question and the call, as for recordings: `reserve.rs`.)
//!
//! # Failure
//!
//! Whatever the system does not let be mapped is refused: it may want privileges for registers, or know nothing of
//! another device's. Then the NIC's agent looks at the doorbells, which takes longer, and nothing else changes.
//!
//! That a page was mapped does not say that stores get there: switches and IOMMUs between two devices may drop them.
//! Then nothing that is rung for begins, which the NIC's agent finds out. [`STRIKES`] says `no` on such machines.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use tidegate_ffi::cuda::RegisterFlags;
use tidegate_hal::device::DeviceError;
use tidegate_hal::memory::Ptr;
use tidegate_hal::nic::{Keep, Register};

use crate::gpu::{Gpu, STRIKES, lock};

const MAPPING: &str = "mapping a register of a NIC";

/// Whether streams store to registers of NICs, by the variable; what cannot be read counts as if it were not set.
pub(crate) fn strikes(value: Option<&str>) -> bool {
    match value.map(str::trim) {
        None | Some("auto") => true,
        Some("no") => false,
        Some(other) => {
            tracing::warn!("{STRIKES} is `{other}`: `auto` or `no` is wanted");
            true
        }
    }
}

/// The pages that are registered for a GPU.
#[derive(Default)]
pub(crate) struct Registers(Mutex<Pages>);

/// By their first addresses.
#[derive(Default)]
struct Pages(BTreeMap<usize, Page>);

struct Page {
    base: NonNull<c_void>,
    /// Where the GPU finds it.
    device: u64,
    /// How many registers of it are mapped.
    users: usize,
    /// Keeps it mapped in the process.
    keep: Keep,
}

// SAFETY: the pointer is only handed to the driver, by one thread at a time.
unsafe impl Send for Page {}

impl Pages {
    /// One more user of a page, if it is registered: where the GPU finds it.
    fn join(&mut self, first: usize) -> Option<u64> {
        let page = self.0.get_mut(&first)?;
        page.users += 1;
        Some(page.device)
    }

    fn leave(&mut self, first: usize) {
        if let Some(page) = self.0.get_mut(&first) {
            page.users -= 1;
        }
    }

    /// Those that nobody uses any more.
    fn take_unused(&mut self) -> Vec<Page> {
        let unused = self.0.extract_if(.., |_, page| page.users == 0);
        unused.map(|(_, page)| page).collect()
    }
}

/// A register that streams may store to.
struct Mapped {
    gpu: Arc<Gpu>,
    page: usize,
    _keep: Keep,
}

impl Drop for Mapped {
    fn drop(&mut self) {
        lock(&self.gpu.registers.0).leave(self.page);
    }
}

impl Gpu {
    /// See [`Device::map_register`](tidegate_hal::device::Device::map_register).
    ///
    /// # Safety
    ///
    /// As said there.
    pub(crate) unsafe fn map_register(
        self: &Arc<Self>,
        register: &Register,
    ) -> Result<Register, DeviceError> {
        if !self.strikes {
            return Err(DeviceError::Unsupported {
                device: "cuda",
                what: format!("stores to registers of NICs, since {STRIKES} says `no`"),
            });
        }
        self.sweep_registers();
        self.enter()?;
        let size = rustix::param::page_size();
        let offset = register.at.0.addr() % size;
        let base = register.at.0.wrapping_sub(offset);
        let first = base.addr();
        // Held while the driver is asked: of two who want the same page, the second finds it registered.
        let mut pages = lock(&self.registers.0);
        let device = match pages.join(first) {
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
                    keep: register.keep.clone(),
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

    /// Registers a page: where the GPU finds it.
    ///
    /// # Safety
    ///
    /// It is mapped as long as `keep`, which is kept until it is unregistered, and may be stored to by the GPU.
    unsafe fn register_page(
        &self,
        base: NonNull<c_void>,
        bytes: usize,
        keep: &Keep,
    ) -> Result<u64, DeviceError> {
        let as_memory = RegisterFlags::DEVICE_MAP;
        let refused = |detail: String| DeviceError::System {
            what: MAPPING,
            detail,
        };
        // SAFETY: the caller's promise.
        match unsafe { self.driver.mem_host_register(base, bytes, as_memory) } {
            Ok(()) => {}
            // By somebody who may end it at any time.
            Err(error) if error.is_already_registered() => return Err(refused(error.to_string())),
            Err(memory) => {
                let as_registers = as_memory | RegisterFlags::IO_MEMORY;
                // SAFETY: as above; what is mapped there and is no memory is a device's.
                unsafe { self.driver.mem_host_register(base, bytes, as_registers) }.map_err(
                    |registers| refused(format!("as memory: {memory}; as registers: {registers}")),
                )?;
            }
        }
        // SAFETY: the page was just registered for devices.
        match unsafe { self.driver.mem_host_device_ptr(base) } {
            Ok(device) => Ok(device.0),
            Err(error) => {
                // It stays registered, since something may wait; so the page must stay mapped.
                std::mem::forget(keep.clone());
                Err(refused(error.to_string()))
            }
        }
    }

    /// Takes back the pages that nobody uses, if nothing waits.
    pub(crate) fn sweep_registers(&self) {
        let is_unused = |page: &Page| page.users == 0;
        if !lock(&self.registers.0).0.values().any(is_unused) {
            return;
        }
        // The lock is not held while streams are asked: what they have passed is dropped then, and may hold registers.
        if self.idle(MAPPING).is_err() || self.enter().is_err() {
            return;
        }
        let mut pages = lock(&self.registers.0);
        let unused = pages.take_unused();
        for page in &unused {
            // SAFETY: it was registered, and is mapped as long as this keeps it; streams have passed what stored there.
            if let Err(error) = unsafe { self.driver.mem_host_unregister(page.base) } {
                tracing::warn!(%error, "a page of a NIC stays registered");
                std::mem::forget(page.keep.clone());
            }
        }
        // Who hears that a page is let go may be a NIC, which is called under no lock.
        drop(pages);
        drop(unused);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_is_read() {
        for (value, means) in [
            (None, true),
            (Some("auto"), true),
            (Some("no"), false),
            (Some(" no\n"), false),
            // Not understood, which is said.
            (Some("perhaps"), true),
            (Some("No"), true),
        ] {
            assert_eq!(strikes(value), means, "{value:?}");
        }
    }

    #[test]
    fn a_page_is_kept_as_long_as_it_has_users_and_until_it_is_taken_back() {
        let keep: Keep = Arc::new(());
        let mut pages = Pages::default();
        assert_eq!(pages.join(0x4000), None);
        let page = Page {
            base: NonNull::dangling(),
            device: 0x9000,
            users: 1,
            keep: keep.clone(),
        };
        pages.0.insert(0x4000, page);
        assert_eq!(
            (pages.join(0x4000), pages.join(0x5000)),
            (Some(0x9000), None)
        );
        pages.leave(0x4000);
        assert!(pages.take_unused().is_empty());
        pages.leave(0x4000);
        // Nobody has taken it back: it can be used again.
        assert_eq!(
            (pages.join(0x4000), Arc::strong_count(&keep)),
            (Some(0x9000), 2)
        );
        pages.leave(0x4000);
        assert_eq!(pages.take_unused().len(), 1);
        assert_eq!((pages.join(0x4000), Arc::strong_count(&keep)), (None, 1));
    }
}
