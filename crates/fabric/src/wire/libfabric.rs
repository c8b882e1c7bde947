//! libfabric, as a wire.
//!
//! # Model
//!
//! One endpoint, one completion queue. A write goes by `fi_writemsg` with `FI_DELIVERY_COMPLETE`, and a notice goes with it as `FI_REMOTE_CQ_DATA`: the entry in the target's queue
//! comes when the data is there, and not at all if the write failed (fi_cq(3), fi_rma(3)); the origin's completion comes when it is delivered. Without that flag some providers
//! report writes complete that the target has refused (`tcp;ofi_rxm` with a wrong key), so nothing goes without it. A notice without data writes 8 bytes to the peer's *pad*, memory that each endpoint has for that.
//!
//! Progress is made by whoever polls. Between polls the agent sleeps in `fi_cq_sread`, where the provider can; elsewhere it looks again after a short sleep.
//!
//! # Failure
//!
//! [`OpenError`] says what was missing: the library, or a provider that writes, reads, and carries 8 bytes with a write.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_ffi::fabric::{
    Access, AddressVector, Caps, Completion, CompletionQueue, CqError, Desc, Domain, Endpoint,
    EndpointBuilder, Fabric, FabricError, Hints, Info, Library, LoadError, Local, MemoryRegion,
    Message, MrMode, OpFlags, Peer, Piece, Place, Post, RegionKey, RegisterOptions, RemoteRegion,
    Reported, WaitObject,
};
use tidegate_hal::nic::{Keep, NicError};

use super::{Event, Limits, Op, Posted, Sleeper, Wire};
use crate::lock;

/// How many operations are under way at a time, if the provider has no smaller number.
const DEPTH: usize = 256;
/// The most bytes of an operation: a rank that leaves takes an endpoint for dead on which nothing happens for long.
const MOST: usize = 16 << 20;
/// How many entries are taken from the queue at a time.
const ENTRIES: usize = 32;
/// How often the agent looks where it cannot sleep on the queue.
const LOOK: Duration = Duration::from_micros(200);
/// Providers whose `fi_cq_sread` takes the whole processor where progress is manual (`sock_cq_sreadfrom` polls until its time is over): they make it with a thread of their own.
const SPINS: [&str; 1] = ["sockets"];
/// Bytes of a pad.
const PAD: usize = 8;

/// Why there is no endpoint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no usable library.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// No provider has what is needed.
    #[error(
        "no libfabric provider{} at {address} has what is needed: reliable datagrams, writes, reads, and 8 bytes that go with a write",
        .provider.as_ref().map(|name| format!(" `{name}`")).unwrap_or_default()
    )]
    NoProvider {
        /// The one that was asked for.
        provider: Option<String>,
        /// The address that it was to be bound to.
        address: String,
    },
    /// A call was refused.
    #[error(transparent)]
    Fabric(#[from] FabricError),
}

/// Which provider, and where.
#[derive(Clone, Debug)]
pub struct Choice {
    provider: Option<String>,
    address: String,
}

impl Choice {
    /// The best provider that can be bound to this address of the host (`127.0.0.1`, say).
    pub fn at(address: impl Into<String>) -> Self {
        Choice {
            provider: None,
            address: address.into(),
        }
    }

    /// This provider (`tcp;ofi_rxm`, `sockets`, `verbs;ofi_rxm`).
    #[must_use]
    pub fn provider(mut self, name: impl Into<String>) -> Self {
        self.provider = Some(name.into());
        self
    }
}

/// What a peer needs to find an endpoint.
#[derive(Serialize, Deserialize)]
struct Address {
    name: Vec<u8>,
    pad: Key,
}

#[derive(Serialize, Deserialize)]
struct Key {
    base: u64,
    key: Vec<u8>,
}

impl From<RegionKey> for Key {
    fn from(key: RegionKey) -> Self {
        Key {
            base: key.base,
            key: key.key,
        }
    }
}

impl From<Key> for RegionKey {
    fn from(key: Key) -> Self {
        RegionKey {
            base: key.base,
            key: key.key,
        }
    }
}

