//! Registers of NICs that streams of a GPU store to.
//!
//! # Model
//!
//! A register lies in a page that the process has mapped: for instance, the doorbell of a counter. Registering the page
//! with the driver gives it an address on the GPU. A page is registered once, however many
//! registers it has, and for one GPU; a request of another GPU is refused.
//!
//! A page is registered as memory first. If the system refuses that, it is registered as registers of another device.
//! The order matters. The system does not take real registers for memory. But it could take memory for registers, and
//! GPUs write those past the caches of the processors that read them.
//!
//! # When a registration ends
//!
//! As with pinned memory, the driver ends a registration only when nothing runs on the device. So a page stays
//! registered while a stream has work, even if nobody uses it; a window that is opened meanwhile may use it again. The
//! registration is ended when the device is found idle. The moments to look are when the last register of a page is
//! dropped (by a ticket or a recording, possibly after the last stream), when a stream ends, and when a register is
//! mapped. Until then the registry keeps the owner of the page's mapping. So nothing else can be mapped at these
//! addresses, which the GPU could store to, or which the driver would take for registered.
//!
//! There is a gap between the check that nothing waits and the driver's call. Where ranks are threads, another thread
//! may enqueue a wait there (as for recordings: `reserve.rs`). Kernels of other libraries are not known here either.
//! The driver's call returns after such waits. It is made under no lock, so it delays only the thread that makes it.
//! (If a wait depends on that very thread, the thread waits for ever; this gap is left.) Meanwhile a request for the
//! page is refused.
//!
//! If a courier waits for ever (`courier.rs`), the device is never idle again, and no registration ends. The pages, and
//! all that keeps them mapped (counters, and the NIC's domain), stay open as long as the process lives.
//!
//! # Failure
//!
//! A page that the system does not map is refused. The system may require privileges for registers, or may not know
//! those of another device. Then the NIC's agent polls the doorbells, which takes longer, and nothing else changes.
//!
//! A mapped page does not guarantee that stores arrive: switches and IOMMUs between the two devices may drop them. Then
//! an operation that was rung for does not begin, and the NIC's agent finds that out. On such machines, set [`STRIKES`]
//! to `no`.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fmt::Display;
use std::ptr::NonNull;
use std::sync::Mutex;

use tidegate_hal::device::DeviceError;
use tidegate_hal::lock;
use tidegate_hal::nic::Keep;

pub(crate) const MAPPING: &str = "mapping a register of a NIC";

/// The environment variable that says whether streams store to registers of NICs: `no`, or `auto` (the default), which
/// means wherever the driver maps them.
pub const STRIKES: &str = "TIDEGATE_GPU_STRIKES";

/// Whether streams store to registers of NICs, by the variable's value. A value that cannot be read counts as not set.
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
pub(crate) struct Registers(pub(crate) Mutex<Pages>);

/// The pages, by their first addresses.
#[derive(Default)]
pub(crate) struct Pages(pub(crate) BTreeMap<usize, Page>);

pub(crate) struct Page {
    pub(crate) base: NonNull<c_void>,
    /// The page's address on the GPU.
    pub(crate) device: u64,
    /// How many registers of the page are mapped.
    pub(crate) users: usize,
    /// A thread is ending the registration, and does not hold the lock.
    pub(crate) going: bool,
    /// Keeps the page mapped in the process.
    pub(crate) _keep: Keep,
}

// SAFETY: the pointer is only given to the driver, by one thread at a time.
unsafe impl Send for Page {}

impl Page {
    fn is_unused(&self) -> bool {
        self.users == 0 && !self.going
    }
}

impl Pages {
    /// Adds a user to a page, if it is registered, and returns its address on the GPU. Fails while the registration is
    /// being ended.
    pub(crate) fn join(&mut self, first: usize) -> Result<Option<u64>, DeviceError> {
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
    /// Removes a user of a page. Returns whether it was the last.
    pub(crate) fn leave(&self, first: usize) -> bool {
        match lock(&self.0).0.get_mut(&first) {
            Some(page) => {
                page.users -= 1;
                page.users == 0
            }
            None => false,
        }
    }

    pub(crate) fn has_unused(&self) -> bool {
        lock(&self.0).0.values().any(Page::is_unused)
    }

    /// Ends the registrations that nobody uses any more. `end` is called for each, under no lock, since it may block
    /// behind a wait. Until it returns, nobody else can use the page, which stays mapped.
    pub(crate) fn take_back<E: Display>(&self, end: impl Fn(NonNull<c_void>) -> Result<(), E>) {
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
            // Otherwise the page is dropped here, under no lock, because that may call a NIC.
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn the_variable_is_read() {
        for (value, means) in [
            (None, true),
            (Some("auto"), true),
            (Some("no"), false),
            (Some(" no\n"), false),
            // The value is not understood, which is reported.
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

    /// One page, with one user.
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
        // The caller that removes the last user is told, and sweeps.
        assert!(!registers.leave(AT));
        registers.take_back(|_| -> Result<(), &str> { panic!("it has a user") });
        assert!(registers.leave(AT));
        // The registration has not been ended, so it can be used again.
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
            // Another thread does this while the driver blocks.
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
