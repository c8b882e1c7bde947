//! Endpoints: they start operations, and peers' operations reach them.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex};

use tidegate_hal::lock;

use super::av::{AddressVector, Peer};
use super::counter::Counter;
use super::cq::CompletionQueue;
use super::domain::Domain;
use super::error::{FabricError, Result};
use super::flags::{Counted, Reported};
use super::object::{Keep, Owned, required};
use super::sys;

/// Whether the provider has accepted an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "an operation that was not taken must be posted again"]
pub enum Post {
    /// It has, and the operation will complete.
    Taken,
    /// It has not, because it has no room at the moment (`FI_EAGAIN`). It keeps nothing of the operation. To read the
    /// queues and counters makes room.
    Again,
}

impl Post {
    /// Whether the operation was accepted.
    pub fn is_taken(self) -> bool {
        self == Post::Taken
    }
}

/// The provider's handle of a registration, for operations whose local buffer must be registered
/// ([`MrMode::LOCAL`](super::MrMode::LOCAL)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Desc(pub(crate) *mut c_void);

impl Desc {
    /// No handle, for providers that do not demand one.
    pub const NONE: Desc = Desc(null_mut());
}

// SAFETY: the handle is opaque, and given to the library only, in `unsafe` calls whose contract says that its
// registration lives.
unsafe impl Send for Desc {}
// SAFETY: as above.
unsafe impl Sync for Desc {}

/// Memory of this end.
#[derive(Debug, Clone, Copy)]
pub struct Local {
    /// Its first byte. The memory of a device has the device's address.
    pub address: *mut c_void,
    /// Its length.
    pub len: usize,
    /// Its registration.
    pub desc: Desc,
}

/// Memory of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remote {
    /// The peer that has it.
    pub peer: Peer,
    /// Its address there: [`MemoryRegion::remote_base`](super::MemoryRegion::remote_base), plus an offset.
    pub address: u64,
    /// Its key.
    pub key: u64,
}

/// An endpoint that is not yet enabled. Its queues, counters and peers are bound to it here. (The library wants these
/// calls one after the other; nothing else has the endpoint yet.)
#[derive(Debug)]
pub struct EndpointBuilder(Endpoint);

/// An endpoint, which begins operations, and which operations of peers reach (`fi_endpoint(3)`).
///
/// Everything that it was bound to, or was told to [keep](Self::keep), lives as long as the library has the endpoint.
pub struct Endpoint {
    raw: ManuallyDrop<Owned<sys::fid_ep>>,
    // The values that must outlive the endpoint. They are leaked if the library refuses to close it.
    alive: ManuallyDrop<Alive>,
    pub(crate) inject_size: usize,
}

struct Alive {
    /// This is first, because the memory of operations may name objects of the domain.
    memory: Mutex<Vec<Keep>>,
    vector: Option<Arc<AddressVector>>,
    queues: Vec<Arc<CompletionQueue>>,
    counters: Vec<Arc<Counter>>,
    domain: Arc<Domain>,
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // SAFETY: it is taken once, here.
        let raw = unsafe { ManuallyDrop::take(&mut self.raw) };
        if raw.close_now() {
            // SAFETY: as above. What was posted has ended with the endpoint, and touches no memory any more.
            unsafe { ManuallyDrop::drop(&mut self.alive) };
        }
    }
}

