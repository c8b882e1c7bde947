//! libfabric as a wire.
//!
//! # Model
//!
//! A wire is one endpoint and one completion queue. A notice travels with a write as `FI_REMOTE_CQ_DATA`. Its entry in
//! the target's queue appears when the data is there, and does not appear if the write failed (fi_cq(3), fi_rma(3)).
//! Such a write completes when its source may be reused. Some providers report it complete although the target has
//! refused it (`tcp;ofi_rxm` with a wrong key), and a connection that is made again has lost what was on its way. The
//! engine notices both, because it reads how much has come. All other writes ask for `FI_DELIVERY_COMPLETE`. A notice
//! without data writes 8 bytes to the peer's *pad*, memory that each endpoint has for this. Over `tcp;ofi_rxm`, the
//! notice of a long write follows its data, because the provider may crash otherwise: see `follow`.
//!
//! A thread that polls makes progress. Between polls the agent sleeps in `fi_cq_sread` if the provider allows it.
//! Otherwise it sleeps briefly and looks again.
//!
//! If the provider has deferred works, and [`Choice::engine`] wants them, queues are chains of deferred works: see
//! [`chain`](super::chain). The wire queues some works to find out whether the provider has them, and how signals can
//! be made. Then the completion queue serves for failures, for notices, and to wake the agent. Counters report
//! completion.
//!
//! # Failure
//!
//! [`OpenError`] says what is missing: the library, or a provider that writes, reads, and carries 8 bytes with a write.

mod bed;
mod chain;
mod choice;
mod error;
mod follow;
mod gate;
mod here;
mod piece;
mod pool;
mod probe;
mod region;

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tidegate_ffi::fabric::{
    AddressVector, Caps, Completion, CompletionQueue, Counted, Counter, CqError, Domain, Endpoint,
    EndpointBuilder, Library, Local, MemoryRegion, Peer, Post, RegisterOptions, RemotePiece,
    RemoteRegion, Reported, WaitObject,
};
use tidegate_hal::nic::{Keep, NicError};
use tidegate_hal::tell;

pub use choice::{Choice, EngineChoice};
pub use error::OpenError;
pub use here::{Here, here};
pub use region::Remote;

use super::chain::{Chain, Signals};
use super::{Event, Limits, Op, Posted, Sleeper, Wire};
use crate::base::{MOST_HANDED, MOST_RAILS};
use crate::strays::Strays;
use bed::{Bed, Entries, Taken};
use chain::{FabricChain, Parts};
use choice::Chosen;
use follow::{Follower, Followers};
use piece::{Kind, local, remote, transfer};
use pool::Pool;
use region::{Key, PAD, Pad, access, system};

/// The most operations in progress at a time, if the provider's limit is not smaller.
const DEPTH: usize = 256;
/// The most bytes of an operation. A leaving rank takes an endpoint on which nothing happens for long as dead, so
/// operations must not be too long. (Those of the software engine are shorter.)
const MOST: usize = 16 << 20;
/// Contexts from here on are addresses of deferred works, and smaller ones are cookies: no process has memory at such
/// low addresses.
const ADDRESSES: usize = 1 << 16;
const _: () = assert!(DEPTH + MOST_RAILS * MOST_HANDED < ADDRESSES / 2);
/// The description by which peers find an endpoint.
#[derive(Serialize, Deserialize)]
struct Address {
    name: Vec<u8>,
    pad: Key,
    /// Whether the endpoint adds to peers' words, and so looks for adds to its own.
    adds: bool,
}

