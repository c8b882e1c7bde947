//! Registers of NICs: streams store there after each ring, where their device reaches them, and nowhere else.

use std::sync::Mutex;

use tidegate_hal::batch::{Op as Reduction, Scalar};
use tidegate_hal::control::Handle;
use tidegate_hal::device::{Device, DeviceError, StreamConfig};
use tidegate_hal::memory::{Ptr, Sharing};
use tidegate_hal::nic::*;
use tidegate_host::{HostBlock, HostStream};

use super::*;

/// A host whose streams store to no registers.
#[derive(Clone)]
struct Plain(Host);

// SAFETY: all is done by the host.
unsafe impl Device for Plain {
    type Block = HostBlock;
    type Stream = HostStream;
    const NAME: &'static str = "plain";

    fn open(local_rank: usize) -> Result<Self, DeviceError> {
        Host::open(local_rank).map(Plain)
    }

    fn open_local(rank: usize) -> Result<Self, DeviceError> {
        Host::open_local(rank).map(Plain)
    }

    fn same(&self, other: &Self) -> bool {
        self.0.same(&other.0)
    }

    fn helps(&self) -> bool {
        self.0.helps()
    }

    fn refuses(&self, reduction: Option<Reduction>, scalar: Scalar) -> Option<String> {
        self.0.refuses(reduction, scalar)
    }

    fn alloc(&self, bytes: usize, sharing: Sharing) -> Result<HostBlock, DeviceError> {
        self.0.alloc(bytes, sharing)
    }

    fn map(&self, handle: Handle, bytes: usize) -> Result<HostBlock, DeviceError> {
        self.0.map(handle, bytes)
    }

    unsafe fn stream(&self, config: StreamConfig) -> Result<HostStream, DeviceError> {
        // SAFETY: the caller's promise, here and below.
        unsafe { self.0.stream(config) }
    }

    unsafe fn poison(&self, word: Ptr, bell: Ptr) {
        // SAFETY: as above.
        unsafe { self.0.poison(word, bell) }
    }

    unsafe fn peek(&self, word: Ptr) -> u64 {
        // SAFETY: as above.
        unsafe { self.0.peek(word) }
    }

    unsafe fn init_word(&self, word: Ptr, value: u64) {
        // SAFETY: as above.
        unsafe { self.0.init_word(word, value) }
    }

    unsafe fn read(&self, src: Ptr, dst: &mut [u8]) -> Result<(), DeviceError> {
        // SAFETY: as above.
        unsafe { self.0.read(src, dst) }
    }

    unsafe fn write(&self, dst: Ptr, src: &[u8]) -> Result<(), DeviceError> {
        // SAFETY: as above.
        unsafe { self.0.write(dst, src) }
    }
}

/// What became of a queue's register.
#[derive(Default)]
struct Struck {
    /// The queue has heard that streams store there.
    heard: AtomicBool,
    register: AtomicU64,
}

type All = Arc<Mutex<Vec<Arc<Struck>>>>;

/// A NIC whose queues have registers; it fires by the doorbells all the same.
struct Registered(Loopback, All);

struct Queue(Arc<dyn NicQueue>, Arc<Struck>);

// SAFETY: all is done by the other NIC.
unsafe impl Nic for Registered {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn atomics(&self) -> Atomics {
        self.0.atomics()
    }

    fn address(&self) -> Vec<u8> {
        self.0.address()
    }

    unsafe fn register(&self, memory: Memory<'_>) -> Result<Registration, NicError> {
        // SAFETY: the caller's promise, here and below.
        unsafe { self.0.register(memory) }
    }

    unsafe fn connect(&self, connection: Connection) -> Result<(), NicError> {
        // SAFETY: as above.
        unsafe { self.0.connect(connection) }
    }

    fn import(&self, peer: usize, key: Key, bytes: usize) -> Result<RemoteMemory, NicError> {
        self.0.import(peer, key, bytes)
    }

    unsafe fn queue(
        &self,
        peer: usize,
        config: QueueConfig,
    ) -> Result<Arc<dyn NicQueue>, NicError> {
        // SAFETY: as above.
        let queue = unsafe { self.0.queue(peer, config) }?;
        let struck = Arc::<Struck>::default();
        self.1.lock().unwrap().push(struck.clone());
        Ok(Arc::new(Queue(queue, struck)))
    }

    fn budget(&self) -> usize {
        self.0.budget()
    }

    fn armed(&self) -> usize {
        self.0.armed()
    }

    fn await_armed(&self, most: usize, limit: Duration) -> usize {
        self.0.await_armed(most, limit)
    }

    fn quiesce(&self, limit: Duration) -> bool {
        self.0.quiesce(limit)
    }
}

// SAFETY: as above; the register is there as long as it is kept.
unsafe impl NicQueue for Queue {
    unsafe fn prepare(&self, program: Program) -> Result<Prepared, NicError> {
        // SAFETY: the caller's promise.
        unsafe { self.0.prepare(program) }
    }

    fn arm(&self, programs: &Arc<[Prepared]>, times: u64) -> Result<(), NicError> {
        self.0.arm(programs, times)
    }

    fn counts(&self) -> (u64, u64) {
        self.0.counts()
    }

    fn register(&self) -> Option<Register> {
        Some(Register {
            at: Ptr(self.1.register.as_ptr().cast()),
            keep: self.1.clone(),
        })
    }

    fn struck_by_streams(&self) {
        assert_eq!(self.counts(), (0, 0), "nothing is armed yet");
        self.1.heard.store(true, Ordering::SeqCst);
    }
}

/// Three epochs between two ranks: of each queue, whether it has heard of strikes, and what its register says.
fn epochs<D: Device>() -> Vec<(bool, u64)> {
    let all = All::default();
    let nic = |_| {
        WorldOptions::new()
            .nic(Registered(Loopback::default(), all.clone()))
            .route(Route::Nic)
    };
    World::<D>::local_with(2, nic, |world| {
        crate::stream!(let s = world.stream().unwrap());
        let window = Window::<u64, BySlot>::by_slot("w");
        if world.rank() == 0 {
            let (_inbox, mut outbox) = window.slot_to(1, 0).open(&s).unwrap();
            let src = Region::<u64, _>::zeroed(&world, LEN)
                .unwrap()
                .on(&s)
                .unwrap();
            for _ in 0..3 {
                let mut epoch = outbox.start();
                epoch.put(&src, FIRST).unwrap();
                outbox = epoch.complete(&s).unwrap();
            }
            s.synchronize().unwrap();
        } else {
            let (mut inbox, _outbox) = window.slot_from(0, 0, LEN).open(&s).unwrap();
            for _ in 0..3 {
                inbox = inbox.post(&s).unwrap().wait(&s).unwrap();
            }
            s.synchronize().unwrap();
        }
    });
    let all = all.lock().unwrap();
    all.iter()
        .map(|struck| {
            let register = struck.register.load(Ordering::SeqCst);
            (struck.heard.load(Ordering::SeqCst), register)
        })
        .collect()
}

#[test]
fn streams_store_to_registers_that_their_device_reaches() {
    assert_eq!(epochs::<Host>(), [(true, 1); 2]);
}

#[test]
fn streams_whose_device_reaches_no_registers_only_ring() {
    assert_eq!(epochs::<Plain>(), [(false, 0); 2]);
}
