//! Asking for providers.

use std::ffi::CString;
use std::ptr::{null, null_mut};

use super::error::{FabricError, Result};
use super::flags::{Caps, Mode, MrMode, OpFlags, Order};
use super::info::{AddressFormat, Info};
use super::load::{API_VERSION, Library, c_string};
use super::sys::{self, Zeroed};

/// A request for providers (`fi_getinfo(3)`, hints). The provider chooses everything that is not set.
///
/// Every request is for domains that any thread may use (`FI_THREAD_SAFE`), because others could not be shared.
#[derive(Debug, Clone, Default)]
pub struct Hints {
    provider: Option<String>,
    fabric: Option<String>,
    domain: Option<String>,
    caps: Caps,
    mode: Mode,
    mr_mode: Option<MrMode>,
    order: Order,
    op_flags: OpFlags,
    address_format: Option<AddressFormat>,
    manual_progress: Option<bool>,
    ordered_up_to: usize,
}

impl Hints {
    /// Makes a request without conditions, for endpoints that need no connection (`FI_EP_RDM`).
    ///
    /// Providers may make all demands on registered memory that this crate can meet: see [`mr_mode`](Self::mr_mode).
    pub fn new() -> Self {
        Hints::default()
    }

    /// Only this provider, with `;` between its layers: `tcp;ofi_rxm`.
    #[must_use]
    pub fn provider(mut self, name: &str) -> Self {
        self.provider = Some(name.to_owned());
        self
    }

    /// Only this fabric.
    #[must_use]
    pub fn fabric(mut self, name: &str) -> Self {
        self.fabric = Some(name.to_owned());
        self
    }

    /// Only this domain.
    #[must_use]
    pub fn domain(mut self, name: &str) -> Self {
        self.domain = Some(name.to_owned());
        self
    }

    /// Only providers with these abilities. They may have more.
    #[must_use]
    pub fn caps(mut self, caps: Caps) -> Self {
        self.caps = caps;
        self
    }

    /// The demands on each operation that the caller meets. Without [`Mode::CONTEXT`] and [`Mode::CONTEXT2`], a context
    /// is only a number.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// The demands on registered memory that the caller meets. By default, everything but [`MrMode::MMU_NOTIFY`].
    #[must_use]
    pub fn mr_mode(mut self, mode: MrMode) -> Self {
        self.mr_mode = Some(mode);
        self
    }

    /// The order that operations must keep.
    #[must_use]
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// The default flags of operations that have none of their own.
    #[must_use]
    pub fn op_flags(mut self, flags: OpFlags) -> Self {
        self.op_flags = flags;
        self
    }

    /// Only with addresses of this format.
    #[must_use]
    pub fn address_format(mut self, format: AddressFormat) -> Self {
        self.address_format = Some(format);
        self
    }

    /// Only with manual (or automatic) progress of data.
    #[must_use]
    pub fn manual_progress(mut self, manual: bool) -> Self {
        self.manual_progress = Some(manual);
        self
    }

    /// [`Order::WAW`] must hold for operations of up to `bytes` bytes.
    #[must_use]
    pub fn ordered_up_to(mut self, bytes: usize) -> Self {
        self.ordered_up_to = bytes;
        self
    }
}

/// Where to look.
#[derive(Debug, Clone, Copy, Default)]
pub struct Location<'a> {
    /// The name or address of a node. It is this node if `local` is set.
    pub node: Option<&'a str>,
    /// A service or port.
    pub service: Option<&'a str>,
    /// Whether the two name this end (`FI_SOURCE`) or the one to be reached.
    pub local: bool,
}

impl<'a> Location<'a> {
    /// Anywhere.
    pub const ANY: Location<'static> = Location {
        node: None,
        service: None,
        local: false,
    };

    /// This end, at this address.
    pub fn local(node: &'a str) -> Self {
        Location {
            node: Some(node),
            service: None,
            local: true,
        }
    }
}

