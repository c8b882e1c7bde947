//! Two endpoints that can reach each other, with their memory.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tidegate_ffi::fabric::*;

#[path = "../../../../tests/common/skipped.rs"]
mod skipped;

pub(crate) use skipped::skipped as skip;

/// Far more than any wait here takes, even if other tests use all processors.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// The provider for TCP: `tcp;ofi_rxm`, which all versions have, or the one that `TEST_TCP` names (`tcp` from 1.18 on).
pub(crate) fn tcp() -> &'static str {
    static NAME: LazyLock<String> =
        LazyLock::new(|| std::env::var("TEST_TCP").unwrap_or("tcp;ofi_rxm".into()));
    &NAME
}

/// The library; `None` if there is none, after a line that says so.
pub(crate) fn library(test: &str) -> Option<Library> {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        for (name, value) in ENVIRONMENT {
            // SAFETY: in this process, only the library reads the environment from C, and it is loaded after this.
            unsafe { std::env::set_var(name, value) };
        }
    });
    match Library::load() {
        Ok(library) => Some(library),
        Err(error) => {
            skip(test, &error.to_string());
            None
        }
    }
}

/// Words that a peer writes.
pub(crate) type Words = Arc<Box<[AtomicU64]>>;

pub(crate) fn words(count: usize) -> Words {
    Arc::new((0..count).map(|_| AtomicU64::new(0)).collect())
}

/// One end: an endpoint, and what belongs to it.
pub(crate) struct End {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) region: MemoryRegion,
    pub(crate) queue: Arc<CompletionQueue>,
    /// Counts the writes by this end.
    pub(crate) written: Arc<Counter>,
    /// Counts the writes to this end's memory, if the provider can count them.
    pub(crate) came: Option<Arc<Counter>>,
    pub(crate) vector: Arc<AddressVector>,
    pub(crate) domain: Arc<Domain>,
    pub(crate) words: Words,
    pub(crate) name: Vec<u8>,
}

/// Two ends, each with the other as its peer.
pub(crate) struct Pair {
    pub(crate) a: End,
    pub(crate) b: End,
    /// The memory of `b`, as `a` reaches it.
    pub(crate) to_b: Remote,
    /// Dropped last, after both ends.
    _alone: Option<MutexGuard<'static, ()>>,
}

/// The hints of most tests. They ask for no order between atomic and other operations: with that, `tcp;ofi_rxm` would
/// have no atomic operations.
pub(crate) fn hints(provider: &str, caps: Caps) -> Hints {
    let order = Order::RMA_WAW | Order::ATOMIC_WAW;
    Hints::new().provider(provider).caps(caps).order(order)
}

/// The first description that fits, on loopback.
pub(crate) fn info(library: &Library, hints: &Hints) -> Result<Info> {
    let address = Location::local("127.0.0.1");
    let found = library.query(hints, address);
    let mut infos = match found {
        // The provider for shared memory has no loopback address.
        Err(error) if error.is_no_data() => library.query(hints, Location::ANY)?,
        other => other?,
    };
    Ok(infos.swap_remove(0))
}

impl End {
    pub(crate) fn open(info: &Info, words: Words) -> Result<End> {
        let fabric = Fabric::open(info)?;
        End::in_domain(&Domain::open(&fabric, info)?, words)
    }

    pub(crate) fn in_domain(domain: &Arc<Domain>, words: Words) -> Result<End> {
        let vector = AddressVector::open(domain, 2)?;
        let queue = CompletionQueue::open(domain, 0, WaitObject::NONE)?;
        let wait = match domain.info().data_progress() {
            Progress::Auto => WaitObject::UNSPEC,
            _ => WaitObject::NONE,
        };
        let written = Counter::open(domain, wait)?;
        let events = domain.info().caps().contains(Caps::RMA_EVENT);
        let came = if events {
            Some(Counter::open(domain, wait)?)
        } else {
            None
        };
        let mut builder = EndpointBuilder::new(domain)?
            .vector(&vector)?
            .queue(&queue, Reported::TRANSMIT | Reported::RECV)?
            .counter(&written, Counted::WRITE)?;
        if let Some(came) = &came {
            builder = builder.counter(came, Counted::REMOTE_WRITE)?;
        }
        let endpoint = builder.enable()?;
        let options = RegisterOptions {
            access: Access::SOURCE | Access::SINK | Access::REMOTE_READ | Access::REMOTE_WRITE,
            endpoint: Some(&endpoint),
            ..Default::default()
        };
        let len = size_of_val(&**words);
        // SAFETY: the region shares the words, so they live as long as it. All accesses are atomic.
        let region = unsafe {
            MemoryRegion::register(
                domain,
                words.as_ptr() as *mut c_void,
                len,
                &options,
                Arc::new(Arc::clone(&words)),
            )
        }?;
        Ok(End {
            name: endpoint.name()?,
            endpoint,
            region,
            queue,
            written,
            came,
            vector,
            domain: Arc::clone(domain),
            words,
        })
    }