/// An endpoint of libfabric.
pub struct FabricWire {
    // The endpoint goes first: with it ends all that is under way.
    endpoint: Arc<Endpoint>,
    vector: Arc<AddressVector>,
    bed: Arc<Bed>,
    domain: Arc<Domain>,
    limits: Limits,
    provider: String,
    address: Vec<u8>,
    peers: Vec<Option<(Peer, RemoteRegion)>>,
    /// Where peers' notices without data go.
    _pad: MemoryRegion,
    /// 8 bytes that notices without data send.
    bytes: Box<Pad>,
    under_way: usize,
}

struct Pad([std::sync::atomic::AtomicU64; 1]);

impl Pad {
    fn at(&self) -> *mut c_void {
        self.0.as_ptr().cast_mut().cast()
    }
}

/// A peer's registered memory.
pub struct Remote {
    region: RemoteRegion,
}

/// The queue, and what was taken from it in sleep.
struct Bed {
    queue: Arc<CompletionQueue>,
    /// Whether `fi_cq_sread` and `fi_cq_signal` work.
    waits: bool,
    taken: Mutex<VecDeque<Result<Completion, CqError>>>,
    awake: Mutex<bool>,
    rung: Condvar,
}

impl Sleeper for Arc<Bed> {
    fn sleep(&self, limit: Duration) {
        if self.waits {
            if std::mem::take(&mut *lock(&self.awake)) {
                return;
            }
            let mut one = [Completion::default()];
            let taken = match self.queue.wait(&mut one, limit) {
                Ok(0) => None,
                Ok(_) => Some(Ok(one[0])),
                Err(error) => Some(Err(error)),
            };
            lock(&self.taken).extend(taken);
            *lock(&self.awake) = false;
            return;
        }
        let awake = lock(&self.awake);
        let (mut awake, _) = self
            .rung
            .wait_timeout_while(awake, limit.min(LOOK), |awake| !*awake)
            .unwrap_or_else(PoisonError::into_inner);
        *awake = false;
    }

    fn wake(&self) {
        *lock(&self.awake) = true;
        if self.waits {
            // A signal that nobody waits for is kept by the queue.
            let _ = self.queue.signal();
        } else {
            self.rung.notify_all();
        }
    }
}

fn system(what: &'static str) -> impl Fn(FabricError) -> NicError {
    move |error| NicError::System {
        what,
        detail: error.to_string(),
    }
}

impl FabricWire {
    /// Opens an endpoint. The library is looked for at run time.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    pub fn open(choice: &Choice) -> Result<Self, OpenError> {
        let library = Library::load()?;
        let info = choose(&library, choice)?;
        let fabric = Fabric::open(&info)?;
        let domain = Domain::open(&fabric, &info)?;
        let vector = AddressVector::open(&domain, 64)?;
        let (queue, waits) = match CompletionQueue::open(&domain, 0, WaitObject::UNSPEC) {
            Ok(queue) => {
                let waits = queue.signal().is_ok();
                (queue, waits)
            }
            Err(_) => (CompletionQueue::open(&domain, 0, WaitObject::NONE)?, false),
        };
        let endpoint = EndpointBuilder::new(&domain)?
            .vector(&vector)?
            .queue(&queue, Reported::TRANSMIT | Reported::RECV)?
            .enable()?;
        let options = RegisterOptions {
            access: access(),
            endpoint: Some(&endpoint),
            ..Default::default()
        };
        let here = Arc::new(Pad(Default::default()));
        // SAFETY: the pad lives as long as it is shared with the registration; it is atomic, and nobody reads what peers write there.
        let pad = unsafe { MemoryRegion::host(&domain, here.at(), PAD, &options, here.clone()) }?;
        let address = Address {
            name: endpoint.name()?,
            pad: pad.export()?.into(),
        };
        Ok(FabricWire {
            limits: Limits {
                bytes: info.max_msg_size().clamp(8, MOST),
                depth: info.tx_size().clamp(1, DEPTH),
            },
            provider: info.provider(),
            address: postcard::to_stdvec(&address).expect("plain data can be encoded"),
            bed: Arc::new(Bed {
                queue,
                waits,
                taken: Mutex::default(),
                awake: Mutex::new(false),
                rung: Condvar::new(),
            }),
            endpoint,
            vector,
            domain,
            peers: Vec::new(),
            _pad: pad,
            bytes: Box::new(Pad(Default::default())),
            under_way: 0,
        })
    }

    /// The provider that was chosen.
    pub fn provider(&self) -> &str {
        &self.provider
    }

    fn event(&mut self, taken: Result<Completion, CqError>) -> Result<Option<Event>, NicError> {
        match taken {
            Ok(completion) => {
                if let Some(notice) = completion.remote_data() {
                    return Ok(Some(Event::Notice(notice)));
                }
                // Some providers report what others write here, too.
                if completion.context == 0 {
                    return Ok(None);
                }
                self.under_way -= 1;
                Ok(Some(Event::Done(completion.context as u64 - 1)))
            }
            Err(CqError::Completion(error)) if error.context != 0 => {
                self.under_way -= 1;
                Ok(Some(Event::Failed(
                    error.context as u64 - 1,
                    error.to_string(),
                )))
            }
            Err(CqError::Completion(error)) => {
                tracing::warn!("{}: {error}", self.provider);
                Ok(None)
            }
            Err(CqError::Queue(error)) => Err(system("reading the completion queue")(error)),
        }
    }
}