impl EndpointBuilder {
    /// Makes an endpoint in the domain, by the domain's description (`fi_endpoint`).
    ///
    /// # Errors
    ///
    /// The errors of the provider.
    pub fn new(domain: &Arc<Domain>) -> Result<EndpointBuilder> {
        const CALL: &str = "fi_endpoint";
        // SAFETY: the table lives as long as the domain.
        let open = unsafe { required!(domain.ops(), fi_ops_domain, endpoint, CALL) }?;
        let mut raw = null_mut();
        // SAFETY: the domain is alive, and so is its description; one pointer is written into a live variable.
        let answer = unsafe {
            open(
                domain.as_raw(),
                domain.info().as_ptr(),
                &mut raw,
                null_mut(),
            )
        };
        domain.library().check(CALL, answer.into())?;
        // SAFETY: the library made it for this caller.
        let raw = unsafe { Owned::new(domain.library(), CALL, raw) }?;
        Ok(EndpointBuilder(Endpoint {
            raw: ManuallyDrop::new(raw),
            alive: ManuallyDrop::new(Alive {
                memory: Mutex::default(),
                vector: None,
                queues: Vec::new(),
                counters: Vec::new(),
                domain: Arc::clone(domain),
            }),
            inject_size: domain.info().inject_size(),
        }))
    }

    fn same(&self, domain: &Arc<Domain>) -> Result<()> {
        if Arc::ptr_eq(domain, self.0.domain()) {
            Ok(())
        } else {
            Err(FabricError::refused(BIND, "it is of another domain"))
        }
    }

    /// Binds the vector of its peers.
    ///
    /// # Errors
    ///
    /// [`is_refused`](FabricError::is_refused) for a second one, and the errors of the provider.
    pub fn vector(mut self, vector: &Arc<AddressVector>) -> Result<Self> {
        self.same(vector.domain())?;
        if self.0.alive.vector.is_some() {
            return Err(FabricError::refused(BIND, "it has a vector"));
        }
        // Store it before the call, so that the vector lives as long as the endpoint even if the call fails half-way.
        self.0.alive.vector = Some(Arc::clone(vector));
        // SAFETY: the vector is kept as long as the endpoint, which nobody else has yet.
        unsafe { self.0.raw.bind(BIND, vector.object().fid(), 0) }?;
        Ok(self)
    }

    /// Binds the queue for its completions.
    ///
    /// # Errors
    ///
    /// The errors of the provider.
    pub fn queue(mut self, queue: &Arc<CompletionQueue>, what: Reported) -> Result<Self> {
        self.same(queue.domain())?;
        // Store it before the call, so that the queue lives as long as the endpoint even if the call fails half-way.
        self.0.alive.queues.push(Arc::clone(queue));
        // SAFETY: the queue is kept as long as the endpoint, which nobody else has yet.
        unsafe { self.0.raw.bind(BIND, queue.object().fid(), what.0) }?;
        Ok(self)
    }

    /// Binds a counter for its completions.
    ///
    /// # Errors
    ///
    /// The errors of the provider.
    pub fn counter(mut self, counter: &Arc<Counter>, what: Counted) -> Result<Self> {
        self.same(counter.domain())?;
        self.0.alive.counters.push(Arc::clone(counter));
        // SAFETY: the counter is kept as long as the endpoint, which nobody else has yet.
        unsafe { self.0.raw.bind(BIND, counter.object().fid(), what.0) }?;
        Ok(self)
    }

    /// Enables it (`fi_enable`).
    ///
    /// # Errors
    ///
    /// In most cases, something is not bound.
    pub fn enable(self) -> Result<Arc<Endpoint>> {
        // SAFETY: the command takes no argument, and nobody else has the endpoint yet.
        unsafe { self.0.raw.control("fi_enable", sys::FI_ENABLE, null_mut()) }?;
        Ok(Arc::new(self.0))
    }
}

const BIND: &str = "fi_ep_bind";