    /// `count` words from `at` on.
    pub(crate) fn local(&self, at: usize, count: usize) -> Local {
        Local {
            address: self.words[at..at + count].as_ptr() as *mut c_void,
            len: 8 * count,
            desc: self.region.desc(),
        }
    }

    pub(crate) fn load(&self, at: usize) -> u64 {
        self.words[at].load(Ordering::Acquire)
    }

    pub(crate) fn store(&self, at: usize, value: u64) {
        self.words[at].store(value, Ordering::Release);
    }

    /// Makes progress, and returns the operations that are complete.
    pub(crate) fn poll(&self) -> Result<Vec<Completion>, CqError> {
        let mut entries = [Completion::default(); 8];
        let count = self.queue.read(&mut entries)?;
        Ok(entries[..count].to_vec())
    }
}

impl Pair {
    /// Two ends, each with a domain of its own and memory of `count` words.
    pub(crate) fn open(library: &Library, hints: &Hints, count: usize) -> Result<Pair> {
        // If several threads of one process open endpoints of shm, two may get the same name, and then one is busy.
        static SHM: Mutex<()> = Mutex::new(());
        let info = info(library, hints)?;
        let alone =
            (info.provider() == "shm").then(|| SHM.lock().unwrap_or_else(PoisonError::into_inner));
        let a = End::open(&info, words(count))?;
        let b = End::open(&info, words(count))?;
        Ok(Pair {
            _alone: alone,
            ..Pair::of(a, b)
        })
    }

    pub(crate) fn of(a: End, b: End) -> Pair {
        let peer = a.vector.insert(&[&b.name]).expect("b's address")[0];
        let to_b = Remote {
            peer,
            address: b.region.remote_base(),
            key: b.region.key().expect("a key that is a number"),
        };
        Pair {
            a,
            b,
            to_b,
            _alone: None,
        }
    }

    /// Word `at` of `b`.
    pub(crate) fn word(&self, at: usize) -> Remote {
        Remote {
            address: self.to_b.address + 8 * at as u64,
            ..self.to_b
        }
    }

    /// Repeats a post until the provider takes it.
    pub(crate) fn post(&self, mut post: impl FnMut() -> Result<Post>) {
        self.until("the operation is taken", || {
            post().expect("posted").is_taken()
        });
    }

    /// Writes words of `a`, perhaps with data for the queue of `b`.
    pub(crate) fn write(&self, from: Local, to: Remote, data: Option<u64>, context: usize) {
        let (local, remote) = ([from], [piece(to, from.len)]);
        let message = Message {
            local: &local,
            peer: to.peer,
            remote: &remote,
            context,
            data: data.unwrap_or(0),
            flags: match data {
                Some(_) => OpFlags::COMPLETION | OpFlags::REMOTE_CQ_DATA,
                None => OpFlags::COMPLETION,
            },
        };
        // SAFETY: the words are atomics, and are registered as long as the endpoint is open.
        self.post(|| unsafe { self.a.endpoint.write_msg(&message) });
    }

    /// Waits for `done` and makes progress at both ends. Completions that come meanwhile are dropped.
    pub(crate) fn until(&self, what: &str, mut done: impl FnMut() -> bool) {
        let start = Instant::now();
        while !done() {
            for end in [&self.a, &self.b] {
                end.poll().expect("no operation fails");
                end.written.read();
            }
            assert!(start.elapsed() < LONG, "waited in vain: {what}");
            std::thread::yield_now();
        }
    }

    /// Waits until the queue of `a` has reported `count` operations as complete.
    pub(crate) fn complete(&self, count: usize) -> Vec<Completion> {
        let start = Instant::now();
        let mut found = Vec::new();
        while found.len() < count {
            found.extend(self.a.poll().expect("no operation fails"));
            self.b.poll().expect("no operation fails");
            assert!(start.elapsed() < LONG, "waited in vain: {found:?}");
            std::thread::yield_now();
        }
        found
    }
}

/// `len` bytes of a peer's memory.
pub(crate) fn piece(to: Remote, len: usize) -> RemotePiece {
    RemotePiece {
        address: to.address,
        len,
        key: to.key,
    }
}

/// Waits until a counter comes to `count`; returns whether it does.
pub(crate) fn comes_to(counter: &Counter, count: u64) -> bool {
    let start = Instant::now();
    while counter.read() < count {
        if start.elapsed() > LONG {
            return false;
        }
        std::thread::yield_now();
    }
    true
}