/// What peers may do with registered memory, and what is done with it here.
fn access() -> Access {
    Access::SOURCE | Access::SINK | Access::REMOTE_READ | Access::REMOTE_WRITE
}

/// The first provider that will do.
fn choose(library: &Library, choice: &Choice) -> Result<Info, OpenError> {
    // Neither memory that belongs to the endpoint, which would keep it open, nor local buffers that must be registered.
    let modes = MrMode::VIRT_ADDR | MrMode::ALLOCATED | MrMode::PROV_KEY;
    let base = Hints::new().mr_mode(modes).caps(Caps::RMA | Caps::MSG);
    let query = |manual| {
        let mut hints = base.clone().manual_progress(manual);
        if let Some(provider) = &choice.provider {
            hints = hints.provider(provider);
        }
        let found = match library.query(&hints, Place::local(&choice.address)) {
            // Shared memory and some NICs have no such address.
            Err(error) if error.is_no_data() => library.query(&hints, Place::ANY),
            other => other,
        };
        match found {
            Err(error) if error.is_no_data() => Ok(Vec::new()),
            other => other,
        }
    };
    let will_do = |info: &Info| {
        // `shm` is for processes of a node, which are mapped; and its endpoints of one process disturb each other.
        let named = choice.provider.is_some();
        info.cq_data_size() >= 8
            && (named || !["shm", "udp;ofi_rxd", "net"].contains(&&*info.provider()))
    };
    let mut found = query(true)?.into_iter().find(will_do);
    if found
        .as_ref()
        .is_some_and(|info| SPINS.contains(&&*info.provider()))
    {
        found = query(false)?.into_iter().find(will_do);
    }
    found.ok_or_else(|| OpenError::NoProvider {
        provider: choice.provider.clone(),
        address: choice.address.clone(),
    })
}

// SAFETY: operations are posted to the one endpoint; their completions are delivery-complete, so an event comes when neither end is accessed for it any more. A dropped endpoint is closed, after
// which the provider accesses nothing. Registrations keep what they were given.
unsafe impl Wire for FabricWire {
    type Remote = Remote;

    fn name(&self) -> &'static str {
        "libfabric"
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn address(&self) -> Vec<u8> {
        self.address.clone()
    }

    fn connect(&mut self, addresses: &[Vec<u8>]) -> Result<(), NicError> {
        self.peers = addresses
            .iter()
            .enumerate()
            .map(|(rank, bytes)| -> Result<_, NicError> {
                if bytes.is_empty() {
                    return Ok(None);
                }
                let bad =
                    |why: String| NicError::BadKey(format!("the address of rank {rank}: {why}"));
                let address: Address =
                    postcard::from_bytes(bytes).map_err(|e| bad(e.to_string()))?;
                let peers = self
                    .vector
                    .insert(&[&address.name])
                    .map_err(|e| bad(e.to_string()))?;
                let pad = self
                    .domain
                    .import(&address.pad.into())
                    .map_err(|e| bad(e.to_string()))?;
                Ok(Some((peers[0], pad)))
            })
            .collect::<Result<_, _>>()?;
        Ok(())
    }

