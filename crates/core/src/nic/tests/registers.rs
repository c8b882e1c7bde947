//! Registers of NICs: streams store to them after each ring if their device can reach them, and not otherwise.

use tidegate_hal::batch::{Awaited, Step, Tag};
use tidegate_hal::device::Device;
use tidegate_hal::memory::Ptr;
use tidegate_hal::nic::*;
use tidegate_host::HostStream;

use super::hosted::By;
use super::*;
use crate::nic::Touch;

/// A host device whose streams store to no registers.
type Plain = By<HostStream>;

/// What happened to the register of a rank's only queue.
#[derive(Default)]
struct Struck {
    /// Whether the queue has heard that streams store there.
    heard: AtomicBool,
    register: AtomicU64,
    /// Whether the queue takes rings in parts, which it must not.
    parts: bool,
}

impl Struck {
    /// The values that were stored since the last call.
    fn take(&self) -> u64 {
        self.register.swap(0, Ordering::SeqCst)
    }
}

/// A NIC whose queue has a register. It still fires by the doorbells.
struct Registered(Loopback, Arc<Struck>);

struct Queue(Arc<dyn NicQueue>, Arc<Struck>);

// SAFETY: the other NIC does everything.
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
        // SAFETY: the caller promises the same, here and below.
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
        Ok(Arc::new(Queue(queue, self.1.clone())))
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

// SAFETY: as above. The register exists as long as it is kept.
unsafe impl NicQueue for Queue {
    unsafe fn prepare(&self, program: Program) -> Result<Prepared, NicError> {
        // SAFETY: the caller promises the same.
        unsafe { self.0.prepare(program) }
    }

    fn arm(&self, programs: &Arc<[Prepared]>, times: u64) -> Result<(), NicError> {
        self.0.arm(programs, times)
    }

    fn takes_parts(&self) -> bool {
        self.1.parts
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

/// A job whose ranks have NICs with these registers.
fn job<D: Device, R: Send>(
    struck: &[Arc<Struck>],
    program: impl Fn(World<D>) -> R + Sync,
) -> Vec<R> {
    let nic = |rank: usize| {
        WorldOptions::new()
            .nic(Registered(Loopback::default(), struck[rank].clone()))
            .route(Route::Nic)
    };
    World::local_with(struck.len(), nic, program)
}

/// Three epochs between two ranks. For the queue of each rank: whether it has heard of strikes, and what each epoch has
/// stored.
fn epochs<D: Device>() -> Vec<(bool, [u64; 3])> {
    let struck = [Arc::<Struck>::default(), Arc::default()];
    let stored = job::<D, _>(&struck, |world| {
        crate::stream!(let s = world.stream().unwrap());
        let (mut window, mine) = (SlotWindow::<u64>::new("w"), &struck[world.rank()]);
        let mut stored = [0; 3];
        if world.rank() == 0 {
            window.slot_to(1, 0);
            let (_inbox, mut outbox) = window.open(&s).unwrap();
            let src = Region::<u64, _>::zeroed(&world, LEN)
                .unwrap()
                .on(&s)
                .unwrap();
            for stored in &mut stored {
                let to = first(&outbox);
                let mut epoch = outbox.start();
                epoch.put(&src, to).unwrap();
                outbox = epoch.complete(&s).unwrap();
                s.synchronize().unwrap();
                let mut lines = Vec::new();
                let tickets = src.body.outstanding().unwrap();
                tickets.gather(Touch::Write, &mut lines);
                // There is one store after the ring, if there is any. A second one would overwrite it.
                let tag = Tag {
                    window: None,
                    peer: 1,
                    awaited: Awaited::Completion,
                };
                let ring: Vec<_> = lines[0].ring(tag).collect();
                let to = Ptr(mine.register.as_ptr().cast());
                match ring[..] {
                    [Step::Add(_)] => assert!(!mine.heard.load(Ordering::SeqCst)),
                    [Step::Add(_), Step::Store(ref store)] => {
                        assert_eq!((store.to, store.value), (to, 1));
                    }
                    _ => panic!("it rings once, and strikes once"),
                }
                *stored = mine.take();
            }
        } else {
            window.slot_from(0, 0, LEN);
            let (mut inbox, _outbox) = window.open(&s).unwrap();
            for stored in &mut stored {
                inbox = inbox.post(&s).unwrap().wait(&s).unwrap();
                s.synchronize().unwrap();
                *stored = mine.take();
            }
        }
        stored
    });
    let heard = struck.iter().map(|mine| mine.heard.load(Ordering::SeqCst));
    heard.zip(stored).collect()
}

#[test]
fn streams_store_to_registers_that_their_device_reaches() {
    assert_eq!(epochs::<Host>(), [(true, [1; 3]); 2]);
}

#[test]
fn streams_whose_device_reaches_no_registers_only_ring() {
    assert_eq!(epochs::<Plain>(), [(false, [0; 3]); 2]);
}

/// A part of a ring is not followed by a strike.
#[test]
#[cfg(debug_assertions)]
#[should_panic = "streams strike for whole rings"]
fn a_queue_that_is_struck_takes_no_parts() {
    let struck = Struck {
        parts: true,
        ..Struck::default()
    };
    job::<Host, _>(&[Arc::new(struck)], |world| {
        crate::stream!(let s = world.stream().unwrap());
        let mut window = SlotWindow::<u64>::new("w");
        window.slot_from(0, 0, LEN);
        window.slot_to(0, 0);
        drop(window.open(&s).unwrap());
    });
}