/// An endpoint of libfabric.
///
/// # Examples
///
/// ```
/// # mod tidegate { pub use tidegate_fabric as fabric; }
/// use tidegate::fabric::wire::libfabric::{Choice, FabricWire};
///
/// match FabricWire::open(&Choice::at("127.0.0.1")) {
///     Ok(wire) => drop(wire), // `Fabric::over` makes a NIC of it
///     Err(error) => println!("{error}"),
/// }
/// ```
pub struct FabricWire {
    library: Library,
    choice: Choice,
    // All operations end when the endpoint is closed. Registrations and works hold it, too.
    endpoint: Arc<Endpoint>,
    vector: Arc<AddressVector>,
    bed: Arc<Bed>,
    domain: Arc<Domain>,
    limits: Limits,
    provider: String,
    address: Vec<u8>,
    peers: Vec<Option<(Peer, RemoteRegion)>>,
    /// The memory that peers' notices without data are written to.
    _pad: MemoryRegion,
    /// The 8 bytes that notices without data send.
    bytes: Arc<Pad>,
    /// The notices that follow their data.
    followers: Followers,
    under_way: usize,
    /// Counts the failures of operations that this endpoint has not begun.
    strays: Strays,
    /// A buffer for polls, empty in between.
    taken: Vec<Taken>,
    entries: Box<Entries>,
    /// How chains signal, if there are any.
    signals: Option<Signals>,
    /// The deferred works of this process, if the provider counts them.
    pool: Option<Arc<Pool>>,
    /// The counter of peers' writes to this endpoint, and its value at the last poll.
    written: Option<(Arc<Counter>, u64)>,
}

impl FabricWire {
    /// Opens an endpoint. It looks for the library at run time.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    ///
    /// # Examples
    ///
    /// ```
    /// # mod tidegate { pub use tidegate_fabric as fabric; }
    /// use tidegate::fabric::wire::libfabric::{Choice, FabricWire};
    ///
    /// if let Err(error) = FabricWire::open(&Choice::at("127.0.0.1").provider("tcp")) {
    ///     println!("{error}");
    /// }
    /// ```
    pub fn open(choice: &Choice) -> Result<Self, OpenError> {
        let wire = Self::open_by(&Library::load()?, choice)?;
        let engine = match wire.triggered() {
            Some(_) => "triggered: its hardware starts transfers",
            None => "software: threads start transfers",
        };
        let (provider, address) = (&wire.provider, &choice.address);
        tell(|| tracing::info!(%provider, engine, %address, "a NIC is open"));
        Ok(wire)
    }

    /// Opens an endpoint with a library that is already loaded.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    ///
    /// # Examples
    ///
    /// ```
    /// # mod tidegate { pub use tidegate_fabric as fabric; }
    /// use tidegate::fabric::wire::libfabric::{Choice, FabricWire, OpenError};
    /// use tidegate_ffi::fabric::Library;
    ///
    /// fn open() -> Result<[FabricWire; 2], OpenError> {
    ///     let library = Library::load()?;
    ///     let choice = Choice::at("127.0.0.1");
    ///     Ok([FabricWire::open_by(&library, &choice)?, FabricWire::open_by(&library, &choice)?])
    /// }
    /// ```
    pub fn open_by(library: &Library, choice: &Choice) -> Result<Self, OpenError> {
        choice::open_first(library, choice, |chosen| {
            Self::open_chosen(library, choice, chosen)
        })
    }