impl Endpoint {
    /// The domain.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.alive.domain
    }

    /// Keeps a value as long as the library has this endpoint. That is longer than this value lives if others hold it
    /// (registrations, works), and for good if the library refuses to close it. The kept value must not hold this
    /// endpoint: that would be a cycle.
    pub fn keep(&self, memory: Keep) {
        lock(&self.alive.memory).push(memory);
    }

    /// The structure, for calls that this crate does not wrap. It lives as long as this value.
    pub fn as_raw(&self) -> *mut sys::fid_ep {
        self.raw.as_ptr()
    }

    pub(crate) fn object(&self) -> &Owned<sys::fid_ep> {
        &self.raw
    }

    /// The most bytes that it can inject.
    pub fn inject_size(&self) -> usize {
        self.inject_size
    }

    /// Its address, for its peers (`fi_getname`).
    ///
    /// # Errors
    ///
    /// The errors of the provider.
    pub fn name(&self) -> Result<Vec<u8>> {
        const CALL: &str = "fi_getname";
        let object = self.raw.as_ptr();
        // SAFETY: the object is alive, and its table lives as long.
        let getname = unsafe { required!((*object).cm, fi_ops_cm, getname, CALL) }?;
        let mut length = 64;
        // Call it twice: the first call says how much room it needs.
        for _ in 0..2 {
            let mut address = vec![0u8; length];
            // SAFETY: the endpoint is alive; the buffer has room for so many bytes.
            let answer =
                unsafe { getname(self.raw.fid(), address.as_mut_ptr().cast(), &mut length) };
            if answer == -sys::FI_ETOOSMALL {
                continue;
            }
            self.domain().library().check(CALL, answer.into())?;
            address.truncate(length);
            return Ok(address);
        }
        Err(FabricError::unexpected(
            CALL,
            "it never says how much room it wants",
        ))
    }

    /// The number of a peer, if the peer belongs to this endpoint.
    pub(crate) fn number(&self, call: &'static str, peer: Peer) -> Result<sys::fi_addr_t> {
        match &self.alive.vector {
            Some(vector) if vector.id == peer.vector => Ok(peer.number),
            _ => Err(FabricError::refused(
                call,
                "the peer is of a vector that the endpoint is not bound to",
            )),
        }
    }

    /// Whether this many bytes can be injected.
    pub(crate) fn can_inject(&self, call: &'static str, bytes: usize) -> Result<()> {
        if bytes <= self.inject_size {
            return Ok(());
        }
        Err(FabricError {
            call,
            code: sys::FI_EMSGSIZE,
            name: "FI_EMSGSIZE",
            text: format!("{bytes} bytes, where {} can be injected", self.inject_size),
        })
    }

    /// The result of a post.
    pub(crate) fn posted(&self, call: &'static str, answer: isize) -> Result<Post> {
        if answer == 0 {
            Ok(Post::Taken)
        } else if answer == -(sys::FI_EAGAIN as isize) {
            Ok(Post::Again)
        } else {
            Err(self.domain().library().error(call, answer as i64))
        }
    }

    pub(crate) fn rma(&self) -> *const sys::fi_ops_rma {
        // SAFETY: the object lives as long as this value.
        unsafe { (*self.raw.as_ptr()).rma }
    }

    /// Whether it can add to a peer's numbers (`fi_atomicvalid`). Some providers discover at the *target* that they
    /// cannot do an operation, and then end the target's process.
    pub(crate) fn check_adds(&self, call: &'static str) -> Result<()> {
        const ASK: &str = "fi_atomicvalid";
        let object = self.raw.as_ptr();
        // SAFETY: the object is alive, and its table lives as long.
        let valid = unsafe { required!((*object).atomic, fi_ops_atomic, writevalid, ASK) }?;
        let mut count = 0;
        // SAFETY: the endpoint is alive, and one number is written into a live variable.
        let answer = unsafe { valid(object, sys::FI_UINT64, sys::FI_SUM, &mut count) };
        match -answer {
            0 if count > 0 => Ok(()),
            0 | sys::FI_EOPNOTSUPP | sys::FI_EINVAL | sys::FI_ENOSYS => Err(FabricError {
                call,
                code: sys::FI_EOPNOTSUPP,
                name: "FI_EOPNOTSUPP",
                text: "the provider cannot add to a peer's numbers".to_owned(),
            }),
            _ => Err(self.domain().library().error(ASK, answer.into())),
        }
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint")
            .field("provider", &self.domain().info().provider())
            .field("queues", &self.alive.queues)
            .field("counters", &self.alive.counters)
            .finish_non_exhaustive()
    }
}
