//! A window that one rank cannot build, when all have met.

use tidegate_hal::nic::*;

use super::*;
use crate::window::exchange;

/// What a NIC refuses.
#[derive(Clone, Copy)]
enum Refuses {
    /// To make a queue.
    Queues,
    /// To know the memory of a window's peer. (The bells are known before.)
    Memory,
}

/// A NIC that refuses something.
struct Spent(Loopback, Refuses);

// SAFETY: all is done by the other NIC, or refused.
unsafe impl Nic for Spent {
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
        // SAFETY: the caller's promise.
        unsafe { self.0.register(memory) }
    }

    unsafe fn connect(&self, connection: Connection) -> Result<(), NicError> {
        // SAFETY: the caller's promise.
        unsafe { self.0.connect(connection) }
    }

    fn import(&self, peer: usize, key: Key, bytes: usize) -> Result<RemoteMemory, NicError> {
        match self.1 {
            Refuses::Memory if bytes > 64 => Err(NicError::BadKey("it is refused".into())),
            _ => self.0.import(peer, key, bytes),
        }
    }

    unsafe fn queue(&self, _: usize, _: QueueConfig) -> Result<Arc<dyn NicQueue>, NicError> {
        assert!(matches!(self.1, Refuses::Queues));
        Err(NicError::Exhausted {
            nic: self.name(),
            what: "queues",
            detail: "there is none left".into(),
        })
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

#[test]
fn a_window_that_one_rank_cannot_build_no_rank_has() {
    refused(Refuses::Queues, "out of queues");
}

#[test]
fn a_window_whose_memory_one_rank_cannot_reach_no_rank_has() {
    refused(Refuses::Memory, "it is refused");
}

fn refused(what: Refuses, why: &str) {
    let nic = |rank| match rank {
        0 => WorldOptions::new()
            .nic(Spent(Loopback::default(), what))
            .route(Route::Nic),
        _ => WorldOptions::new().nic(Loopback::default()),
    };
    World::local_with(3, nic, |world: World<Host>| {
        crate::stream!(let s = world.stream().unwrap());
        // Rank 2 has nothing to do with rank 0.
        let window = |name| Window::<u64, BySlot>::by_slot(name);
        let open = || match world.rank() {
            0 => window("w").slot_to(1, 0).open(&s),
            1 => window("w").slot_from(0, 0, LEN).open(&s),
            _ => window("w").open(&s),
        };
        let verdict = |error: Option<Error>| {
            let error = error.expect("one rank cannot create it");
            match (world.rank(), &error) {
                (0, Error::Nic(_)) if matches!(what, Refuses::Memory) => {}
                // A shortage is one error for all.
                (_, Error::NotCreated { rank: 0, .. }) if matches!(what, Refuses::Queues) => {
                    assert!(error.to_string().contains(why), "{error}");
                }
                (1 | 2, Error::WindowMismatch { .. }) if matches!(what, Refuses::Memory) => {
                    let text = error.to_string();
                    assert!(
                        text.contains("rank 0 could not") && text.contains(why),
                        "{text}"
                    );
                }
                _ => panic!("{error}"),
            }
        };
        verdict(open().err());
        // Its name is free again.
        verdict(open().err());
        verdict(crate::Barrier::open(&s, "b").err());
        // The job goes on.
        let (inbox, outbox) = match world.rank() {
            1 => window("x").slot_to(2, 0).open(&s).unwrap(),
            2 => window("x").slot_from(1, 0, LEN).open(&s).unwrap(),
            _ => window("x").open(&s).unwrap(),
        };
        let value = Region::from_slice(&world, &[7; LEN])
            .unwrap()
            .on(&s)
            .unwrap();
        let mut epoch = outbox.start();
        if world.rank() == 1 {
            epoch.put(&value, Slot(0)).unwrap();
        }
        let (mut inbox, _outbox) = exchange(&s, inbox, epoch).unwrap();
        if world.rank() == 2 {
            assert_eq!(inbox.read(&s).unwrap().slot(0), [7; LEN]);
        }
        s.synchronize().unwrap();
    });
}