    fn open_chosen(library: &Library, choice: &Choice, chosen: Chosen) -> Result<Self, OpenError> {
        let (info, domain) = (chosen.info, chosen.domain);
        let vector = AddressVector::open(&domain, 64)?;
        let (queue, waits) = match CompletionQueue::open(&domain, 0, WaitObject::UNSPEC) {
            Ok(queue) => {
                let waits = queue.signal().is_ok();
                (queue, waits)
            }
            Err(_) => (CompletionQueue::open(&domain, 0, WaitObject::NONE)?, false),
        };
        // Of a chain's works, only signals report their completion, to wake the agent. Operations that an agent posts
        // always ask for a report.
        let (own, written) = if chosen.triggered {
            let events = info.caps().contains(Caps::RMA_EVENT);
            let counter = events.then(|| Counter::open(&domain, WaitObject::NONE));
            (
                Reported::TRANSMIT | Reported::SELECTIVE,
                counter.transpose()?,
            )
        } else {
            (Reported::TRANSMIT, None)
        };
        // This is set apart, because everything that arrives is always reported.
        let mut builder = EndpointBuilder::new(&domain)?
            .vector(&vector)?
            .queue(&queue, own)?
            .queue(&queue, Reported::RECV)?;
        if let Some(written) = &written {
            builder = builder.counter(written, Counted::REMOTE_WRITE)?;
        }
        let endpoint = builder.enable()?;
        let options = RegisterOptions {
            access: access(),
            endpoint: Some(&endpoint),
            ..Default::default()
        };
        let here = Arc::new(Pad::default());
        // SAFETY: the pad lives as long as it is shared with the registration. It is atomic, and nobody reads what
        // peers write there.
        let pad =
            unsafe { MemoryRegion::register(&domain, here.at(), PAD, &options, here.clone()) }?;
        let bytes = Arc::new(Pad::default());
        endpoint.keep(bytes.clone());
        let (mut signals, mut pool) = (None, None);
        if chosen.triggered {
            let probed = probe::signals(&probe::Ends {
                endpoint: &endpoint,
                vector: &vector,
                queue: &queue,
                pad: &pad,
                bytes: &bytes,
                counts: written.is_some(),
                wanted: choice.signals,
            })?;
            signals = Some(probed);
            // Only cxi says how many deferred works there are.
            if let Ok(depth) = domain.cxi_deferred_depth() {
                pool = Some(Pool::new(depth / choice.sharers));
            }
        }
        // Probes have written here, so the count does not begin at 0.
        let written = written.map(|counter| (counter.clone(), counter.read()));
        let address = Address {
            name: endpoint.name()?,
            pad: pad.export()?.into(),
            adds: signals == Some(Signals::Add),
        };
        Ok(FabricWire {
            library: library.clone(),
            choice: choice.clone(),
            limits: Limits {
                bytes: info.max_msg_size().clamp(8, MOST),
                depth: info.tx_size().clamp(1, DEPTH),
            },
            followers: Followers::new(&info.provider()),
            provider: info.provider(),
            address: postcard::to_stdvec(&address).expect("plain data can be encoded"),
            // A counter wakes nobody, so an agent with chains must look.
            bed: Bed::new(queue, waits && signals.is_none()),
            endpoint,
            vector,
            domain,
            peers: Vec::new(),
            _pad: pad,
            bytes,
            under_way: 0,
            strays: Strays::default(),
            taken: Vec::new(),
            entries: Box::default(),
            written: written.filter(|_| signals == Some(Signals::Add)),
            signals,
            pool,
        })
    }

    /// The provider that was chosen.
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// How chains signal, if the triggered engine was chosen.
    pub fn triggered(&self) -> Option<Signals> {
        self.signals
    }

    /// The choice as a text: the provider, and the engine if it is not the software engine.
    pub fn label(&self) -> String {
        let engine = match self.signals {
            None => "",
            Some(Signals::Notice) => ", triggered",
            Some(Signals::Add) => ", triggered, adds by the NIC",
        };
        format!("{}{engine}", self.provider)
    }

    fn event(&mut self, taken: Result<Completion, CqError>) -> Result<Option<Event>, NicError> {
        match taken {
            Ok(completion) => {
                if let Some(notice) = completion.remote_data() {
                    return Ok(Some(Event::Notice(notice)));
                }
                // Some providers also report writes of peers.
                if completion.context == 0 {
                    return Ok(None);
                }
                if completion.context >= ADDRESSES {
                    return Ok(Some(Event::Moved));
                }
                if self.followers.delivered(completion.context) {
                    return Ok(None);
                }
                // (The engine drops operations that were never posted.)
                self.under_way = self.under_way.saturating_sub(1);
                Ok(Some(Event::Done(completion.context as u64 - 1)))
            }
            Err(CqError::Completion(error)) if error.context >= ADDRESSES => {
                Ok(Some(Event::Broken(error.context, error.to_string())))
            }
            Err(CqError::Completion(error)) if error.context != 0 => {
                self.followers.failed(error.context);
                Ok(Some(self.failed(error.context, error.to_string())))
            }
            // A provider may report so what a peer has begun, and a peer may begin as much as it likes.
            Err(CqError::Completion(error)) => {
                let what = format_args!("{}: {error}", self.provider);
                self.strays.drops(what);
                Ok(None)
            }
            Err(CqError::Queue(error)) => Err(system("reading the completion queue")(error)),
        }
    }

