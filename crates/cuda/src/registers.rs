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
//! The driver ends a registration only when nothing runs on the device, as it frees pinned memory. So a page that nobody
//! uses any more stays registered while a stream has work; a window that is made meanwhile may use it again. It is taken
//! back when the device is found idle: as the last register of a page is let go (by a ticket or a recording, perhaps,
//! after the last stream), as a stream ends, or as a register is mapped. Until then the registry keeps what has mapped
//! the page: at its addresses there is never something else, which the GPU could store to or the driver would take for
//! registered.
//!
//! Between the question whether anything waits and the call, another thread may enqueue a wait, where ranks are threads
//! (as for recordings: `reserve.rs`); and of kernels that other libraries launch, nothing is known here. The call comes
//! back behind them. So it is made under no lock: only the thread that takes the page back is delayed. (Behind a wait
//! for that very thread, for ever; that gap is left.) Who wants the page meanwhile is refused.
//!
//! A courier that waits for ever (`courier.rs`) leaves the device never idle. Then nothing is taken back any more: the
//! pages, and what keeps them mapped (counters, and the NIC's domain that they are of), stay open for the life of the
//! process.
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
use std::fmt::Display;
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
    /// It is being taken back, by a thread that does not hold the lock.
    going: bool,
    /// Keeps it mapped in the process.
    _keep: Keep,
}

// SAFETY: the pointer is only handed to the driver, by one thread at a time.
unsafe impl Send for Page {}

impl Page {
    fn is_unused(&self) -> bool {
        self.users == 0 && !self.going
    }
}

impl Pages {
    /// One more user of a page, if it is registered: where the GPU finds it. An error while it is being taken back.
    fn join(&mut self, first: usize) -> Result<Option<u64>, DeviceError> {
        match self.0.get_mut(&first) {
            Some(page) if page.going => Err(DeviceError::Busy(MAPPING)),
            Some(page) => {
                page.users += 1;
                Ok(Some(page.device))
            }
            None => Ok(None),
        }
    }
}

impl Registers {
    /// One user less; whether that was the last of the page.
    fn leave(&self, first: usize) -> bool {
        match lock(&self.0).0.get_mut(&first) {
            Some(page) => {
                page.users -= 1;
                page.users == 0
            }
            None => false,
        }
    }

    fn has_unused(&self) -> bool {
        lock(&self.0).0.values().any(Page::is_unused)
    }

    /// Takes back the pages that nobody uses any more: `end` is called for each, under no lock, since it may block
    /// behind a wait. As long as it has not returned, nobody else has to do with the page, which stays mapped.
    fn take_back<E: Display>(&self, end: impl Fn(NonNull<c_void>) -> Result<(), E>) {
        let mut unused = Vec::new();
        for (first, page) in &mut lock(&self.0).0 {
            if page.is_unused() {
                page.going = true;
                unused.push((*first, page.base));
            }
        }
        for (first, base) in unused {
            let ended = end(base);
            let page = lock(&self.0).0.remove(&first);
            if let Err(error) = ended {
                tidegate_hal::tell(|| tracing::warn!(%error, "a page of a NIC stays registered"));
                std::mem::forget(page);
            }
            // Else who hears that it is let go may be a NIC, which is called under no lock.
        }
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
        if !self.gpu.process.is_this() {
            return;
        }
        // There may be no stream any more that would do it when it ends.
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
        if !self.registers.has_unused() {
            return;
        }
        // The lock is not held while streams are asked: what they have passed is dropped then, and may hold registers.
        if self.idle(MAPPING).is_err() || self.enter().is_err() {
            return;
        }
        self.registers.take_back(|base| {
            // SAFETY: it was registered, and stays mapped until this returns; streams have passed what stored there, and
            // no more will, since nobody gets it any more.
            unsafe { self.driver.mem_host_unregister(base) }
        });
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

    const AT: usize = 0x4000;

    fn joined(registers: &Registers, first: usize) -> Option<u64> {
        lock(&registers.0).join(first).unwrap()
    }

    /// One page, that has one user.
    fn one_page(keep: &Keep) -> Registers {
        let registers = Registers::default();
        assert_eq!(joined(&registers, AT), None);
        let page = Page {
            base: NonNull::dangling(),
            device: 0x9000,
            users: 1,
            going: false,
            _keep: keep.clone(),
        };
        lock(&registers.0).0.insert(AT, page);
        registers
    }

    fn ends(_: NonNull<c_void>) -> Result<(), &'static str> {
        Ok(())
    }

    #[test]
    fn a_page_is_kept_as_long_as_it_has_users_and_until_it_is_taken_back() {
        let keep: Keep = Arc::new(());
        let registers = one_page(&keep);
        assert_eq!(joined(&registers, AT), Some(0x9000));
        assert_eq!(joined(&registers, AT + 0x1000), None);
        // Whoever lets the last one go hears it, and sweeps.
        assert!(!registers.leave(AT));
        registers.take_back(|_| -> Result<(), &str> { panic!("it has a user") });
        assert!(registers.leave(AT));
        // Nobody has taken it back: it can be used again.
        assert_eq!(joined(&registers, AT), Some(0x9000));
        assert_eq!(Arc::strong_count(&keep), 2);
        assert!(registers.leave(AT) && registers.has_unused());
        registers.take_back(ends);
        assert!(!registers.has_unused());
        assert_eq!(joined(&registers, AT), None);
        assert_eq!(Arc::strong_count(&keep), 1);
    }

    #[test]
    fn a_page_is_taken_back_under_no_lock_and_refused_meanwhile() {
        let keep: Keep = Arc::new(());
        let registers = one_page(&keep);
        assert!(registers.leave(AT));
        registers.take_back(|_| {
            // What another thread does while the driver blocks.
            let mut pages = registers.0.try_lock().expect("nobody waits for the driver");
            assert!(matches!(pages.join(AT), Err(DeviceError::Busy(_))));
            assert!(matches!(pages.join(AT + 0x1000), Ok(None)));
            drop(pages);
            assert!(!registers.has_unused(), "it is taken back once");
            registers.take_back(|_| -> Result<(), &str> { panic!("it is taken back once") });
            assert_eq!(Arc::strong_count(&keep), 2, "it stays mapped");
            ends(NonNull::dangling())
        });
        assert_eq!(joined(&registers, AT), None);
        assert_eq!(Arc::strong_count(&keep), 1);
    }

    #[test]
    fn who_hears_that_a_page_is_let_go_may_map_another() {
        struct Nic(Arc<Registers>);
        impl Drop for Nic {
            fn drop(&mut self) {
                assert!(self.0.0.try_lock().is_ok(), "it is called under no lock");
            }
        }
        let registers = Arc::<Registers>::default();
        let page = Page {
            base: NonNull::dangling(),
            device: 0x9000,
            users: 0,
            going: false,
            _keep: Arc::new(Nic(registers.clone())),
        };
        lock(&registers.0).0.insert(AT, page);
        registers.take_back(ends);
        assert_eq!(joined(&registers, AT), None);
    }

    #[test]
    fn what_stays_registered_stays_mapped() {
        let keep: Keep = Arc::new(());
        let registers = one_page(&keep);
        assert!(registers.leave(AT));
        registers.take_back(|_| Err("not now"));
        assert_eq!(
            (joined(&registers, AT), Arc::strong_count(&keep)),
            (None, 2)
        );
    }
}
