//! How long a put and its signal take one way: half of a round trip between two threads.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use tidegate_ffi::fabric::*;

/// How the target learns that the data is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A write of the word after the data.
    Ordered,
    /// Data for the target's queue.
    CqData,
    /// The word is written when the data is known to be delivered.
    Delivered,
    /// An atomic add to the word after the data.
    Atomic,
    /// The target's counter.
    Counter,
    /// A put that a counter fires, chained to an atomic add.
    Triggered,
}

const FORMS: [(Form, &str); 6] = [
    (Form::Ordered, "write, write"),
    (Form::CqData, "write with data"),
    (Form::Delivered, "write, delivered, write"),
    (Form::Atomic, "write, atomic add"),
    (Form::Counter, "write, remote counter"),
    (Form::Triggered, "triggered write, atomic add"),
];

const SIZES: [usize; 2] = [8, 64 << 10];
const WARM: u64 = 200;
const ROUNDS: u64 = 2_000;
const LIMIT: Duration = Duration::from_secs(3);
/// A form that takes longer than this is not played to its end.
const PATIENCE: Duration = Duration::from_secs(5);

struct End {
    domain: Arc<Domain>,
    endpoint: Arc<Endpoint>,
    vector: Arc<AddressVector>,
    queue: Arc<CompletionQueue>,
    written: Arc<Counter>,
    came: Option<Arc<Counter>>,
    region: MemoryRegion,
    memory: Arc<Vec<AtomicU64>>,
}

fn open(info: &Info, words: usize) -> Result<End> {
    let domain = Domain::open(&Fabric::open(info)?, info)?;
    let vector = AddressVector::open(&domain, 1)?;
    let queue = CompletionQueue::open(&domain, 0, WaitObject::NONE)?;
    let written = Counter::open(&domain, WaitObject::NONE)?;
    let came = if info.caps().contains(Caps::RMA_EVENT) {
        Some(Counter::open(&domain, WaitObject::NONE)?)
    } else {
        None
    };
    let mut builder = EndpointBuilder::new(&domain)?
        .vector(&vector)?
        .queue(&queue, Reported::TRANSMIT | Reported::RECV)?
        .counter(&written, Counted::WRITE)?;
    if let Some(came) = &came {
        builder = builder.counter(came, Counted::REMOTE_WRITE)?;
    }
    let endpoint = builder.enable()?;
    let memory: Arc<Vec<_>> = Arc::new((0..words).map(|_| AtomicU64::new(0)).collect());
    let options = RegisterOptions {
        access: Access::SOURCE | Access::SINK | Access::REMOTE_READ | Access::REMOTE_WRITE,
        endpoint: Some(&endpoint),
        ..Default::default()
    };
    let (address, keep) = (memory.as_ptr() as *mut c_void, Arc::clone(&memory));
    // SAFETY: the words live as long as they are shared, and are only accessed as atomics.
    let region = unsafe { MemoryRegion::host(&domain, address, 8 * words, &options, keep) }?;
    Ok(End {
        domain,
        endpoint,
        vector,
        queue,
        written,
        came,
        region,
        memory,
    })
}

/// One side of the game: its end, and where to write.
struct Player {
    end: End,
    data: Remote,
    word: Remote,
    bytes: usize,
    form: Form,
    auto: bool,
    sent: u64,
    got: u64,
    works: Option<(WorkQueue, [Arc<Counter>; 3])>,
}

impl Player {
    fn new(end: End, other: &End, bytes: usize, form: Form) -> Result<Player, String> {
        let say = |error: &dyn std::fmt::Display| error.to_string();
        let name = other.endpoint.name().map_err(|e| say(&e))?;
        let peer = end.vector.insert(&[name]).map_err(|e| say(&e))?[0];
        let data = Remote {
            peer,
            address: other.region.remote_base(),
            key: other.region.key().ok_or("a key that is no number")?,
        };
        let word = Remote {
            address: data.address + bytes as u64,
            ..data
        };
        let auto = end.domain.info().data_progress() == Progress::Auto;
        let mut works = None;
        if form == Form::Triggered {
            let counter = || Counter::open(&end.domain, WaitObject::NONE).map_err(|e| say(&e));
            let queue = WorkQueue::new(&end.domain, Proof::InOrder);
            works = Some((queue, [counter()?, counter()?, counter()?]));
        }
        Ok(Player {
            end,
            data,
            word,
            bytes,
            form,
            auto,
            sent: 0,
            got: 0,
            works,
        })
    }