impl Library {
    /// The offers that fit the request, best first (`fi_getinfo`). The first call starts the library, which reads its
    /// environment.
    ///
    /// # Errors
    ///
    /// [`is_no_data`](FabricError::is_no_data) if nothing fits.
    pub fn query(&self, hints: &Hints, place: Location<'_>) -> Result<Vec<Info>> {
        const CALL: &str = "fi_getinfo";
        let owned = |text: Option<&str>| -> Result<Option<CString>> {
            text.map(|text| {
                c_string(text)
                    .ok_or_else(|| FabricError::refused(CALL, format!("{text:?} has a NUL in it")))
            })
            .transpose()
        };
        // These strings live until the call is over. The library copies what it wants to keep, and does not write
        // hints.
        let (provider, fabric, domain) = (
            owned(hints.provider.as_deref())?,
            owned(hints.fabric.as_deref())?,
            owned(hints.domain.as_deref())?,
        );
        let (node, service) = (owned(place.node)?, owned(place.service)?);
        let mutable = |text: &Option<CString>| {
            text.as_ref()
                .map_or(null_mut(), |text| text.as_ptr().cast_mut())
        };
        let pointer = |text: &Option<CString>| text.as_ref().map_or(null(), |text| text.as_ptr());

        let mut tx = sys::fi_tx_attr::zeroed();
        tx.msg_order = hints.order.0;
        tx.op_flags = hints.op_flags.0;
        let mut rx = sys::fi_rx_attr::zeroed();
        rx.msg_order = hints.order.0;
        let mut ep = sys::fi_ep_attr::zeroed();
        ep.type_ = sys::FI_EP_RDM;
        ep.max_order_waw_size = hints.ordered_up_to;
        let mut domain_attr = sys::fi_domain_attr::zeroed();
        domain_attr.name = mutable(&domain);
        domain_attr.threading = sys::FI_THREAD_SAFE;
        domain_attr.mr_mode = hints.mr_mode.unwrap_or(ALL_MODES).0;
        domain_attr.data_progress = match hints.manual_progress {
            None => sys::FI_PROGRESS_UNSPEC,
            Some(true) => sys::FI_PROGRESS_MANUAL,
            Some(false) => sys::FI_PROGRESS_AUTO,
        };
        let mut fabric_attr = sys::fi_fabric_attr::zeroed();
        fabric_attr.name = mutable(&fabric);
        fabric_attr.prov_name = mutable(&provider);
        let mut raw = sys::fi_info::zeroed();
        raw.caps = hints.caps.0;
        raw.mode = hints.mode.0;
        raw.addr_format = hints.address_format.unwrap_or(AddressFormat::UNSPEC).0;
        raw.tx_attr = &mut tx;
        raw.rx_attr = &mut rx;
        raw.ep_attr = &mut ep;
        raw.domain_attr = &mut domain_attr;
        raw.fabric_attr = &mut fabric_attr;

        let flags = if place.local { sys::FI_SOURCE } else { 0 };
        let mut found = null_mut();
        // SAFETY: the strings are null or end with a NUL; the hints and their parts live, with the layout that this
        // version of the function takes; one pointer is written into a live variable.
        let answer = unsafe {
            (self.functions().getinfo)(
                API_VERSION,
                pointer(&node),
                pointer(&service),
                flags,
                &raw,
                &mut found,
            )
        };
        self.check(CALL, answer.into())?;
        let mut infos = Ok(Vec::new());
        let mut next: *const sys::fi_info = found;
        while !next.is_null() {
            // SAFETY: the list lives until it is freed, below.
            let copy = unsafe { Info::copy_of(self, next) };
            match (&mut infos, copy) {
                (Ok(infos), Ok(copy)) => infos.push(copy),
                (Ok(_), Err(error)) => infos = Err(error),
                (Err(_), _) => {}
            }
            // SAFETY: as above.
            next = unsafe { (*next).next };
        }
        if !found.is_null() {
            // SAFETY: the list is from `fi_getinfo`, and not used again.
            unsafe { (self.functions().freeinfo)(found) };
        }
        infos
    }
}

/// The demands on registered memory that this crate can meet.
const ALL_MODES: MrMode = MrMode(
    sys::FI_MR_LOCAL
        | sys::FI_MR_RAW
        | sys::FI_MR_VIRT_ADDR
        | sys::FI_MR_ALLOCATED
        | sys::FI_MR_PROV_KEY
        | sys::FI_MR_RMA_EVENT
        | sys::FI_MR_ENDPOINT
        | sys::FI_MR_HMEM,
);