    fn failed(&mut self, context: usize, why: String) -> Event {
        self.under_way = self.under_way.saturating_sub(1);
        Event::Failed(context as u64 - 1, why)
    }

    /// The pieces of a notice without data.
    fn pads(&self, pad: &RemoteRegion) -> (Local, RemotePiece) {
        // A provider that does not bear long writes with notices bears those without bytes best: see `follow`.
        let len = if self.followers.is_needed() { 0 } else { PAD };
        (local(self.bytes.at().cast(), len), remote(pad, 0, len))
    }

    /// Posts the notices whose data is delivered, as far as the provider takes them. Appends the failures.
    fn follow(&mut self, events: &mut Vec<Event>) {
        for _ in 0..self.followers.due() {
            let follower = self.followers.next().expect("it is due");
            let Follower { context, peer, .. } = follower;
            let (to, pad) = self.peers[peer].as_ref().expect("data was sent there");
            // SAFETY: pads live as long as the endpoint.
            let posted = unsafe {
                let kind = Kind::Write(Some(follower.notice));
                transfer(&self.endpoint, self.pads(pad), *to, kind, context)
            };
            match posted {
                Ok(Post::Taken) => {}
                Ok(Post::Again) => {
                    if !self.followers.again(follower, Instant::now()) {
                        events.push(self.failed(context, "its notice was not taken".into()));
                    }
                }
                Err(error) => events.push(self.failed(context, error.to_string())),
            }
        }
    }
}

