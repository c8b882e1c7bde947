//! The bare loop: a program over libfabric with nothing above it.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidegate_ffi::fabric::*;

/// How the writes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `fi_writemsg` with `FI_REMOTE_CQ_DATA`: its completion says that the source can be used again, and nothing of the target.
    Plain,
    /// Also with `FI_DELIVERY_COMPLETE`: its completion says that the data is there, and a write that the target refuses fails.
    Delivered,
    /// `fi_inject_writedata`, which has no completion.
    Injected,
    /// As `Plain`, with a completion queue that a thread could sleep on: providers do more for such a queue.
    Waitable,
}

/// An endpoint, and the peer's memory.
pub(crate) struct Raw {
    endpoint: Arc<Endpoint>,
    vector: Arc<AddressVector>,
    queue: Arc<CompletionQueue>,
    region: MemoryRegion,
    memory: Arc<Vec<AtomicU64>>,
    to: Option<Remote>,
    heard: u64,
    expected: u64,
    done: u64,
    sent: u64,
    /// How many looks before the processor is offered to others: one if both ranks share it.
    looks: u32,
}

type Outcome<T> = std::result::Result<T, Box<dyn std::error::Error>>;

impl Raw {
    /// Sends `words`, or the first of them. `wait` is the object by which a thread can wait for its completion queue.
    pub(crate) fn open(provider: &str, words: &[u64], wait: WaitObject) -> Outcome<Self> {
        let hints = Hints::new()
            .provider(provider)
            .caps(Caps::RMA | Caps::MSG)
            .manual_progress(true);
        let infos = Library::load()?.query(&hints, Location::local("127.0.0.1"))?;
        let info = &infos[0];
        let domain = Domain::open(&Fabric::open(info)?, info)?;
        let vector = AddressVector::open(&domain, 1)?;
        let queue = CompletionQueue::open(&domain, 0, wait)?;
        let endpoint = EndpointBuilder::new(&domain)?
            .vector(&vector)?
            .queue(&queue, Reported::TRANSMIT | Reported::RECV)?
            .enable()?;
        // Its first half is sent, the second is written by the peer.
        let nothing = std::iter::repeat_n(0, words.len());
        let all = words.iter().copied().chain(nothing);
        let memory: Arc<Vec<_>> = Arc::new(all.map(AtomicU64::new).collect());
        let options = RegisterOptions {
            access: Access::SOURCE | Access::SINK | Access::REMOTE_READ | Access::REMOTE_WRITE,
            endpoint: Some(&endpoint),
            ..Default::default()
        };
        let (address, keep) = (memory.as_ptr() as *mut c_void, Arc::clone(&memory));
        // SAFETY: the words live as long as they are shared, and nothing here reads the words that the peer writes.
        let region =
            unsafe { MemoryRegion::register(&domain, address, 16 * words.len(), &options, keep) }?;
        Ok(Raw {
            endpoint,
            vector,
            queue,
            region,
            memory,
            to: None,
            heard: 0,
            expected: 0,
            done: 0,
            sent: 0,
            looks: match std::thread::available_parallelism() {
                Ok(processors) if processors.get() > 1 => 17,
                _ => 1,
            },
        })
    }

    /// The address for the peer. Lengths are fixed, so that it fits a slot.
    pub(crate) fn address(&self) -> Outcome<Vec<u64>> {
        let name = self.endpoint.name()?;
        let key = self.region.key().ok_or("a key that is no number")?;
        let mut words = vec![self.region.remote_base(), key, name.len() as u64];
        words.extend(name.into_iter().map(u64::from));
        Ok(words)
    }

    pub(crate) fn connect(&mut self, peer: &[u64]) -> Outcome<()> {
        let name: Vec<u8> = peer[3..3 + peer[2] as usize]
            .iter()
            .map(|x| *x as u8)
            .collect();
        self.to = Some(Remote {
            peer: self.vector.insert(&[name])?[0],
            address: peer[0] + 4 * self.memory.len() as u64,
            key: peer[1],
        });
        Ok(())
    }

    fn poll(&mut self) -> Outcome<()> {
        let mut entries = [Completion::default(); 8];
        let count = self.queue.read(&mut entries)?;
        let notices = entries[..count]
            .iter()
            .filter(|e| e.remote_data().is_some())
            .count();
        self.heard += notices as u64;
        self.done += (count - notices) as u64;
        Ok(())
    }

    /// Polls until `ready`; offers the processor as seldom as waits on streams do.
    fn until(&mut self, ready: impl Fn(&Self) -> bool) -> Outcome<()> {
        let begin = Instant::now();
        loop {
            for _ in 0..self.looks {
                self.poll()?;
                if ready(self) {
                    return Ok(());
                }
            }
            std::thread::yield_now();
            if begin.elapsed() > Duration::from_secs(10) {
                return Err("nothing came".into());
            }
        }
    }

    pub(crate) fn put(&mut self, bytes: usize, form: Form) -> Outcome<()> {
        // The source is free again.
        if self.done < self.sent {
            self.until(|raw| raw.done == raw.sent)?;
        }
        let to = self.to.ok_or("not connected")?;
        let address = self.memory.as_ptr() as *mut c_void;
        if form == Form::Injected {
            // SAFETY: the memory is as long as that, and nothing writes its first half.
            let bytes = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), bytes) };
            while !self.endpoint.inject_write_data(bytes, 1, to)?.is_taken() {
                self.poll()?;
            }
            return Ok(());
        }
        let mut flags = OpFlags::COMPLETION | OpFlags::REMOTE_CQ_DATA;
        if form == Form::Delivered {
            flags = flags | OpFlags::DELIVERY_COMPLETE;
        }
        let local = [Local {
            address,
            len: bytes,
            desc: self.region.desc(),
        }];
        let remote = [RemotePiece {
            address: to.address,
            len: bytes,
            key: to.key,
        }];
        let message = Message {
            local: &local,
            peer: to.peer,
            remote: &remote,
            context: 1,
            data: 1,
            flags,
        };
        // SAFETY: the memory lives as long as the endpoint, and nothing writes its first half.
        while !unsafe { self.endpoint.write_msg(&message) }?.is_taken() {
            self.poll()?;
        }
        self.sent += 1;
        Ok(())
    }

    /// Waits for the next put of the peer.
    pub(crate) fn wait(&mut self) -> Outcome<()> {
        self.expected += 1;
        self.until(|raw| raw.heard >= raw.expected)
    }

    /// The first bytes that the peer has written.
    pub(crate) fn received(&self, bytes: usize) -> Vec<u64> {
        let from = self.memory.len() / 2;
        let words = self.memory[from..from + bytes / 8].iter();
        words.map(|word| word.load(Ordering::Acquire)).collect()
    }

    /// All that was sent is through.
    pub(crate) fn drain(&mut self) -> Outcome<()> {
        self.until(|raw| raw.done == raw.sent)
    }
}
