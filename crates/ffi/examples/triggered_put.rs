//! Queues a put that a counter fires, chained to a signal, and fires it: what a stream does with a NIC, over the
//! sockets provider on loopback.
//!
//! ```text
//! cargo run -p tidegate-ffi --example triggered_put
//! ```

use std::error::Error;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidegate_ffi::fabric::*;

const WORDS: usize = 1024;
/// Behind the data.
const SIGNAL: usize = WORDS;
/// What a signal adds.
const QUANTUM: u64 = 1 << 20;
const LIMIT: Duration = Duration::from_secs(10);

struct End {
    endpoint: Arc<Endpoint>,
    vector: Arc<AddressVector>,
    region: MemoryRegion,
    memory: Arc<Vec<AtomicU64>>,
    domain: Arc<Domain>,
}

fn open(info: &Info) -> Result<End> {
    let domain = Domain::open(&Fabric::open(info)?, info)?;
    let vector = AddressVector::open(&domain, 1)?;
    let queue = CompletionQueue::open(&domain, 0, WaitObject::NONE)?;
    let endpoint = EndpointBuilder::new(&domain)?
        .vector(&vector)?
        .queue(&queue, Reported::TRANSMIT | Reported::RECV)?
        .enable()?;
    let memory: Arc<Vec<_>> = Arc::new((0..=WORDS).map(|_| AtomicU64::new(0)).collect());
    let options = RegisterOptions {
        access: Access::SOURCE | Access::REMOTE_WRITE,
        endpoint: Some(&endpoint),
        ..Default::default()
    };
    let (address, keep) = (memory.as_ptr() as *mut c_void, Arc::clone(&memory));
    // SAFETY: the words live as long as they are shared, and are only accessed as atomics.
    let region = unsafe { MemoryRegion::host(&domain, address, 8 * memory.len(), &options, keep) }?;
    Ok(End {
        endpoint,
        vector,
        region,
        memory,
        domain,
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    // SAFETY: no other thread runs yet.
    unsafe { set_environment() };
    let library = Library::load()?;
    println!("{} is libfabric {:?}", library.name(), library.version());
    let hints = Hints::new()
        .provider("sockets")
        .caps(Caps::RMA | Caps::ATOMIC)
        .order(Order::WAW);
    let info = library
        .query(&hints, Location::local("127.0.0.1"))?
        .remove(0);
    println!("{info:?}");

    let (origin, target) = (open(&info)?, open(&info)?);
    let peer = origin.vector.insert(&[target.endpoint.name()?])?[0];
    let data = Remote {
        peer,
        address: target.region.remote_base(),
        key: target.region.key().ok_or("a key that is no number")?,
    };
    let signal = Remote {
        address: data.address + 8 * SIGNAL as u64,
        ..data
    };

    let probe = origin.domain.probe_deferred(LIMIT);
    println!("deferred works: {probe:?}");
    if !probe.works() {
        return Err("this provider has no deferred works".into());
    }
    let counter = || Counter::open(&origin.domain, WaitObject::NONE);
    let (doorbell, delivered, sent) = (counter()?, counter()?, counter()?);
    let source = Local {
        address: origin.memory.as_ptr() as *mut c_void,
        len: 8 * WORDS,
        desc: origin.region.desc(),
    };
    let put = Work::write(&origin.endpoint, source, data)?
        .flags(OpFlags::DELIVERY_COMPLETE)
        .after(&doorbell, 1)
        .completes(&delivered);
    let add = Work::atomic_value(&origin.endpoint, QUANTUM, AtomicOp::SUM, signal)?
        .after(&delivered, 1)
        .completes(&sent);
    let works = WorkQueue::new(&origin.domain, Proof::InOrder);
    // SAFETY: the words live as long as the region, and are not written from when the doorbell rings until the works
    // are complete; the two counters count nothing else.
    unsafe {
        works.queue(put)?;
        works.queue(add)?;
    }
    println!("queued: a put of {} B, then a signal", 8 * WORDS);

    for (at, word) in origin.memory[..WORDS].iter().enumerate() {
        word.store(at as u64 + 1, Ordering::Release);
    }
    std::thread::sleep(Duration::from_millis(10));
    println!(
        "nobody rang: delivered {}, the target's word {:#x}",
        delivered.read(),
        target.memory[SIGNAL].load(Ordering::Acquire)
    );

    let start = Instant::now();
    doorbell.add(1)?;
    while target.memory[SIGNAL].load(Ordering::Acquire) != QUANTUM {
        if start.elapsed() > LIMIT {
            return Err("the signal never came".into());
        }
        std::thread::yield_now();
    }
    let took = start.elapsed();
    let right = target.memory[..WORDS]
        .iter()
        .enumerate()
        .all(|(at, word)| word.load(Ordering::Acquire) == at as u64 + 1);
    println!("rang: the signal came after {took:?}, the data before it: {right}");
    let drained = works.drain(LIMIT, || {});
    println!(
        "through at the origin: {drained}; delivered {}, sent {}",
        delivered.read(),
        sent.read()
    );
    if !right || !drained {
        return Err("the put was not what it should be".into());
    }
    Ok(())
}
