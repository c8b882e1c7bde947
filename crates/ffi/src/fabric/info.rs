//! Descriptions of a provider's offers.

use std::ffi::{CStr, c_char};
use std::ptr::NonNull;

use super::error::{FabricError, Result};
use super::flags::{Caps, Mode, MrMode, Order};
use super::load::Library;
use super::sys::{self, fi_info};

/// An offer of a provider (`fi_info`): one way to reach one network, with its limits. A fabric, a domain and endpoints
/// are opened from one.
///
/// The value is a copy, and does not change.
pub struct Info {
    raw: NonNull<fi_info>,
    library: Library,
}

// SAFETY: the description is owned by this value alone, and after it was made nobody writes it; the library keeps no
// thread's state about it.
unsafe impl Send for Info {}
// SAFETY: as above: shared references only read it. (The calls that take it as a mutable pointer do not write what
// belongs to the user.)
unsafe impl Sync for Info {}

/// Which thread makes operations progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// The provider's own threads, or its hardware.
    Auto,
    /// A thread that reads queues and counters, or waits for them. Without one, there is no progress.
    Manual,
    /// Something else, or unspecified.
    Other(u32),
}

impl Progress {
    fn from_raw(raw: u32) -> Self {
        match raw {
            sys::FI_PROGRESS_AUTO => Progress::Auto,
            sys::FI_PROGRESS_MANUAL => Progress::Manual,
            other => Progress::Other(other),
        }
    }
}

/// The format of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct AddressFormat(pub u32);

impl AddressFormat {
    /// Unspecified.
    pub const UNSPEC: Self = AddressFormat(sys::FI_FORMAT_UNSPEC);
    /// `struct sockaddr`, of any family.
    pub const SOCKADDR: Self = AddressFormat(sys::FI_SOCKADDR);
    /// `struct sockaddr_in`.
    pub const SOCKADDR_IN: Self = AddressFormat(sys::FI_SOCKADDR_IN);
    /// `struct sockaddr_in6`.
    pub const SOCKADDR_IN6: Self = AddressFormat(sys::FI_SOCKADDR_IN6);
    /// A string that ends with a NUL.
    pub const STR: Self = AddressFormat(sys::FI_ADDR_STR);
    /// The format of the cxi provider.
    pub const CXI: Self = AddressFormat(sys::FI_ADDR_CXI);
}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: the description is from `fi_dupinfo`, this value's own, and not used again.
        unsafe { (self.library.functions().freeinfo)(self.raw.as_ptr()) };
    }
}

impl Clone for Info {
    fn clone(&self) -> Self {
        // SAFETY: the description lives as long as `self`. It is complete, and so its copy is.
        unsafe { Info::copy_of(&self.library, self.raw.as_ptr()) }
            .expect("there is memory for a description, and a copy has all parts")
    }
}

impl Info {
    /// Copies one description, without those that it is chained to.
    ///
    /// # Safety
    ///
    /// `raw` is a description of this library.
    pub(crate) unsafe fn copy_of(library: &Library, raw: *const fi_info) -> Result<Info> {
        // SAFETY: the caller vouches for the description.
        let copy = unsafe { (library.functions().dupinfo)(raw) };
        let raw = NonNull::new(copy)
            .ok_or_else(|| FabricError::unexpected("fi_dupinfo", "no memory for a copy"))?;
        let info = Info {
            raw,
            library: library.clone(),
        };
        let own = info.raw();
        if own.tx_attr.is_null()
            || own.rx_attr.is_null()
            || own.ep_attr.is_null()
            || own.domain_attr.is_null()
            || own.fabric_attr.is_null()
        {
            return Err(FabricError::unexpected(
                "fi_getinfo",
                "a description without all its parts",
            ));
        }
        Ok(info)
    }

    /// The structure.
    pub fn raw(&self) -> &fi_info {
        // SAFETY: it lives as long as this value, and nobody writes it.
        unsafe { self.raw.as_ref() }
    }

    /// For calls that take it as a mutable pointer.
    pub(crate) fn as_ptr(&self) -> *mut fi_info {
        self.raw.as_ptr()
    }

    /// The library that it came from.
    pub fn library(&self) -> &Library {
        &self.library
    }

