//! Fabrics and domains: a network, and an interface to it.

use std::ptr::null_mut;
use std::sync::Arc;

use super::error::{FabricError, Result};
use super::info::Info;
use super::load::Library;
use super::object::{Owned, required};
use super::sys;

/// A network (`fi_fabric(3)`).
pub struct Fabric {
    raw: Owned<sys::fid_fabric>,
}

impl Fabric {
    /// Opens the fabric of a description (`fi_fabric`).
    ///
    /// # Errors
    ///
    /// The errors of the provider.
    pub fn open(info: &Info) -> Result<Arc<Fabric>> {
        const CALL: &str = "fi_fabric";
        let library = info.library();
        let mut raw = null_mut();
        // SAFETY: the attributes live as long as the description, and are only read; one pointer is written into a live
        // variable.
        let answer =
            unsafe { (library.functions().fabric)(info.raw().fabric_attr, &mut raw, null_mut()) };
        library.check(CALL, answer.into())?;
        // SAFETY: the library made it for this caller.
        let raw = unsafe { Owned::new(library, CALL, raw) }?;
        Ok(Arc::new(Fabric { raw }))
    }
}

/// An interface to a network (`fi_domain(3)`). Everything that is made in it keeps it alive.
///
/// Any thread may use it at any time (`FI_THREAD_SAFE`), and everything in it, too. Providers pay for that with locks,
/// which are uncontended if one thread does the work. To leave the locking to the user (`FI_THREAD_DOMAIN`) would save
/// little, and every call would need an `unsafe` contract about threads.
pub struct Domain {
    raw: Owned<sys::fid_domain>,
    // After `raw`: fields are dropped in this order.
    info: Info,
    _fabric: Arc<Fabric>,
}

impl Domain {
    /// Opens the domain of a description (`fi_domain`), which is of the same fabric.
    ///
    /// # Errors
    ///
    /// [`is_refused`](FabricError::is_refused) if the description is not of the kind that any thread can use.
    pub fn open(fabric: &Arc<Fabric>, info: &Info) -> Result<Arc<Domain>> {
        const CALL: &str = "fi_domain";
        if info.domain_attr().threading != sys::FI_THREAD_SAFE {
            return Err(FabricError::refused(
                CALL,
                "the description is not FI_THREAD_SAFE",
            ));
        }
        // The provider may look at the description for as long as the domain lives.
        let info = info.clone();
        let object = fabric.raw.as_ptr();
        // SAFETY: the object is alive, and its table lives as long.
        let open = unsafe { required!((*object).ops, fi_ops_fabric, domain, CALL) }?;
        let mut raw = null_mut();
        // SAFETY: the fabric is alive, the description is complete, and one pointer is written into a live variable.
        let answer = unsafe { open(object, info.as_ptr(), &mut raw, null_mut()) };
        fabric.raw.library().check(CALL, answer.into())?;
        // SAFETY: the library made it for this caller.
        let raw = unsafe { Owned::new(fabric.raw.library(), CALL, raw) }?;
        Ok(Arc::new(Domain {
            raw,
            info,
            _fabric: Arc::clone(fabric),
        }))
    }

    /// The description with which it was opened.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// The library.
    pub fn library(&self) -> &Library {
        self.raw.library()
    }

    /// The structure, for calls that this crate does not wrap. It lives as long as this value.
    pub fn as_raw(&self) -> *mut sys::fid_domain {
        self.raw.as_ptr()
    }

    pub(crate) fn object(&self) -> &Owned<sys::fid_domain> {
        &self.raw
    }

    /// The table of the domain's operations.
    pub(crate) fn ops(&self) -> *const sys::fi_ops_domain {
        // SAFETY: the object lives as long as this value.
        unsafe { (*self.raw.as_ptr()).ops }
    }
}

impl std::fmt::Debug for Domain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Domain")
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}