    fn post(&self, mut post: impl FnMut() -> Result<Post>) -> Result<(), String> {
        let start = Instant::now();
        while !post().map_err(|error| error.to_string())?.is_taken() {
            self.poll()?;
            if start.elapsed() > LIMIT {
                return Err("nothing is taken any more".to_owned());
            }
        }
        Ok(())
    }

    fn poll(&self) -> Result<(u64, u64), String> {
        let mut entries = [Completion::default(); 8];
        let count = self
            .end
            .queue
            .read(&mut entries)
            .map_err(|e| e.to_string())?;
        let data = entries[..count]
            .iter()
            .filter(|e| e.remote_data().is_some());
        let data = data.count();
        Ok((data as u64, (count - data) as u64))
    }

    fn send(&mut self) -> Result<(), String> {
        let local = Local {
            address: self.end.memory.as_ptr() as *mut c_void,
            len: self.bytes,
            desc: self.end.region.desc(),
        };
        self.sent += 1;
        let endpoint = &self.end.endpoint;
        let value = self.sent;
        // The data is not written by anybody here, and lives as long as the end: so it is at every `write` below.
        match self.form {
            Form::Ordered => {
                // SAFETY: as said above.
                self.post(|| unsafe { endpoint.write(local, self.data, 1) })?;
                self.post(|| endpoint.inject_write(&value.to_ne_bytes(), self.word))
            }
            Form::CqData => {
                // SAFETY: as said above.
                self.post(|| unsafe { endpoint.write_data(local, value, self.data, 1) })
            }
            Form::Delivered => {
                let message = Message {
                    local: &[local],
                    peer: self.data.peer,
                    remote: &[RemotePiece {
                        address: self.data.address,
                        len: self.bytes,
                        key: self.data.key,
                    }],
                    context: 1,
                    data: 0,
                    flags: OpFlags::COMPLETION | OpFlags::DELIVERY_COMPLETE,
                };
                // SAFETY: as said above.
                self.post(|| unsafe { endpoint.write_msg(&message) })?;
                let start = Instant::now();
                while self.poll()?.1 == 0 {
                    late(start, self.auto)?;
                }
                self.post(|| endpoint.inject_write(&value.to_ne_bytes(), self.word))
            }
            Form::Atomic => {
                // SAFETY: as said above.
                self.post(|| unsafe { endpoint.write(local, self.data, 1) })?;
                self.post(|| endpoint.inject_atomic(&[1u64], AtomicOp::SUM, self.word))
            }
            Form::Counter => {
                // SAFETY: as said above.
                self.post(|| unsafe { endpoint.write(local, self.data, 1) })
            }
            Form::Triggered => {
                let (works, [bell, delivered, done]) = self.works.as_ref().ok_or("no works")?;
                let say = |error: QueueError| error.to_string();
                let flags = OpFlags::DELIVERY_COMPLETE;
                let put = Work::write(endpoint, local, self.data).map_err(|e| e.to_string())?;
                let put = put.flags(flags).after(bell, value).completes(delivered);
                let add = Work::atomic_value(endpoint, 1u64, AtomicOp::SUM, self.word)
                    .map_err(|e| e.to_string())?
                    .after(delivered, value)
                    .completes(done);
                // SAFETY: as said above; the counters count nothing else, and each work waits for the one before.
                unsafe {
                    works.queue(put).map_err(say)?;
                    works.queue(add).map_err(say)?;
                }
                bell.add(1).map_err(|e| e.to_string())?;
                works.reclaim();
                Ok(())
            }
        }
    }