// SAFETY: operations are posted to the one endpoint. Writes without a notice are delivery-complete, and no completion
// comes while the operation's memory here is accessed. After the endpoint is closed, the provider accesses nothing any
// more. That is when this is dropped, unless registrations, or works that never fire, hold the endpoint. So the
// endpoint itself holds kept values until it is closed. Registrations keep what they were given.
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
                if address.adds != (self.signals == Some(Signals::Add)) {
                    return Err(bad("it signals in another way than this rank".into()));
                }
                let peers = self
                    .vector
                    .insert(&[&address.name])
                    .map_err(|e| bad(e.to_string()))?;
                let pad = address.pad.checked(PAD).map_err(bad)?;
                let pad = self.domain.import(&pad).map_err(|e| bad(e.to_string()))?;
                Ok(Some((peers[0], pad)))
            })
            .collect::<Result<_, _>>()?;
        Ok(())
    }

    fn set_silence(&mut self, limit: Duration) {
        self.followers.limit = limit;
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
            unsafe { MemoryRegion::register(&self.domain, base.cast(), bytes, &options, keep) }
                .map_err(system("registering memory"))?;
        let key: Key = region.export().map_err(system("exporting a key"))?.into();
        let key = postcard::to_stdvec(&key).expect("plain data can be encoded");
        Ok((key, Arc::new(region)))
    }

    fn import(&mut self, peer: usize, key: &[u8], bytes: usize) -> Result<Remote, NicError> {
        let bad = |why: String| NicError::BadKey(format!("the key of rank {peer}: {why}"));
        let key: Key = postcard::from_bytes(key).map_err(|e| bad(e.to_string()))?;
        let key = key.checked(bytes).map_err(bad)?;
        let region = self.domain.import(&key).map_err(|e| bad(e.to_string()))?;
        Ok(Remote { region })
    }

    unsafe fn post(
        &mut self,
        peer: usize,
        op: Op<'_, Remote>,
        cookie: u64,
    ) -> Result<Posted, NicError> {
        if self.under_way >= self.limits.depth {
            return Ok(Posted::Full);
        }
        let Some((to, pad)) = self.peers.get(peer).and_then(Option::as_ref) else {
            return Err(NicError::BadKey(format!("rank {peer} has no endpoint")));
        };
        // Completions of peers' operations have context 0.
        let context = cookie as usize + 1;
        let (pieces, kind) = match op {
            Op::Write {
                from,
                bytes,
                to,
                offset,
                notice,
            } => (
                (
                    local(from.cast_mut(), bytes),
                    remote(&to.region, offset, bytes),
                ),
                Kind::Write(notice),
            ),
            Op::Read {
                to,
                bytes,
                from,
                offset,
            } => (
                (local(to, bytes), remote(&from.region, offset, bytes)),
                Kind::Read,
            ),
            Op::Notify(notice) => (self.pads(pad), Kind::Write(Some(notice))),
        };
        let (kind, behind) = match kind {
            Kind::Write(notice @ Some(_)) if self.followers.follows(pieces.0.len) => {
                (Kind::Write(None), notice)
            }
            kind => (kind, None),
        };
        // SAFETY: the caller's promise for the memory; pads live as long as the endpoint.
        let posted = unsafe { transfer(&self.endpoint, pieces, *to, kind, context) };
        match posted? {
            Post::Taken => {
                self.under_way += 1;
                if let Some(notice) = behind {
                    self.followers.await_data(Follower {
                        context,
                        peer,
                        notice,
                        refused: None,
                    });
                }
                Ok(Posted::Taken)
            }
            Post::Again => Ok(Posted::Full),
        }
    }

    fn poll(&mut self, events: &mut Vec<Event>) -> Result<(), NicError> {
        if let Some((counter, heard)) = &mut self.written {
            let now = counter.read();
            if now != *heard {
                *heard = now;
                events.push(Event::Written);
            }
        }
        let mut taken = std::mem::take(&mut self.taken);
        self.bed.collect(&mut self.entries, &mut taken);
        let mut broken = Ok(());
        for one in taken.drain(..) {
            match self.event(one) {
                Ok(event) => events.extend(event),
                Err(error) => broken = Err(error),
            }
        }
        self.taken = taken;
        self.follow(events);
        broken
    }

    fn fires(&self) -> bool {
        self.signals.is_some()
    }

    fn chain(
        &mut self,
        peer: usize,
        budget: usize,
    ) -> Result<Option<Box<dyn Chain<Remote>>>, NicError> {
        let Some(signals) = self.signals else {
            return Ok(None);
        };
        let Some((peer, pad)) = self.peers.get(peer).and_then(Option::as_ref) else {
            return Err(NicError::BadKey(format!("rank {peer} has no endpoint")));
        };
        let chain = FabricChain::new(Parts {
            endpoint: &self.endpoint,
            peer: *peer,
            pad,
            bytes: &self.bytes,
            signals,
            pool: self.pool.as_ref(),
            budget,
            far: self.choice.far.unwrap_or(chain::FAR),
        })?;
        Ok(Some(Box::new(chain)))
    }

    fn twin(&self) -> Result<Option<Self>, NicError> {
        if self.signals.is_some() {
            // Writes by peers' hardware are seen only at the endpoint that counts them.
            return Ok(None);
        }
        let opened = Self::open_by(&self.library, &self.choice);
        let mut twin = opened.map_err(|error| NicError::System {
            what: "opening another endpoint",
            detail: error.to_string(),
        })?;
        twin.set_silence(self.followers.limit);
        Ok(Some(twin))
    }

    fn copies(&self) -> bool {
        // (`sockets` has threads of its own.)
        self.provider.split(';').next() == Some("tcp")
    }

    fn signals(&self) -> Signals {
        self.signals.unwrap_or(Signals::Notice)
    }

    fn keep(&mut self, what: Keep) {
        self.endpoint.keep(what);
    }

    fn may_sleep(&mut self) -> bool {
        // The provider does not say when there is room again for a notice.
        self.bed.is_empty() && self.followers.due() == 0
    }

    fn sleeper(&self) -> Box<dyn Sleeper> {
        Box::new(self.bed.clone())
    }
}