    unsafe fn register(
        &mut self,
        base: *mut u8,
        bytes: usize,
        keep: Keep,
    ) -> Result<(Vec<u8>, Keep), NicError> {
        let options = RegisterOptions {
            access: access(),
            endpoint: Some(&self.endpoint),
            ..Default::default()
        };
        // SAFETY: the caller's promise.
        let region =
            unsafe { MemoryRegion::host(&self.domain, base.cast(), bytes, &options, keep) }
                .map_err(system("registering memory"))?;
        let key: Key = region.export().map_err(system("exporting a key"))?.into();
        let key = postcard::to_stdvec(&key).expect("plain data can be encoded");
        Ok((key, Arc::new(region)))
    }

    fn import(&mut self, peer: usize, key: &[u8], _bytes: usize) -> Result<Remote, NicError> {
        let bad = |why: String| NicError::BadKey(format!("the key of rank {peer}: {why}"));
        let key: Key = postcard::from_bytes(key).map_err(|e| bad(e.to_string()))?;
        let region = self
            .domain
            .import(&key.into())
            .map_err(|e| bad(e.to_string()))?;
        Ok(Remote { region })
    }

    unsafe fn post(
        &mut self,
        peer: usize,
        op: Op<'_, Self>,
        cookie: u64,
    ) -> Result<Posted, NicError> {
        if self.under_way >= self.limits.depth {
            return Ok(Posted::Full);
        }
        let Some((to, pad)) = self.peers.get(peer).and_then(Option::as_ref) else {
            return Err(NicError::BadKey(format!("rank {peer} has no endpoint")));
        };
        let local = |address: *mut u8, len| Local {
            address: address.cast(),
            len,
            desc: Desc::NONE,
        };
        let piece = |region: &RemoteRegion, offset: usize, len| Piece {
            address: region.base() + offset as u64,
            len,
            key: region.key(),
        };
        let (here, there, notice, reads) = match op {
            Op::Write {
                from,
                bytes,
                to,
                offset,
                notice,
            } => (
                local(from.cast_mut(), bytes),
                piece(&to.region, offset, bytes),
                notice,
                false,
            ),
            Op::Read {
                to,
                bytes,
                from,
                offset,
            } => (
                local(to, bytes),
                piece(&from.region, offset, bytes),
                None,
                true,
            ),
            Op::Notify(notice) => (
                local(self.bytes.at().cast(), PAD),
                piece(pad, 0, PAD),
                Some(notice),
                false,
            ),
        };
        let mut flags = OpFlags::COMPLETION;
        if !reads {
            flags = flags | OpFlags::DELIVERY_COMPLETE;
        }
        if notice.is_some() {
            flags = flags | OpFlags::REMOTE_CQ_DATA;
        }
        let message = Message {
            local: &[here],
            peer: *to,
            remote: &[there],
            // 0 is what completions of others' operations have.
            context: cookie as usize + 1,
            data: notice.unwrap_or(0),
            flags,
        };
        // SAFETY: the caller's promise for the memory; pads live as long as the wire. The context is a number, which no provider looks behind: the hints offer no mode that would.
        let posted = unsafe {
            if reads {
                self.endpoint.read_msg(&message)
            } else {
                self.endpoint.write_msg(&message)
            }
        };
        match posted.map_err(system("posting an operation"))? {
            Post::Taken => {
                self.under_way += 1;
                Ok(Posted::Taken)
            }
            Post::Again => Ok(Posted::Full),
        }
    }

    fn poll(&mut self, events: &mut Vec<Event>) -> Result<(), NicError> {
        let taken = std::mem::take(&mut *lock(&self.bed.taken));
        for one in taken {
            let event = self.event(one)?;
            events.extend(event);
        }
        let mut entries = [Completion::default(); ENTRIES];
        loop {
            match self.bed.queue.clone().read(&mut entries) {
                Ok(count) => {
                    for entry in &entries[..count] {
                        let event = self.event(Ok(*entry))?;
                        events.extend(event);
                    }
                    if count < ENTRIES {
                        return Ok(());
                    }
                }
                Err(error) => {
                    let event = self.event(Err(error))?;
                    events.extend(event);
                }
            }
        }
    }

    fn may_sleep(&mut self) -> bool {
        lock(&self.bed.taken).is_empty()
    }

    fn sleeper(&self) -> Box<dyn Sleeper> {
        Box::new(self.bed.clone())
    }
}