    fn receive(&mut self) -> Result<(), String> {
        self.got += 1;
        let start = Instant::now();
        let word = &self.end.memory[self.bytes / 8];
        loop {
            let (data, _) = self.poll()?;
            let there = match self.form {
                Form::CqData => data > 0,
                Form::Counter => {
                    let came = self.end.came.as_ref().ok_or("no counter")?;
                    came.read() >= self.got
                }
                _ => word.load(Ordering::Acquire) >= self.got,
            };
            if there {
                return Ok(());
            }
            late(start, self.auto)?;
        }
    }
}

/// Between two looks. Who spins takes the processor from the threads of a provider that makes its progress with such,
/// for whole ticks of the scheduler, where there are not enough for all: so there this sleeps.
fn late(start: Instant, auto: bool) -> Result<(), String> {
    if start.elapsed() > LIMIT {
        return Err("nothing came".to_owned());
    }
    if auto {
        std::thread::sleep(Duration::from_nanos(1));
    } else {
        std::thread::yield_now();
    }
    Ok(())
}

/// The median time of one way, in microseconds, and the time at the 90th percentile.
fn play(info: &Info, bytes: usize, form: Form) -> Result<(f64, f64), String> {
    let words = bytes / 8 + 1;
    let open = || open(info, words).map_err(|error| error.to_string());
    let (a, b) = (open()?, open()?);
    let to_b = Player::new(a, &b, bytes, form)?;
    let mut pong = Player::new(b, &to_b.end, bytes, form)?;
    let mut ping = to_b;
    let ready = Barrier::new(2);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            ready.wait();
            let mut result = Ok::<(), String>(());
            for _ in 0..WARM + ROUNDS {
                result = pong.receive().and_then(|()| pong.send());
                if result.is_err() {
                    break;
                }
            }
            // What was posted last may need this end's progress.
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(20) {
                pong.poll()?;
                pong.end.written.read();
            }
            result
        });
        ready.wait();
        let mut times = Vec::with_capacity(ROUNDS as usize);
        let begin = Instant::now();
        let mut run = || {
            for round in 0..WARM + ROUNDS {
                let start = Instant::now();
                if start - begin > PATIENCE {
                    return Ok(());
                }
                ping.send()?;
                ping.receive()?;
                if round >= WARM {
                    times.push(start.elapsed());
                }
            }
            Ok::<(), String>(())
        };
        let mine = run();
        let theirs = other.join().map_err(|_| "the other end panicked")?;
        mine?;
        if times.len() == ROUNDS as usize {
            theirs?;
        }
        if times.is_empty() {
            return Err("too slow to be measured".to_owned());
        }
        times.sort();
        let at = |share: usize| times[times.len() * share / 100].as_secs_f64() * 1e6 / 2.0;
        Ok((at(50), at(90)))
    })
}

/// Measures all forms that the provider has.
pub(crate) fn measure(library: &Library, info: &Info) {
    let order = Order::RMA_WAW | Order::ATOMIC_WAW;
    let ordered = Hints::new().provider(&info.provider()).order(order);
    let ordered = library.query(&ordered.caps(Caps::RMA | Caps::ATOMIC), Location::ANY);
    if let Ok(infos) = ordered {
        let (most, order) = (infos[0].max_order_waw_size(), infos[0].tx_order());
        println!("  if asked   {order:?}, up to {most} B");
    }
    println!("  one way, median (90th percentile) of {ROUNDS} rounds");
    for (form, name) in FORMS {
        print!("    {name:28}");
        for bytes in SIZES {
            let mut caps = Caps::RMA | Caps::ATOMIC;
            if form == Form::Counter {
                caps = caps | Caps::RMA_EVENT;
            }
            let hints = Hints::new()
                .provider(&info.provider())
                .caps(caps)
                .order(Order::RMA_WAW | Order::ATOMIC_WAW);
            let found = library
                .query(&hints, Location::local("127.0.0.1"))
                .or_else(|_| library.query(&hints, Location::ANY));
            let result = found
                .map_err(|error| error.to_string())
                .and_then(|infos| play(&infos[0], bytes, form));
            match result {
                Ok((median, late)) => print!("  {bytes:6} B: {median:7.1} us ({late:.1})"),
                Err(error) => {
                    print!("  {error}");
                    break;
                }
            }
        }
        println!();
    }
}