    /// The endpoint's part.
    pub fn ep_attr(&self) -> &sys::fi_ep_attr {
        // SAFETY: `copy_of` saw that it is there; it lives as long as this value.
        unsafe { &*self.raw().ep_attr }
    }

    /// The transmitting part.
    pub fn tx_attr(&self) -> &sys::fi_tx_attr {
        // SAFETY: as for `ep_attr`.
        unsafe { &*self.raw().tx_attr }
    }

    /// The receiving part.
    pub fn rx_attr(&self) -> &sys::fi_rx_attr {
        // SAFETY: as for `ep_attr`.
        unsafe { &*self.raw().rx_attr }
    }

    /// The domain's part.
    pub fn domain_attr(&self) -> &sys::fi_domain_attr {
        // SAFETY: as for `ep_attr`.
        unsafe { &*self.raw().domain_attr }
    }

    /// The fabric's part.
    pub fn fabric_attr(&self) -> &sys::fi_fabric_attr {
        // SAFETY: as for `ep_attr`.
        unsafe { &*self.raw().fabric_attr }
    }

    /// The provider, `;` between its layers: `tcp;ofi_rxm`.
    pub fn provider(&self) -> String {
        text(self.fabric_attr().prov_name)
    }

    /// The fabric: a network.
    pub fn fabric(&self) -> String {
        text(self.fabric_attr().name)
    }

    /// The domain: an interface.
    pub fn domain(&self) -> String {
        text(self.domain_attr().name)
    }

    /// Its abilities.
    pub fn caps(&self) -> Caps {
        Caps(self.raw().caps)
    }

    /// Its demands on each operation.
    pub fn mode(&self) -> Mode {
        Mode(self.raw().mode)
    }

    /// Its demands on registered memory.
    pub fn mr_mode(&self) -> MrMode {
        MrMode(self.domain_attr().mr_mode)
    }

    /// Which thread makes data transfers progress.
    pub fn data_progress(&self) -> Progress {
        Progress::from_raw(self.domain_attr().data_progress)
    }

    /// Which thread makes everything else progress.
    pub fn control_progress(&self) -> Progress {
        Progress::from_raw(self.domain_attr().control_progress)
    }

    /// The most bytes that can be injected.
    pub fn inject_size(&self) -> usize {
        self.tx_attr().inject_size
    }

    /// The most bytes that one operation can move.
    pub fn max_msg_size(&self) -> usize {
        self.ep_attr().max_msg_size
    }

    /// Up to how many bytes an operation keeps [`Order::WAW`].
    pub fn max_order_waw_size(&self) -> usize {
        self.ep_attr().max_order_waw_size
    }

    /// The order of what this end transmits.
    pub fn tx_order(&self) -> Order {
        Order(self.tx_attr().msg_order)
    }

    /// The most operations in progress.
    pub fn tx_size(&self) -> usize {
        self.tx_attr().size
    }

    /// The most bytes of completion data that an operation can carry; 0 for none.
    pub fn cq_data_size(&self) -> usize {
        self.domain_attr().cq_data_size
    }

    /// How many bytes a key has.
    pub fn key_size(&self) -> usize {
        self.domain_attr().mr_key_size
    }

    /// The format of its addresses.
    pub fn address_format(&self) -> AddressFormat {
        AddressFormat(self.raw().addr_format)
    }
}

impl std::fmt::Debug for Info {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Info")
            .field("provider", &self.provider())
            .field("fabric", &self.fabric())
            .field("domain", &self.domain())
            .field("caps", &self.caps())
            .field("mode", &self.mode())
            .field("mr_mode", &self.mr_mode())
            .field("tx_order", &self.tx_order())
            .field("progress", &self.data_progress())
            .field("inject_size", &self.inject_size())
            .finish_non_exhaustive()
    }
}

/// A string of the library; empty if there is none.
fn text(raw: *const c_char) -> String {
    if raw.is_null() {
        return String::new();
    }
    // SAFETY: where the library has a name, it is a string that ends with a NUL, and lives as long as the description.
    unsafe { CStr::from_ptr(raw) }
        .to_string_lossy()
        .into_owned()
}
