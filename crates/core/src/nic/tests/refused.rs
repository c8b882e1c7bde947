//! A window that one rank cannot build, when all have met.

use tidegate_hal::nic::*;

use super::*;
use crate::error::Cause;

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

/// The others have their halves then. They must not wait for what never comes, as long as that rank lives.
#[test]
fn a_window_that_a_rank_cannot_build_is_revoked() {
    refused(Refuses::Queues, "out of queues");
}

#[test]
fn a_window_whose_memory_a_rank_cannot_reach_is_revoked() {
    refused(Refuses::Memory, "it is refused");
}

fn refused(what: Refuses, why: &str) {
    let nic = |rank| match rank {
        0 => WorldOptions::new()
            .nic(Spent(Loopback::default(), what))
            .route(Route::Nic),
        _ => WorldOptions::new().nic(Loopback::default()),
    };
    let told = AtomicBool::new(false);
    World::local_with(2, nic, |world: World<Host>| {
        crate::stream!(let s = world.stream().unwrap());
        let window = Window::<u64, BySlot>::by_slot("w");
        if world.rank() == 0 {
            let refused = window.slot_to(1, 0).open(&s).err();
            assert!(matches!(refused, Some(Error::Nic(_))), "{refused:?}");
            let begun = Instant::now();
            while !told.load(Ordering::SeqCst) {
                assert!(begun.elapsed() < Duration::from_secs(10), "it still waits");
                std::thread::sleep(Duration::from_millis(1));
            }
            return;
        }
        let (inbox, _outbox) = window.slot_from(0, 0, LEN).open(&s).unwrap();
        let failed = inbox.post(&s).map_err(|refused| refused.error);
        let failed = failed.and_then(|exposed| {
            let waited = exposed.wait(&s).map_err(|refused| refused.error)?;
            drop(waited);
            s.synchronize()
        });
        told.store(true, Ordering::SeqCst);
        let cause = match failed {
            Err(Error::Revoked { cause, .. }) => cause,
            Err(Error::Wait(failed)) => failed.cause,
            other => panic!("{other:?}"),
        };
        assert!(
            matches!(&cause, Cause::NotCreated { rank: 0, reason } if reason.contains(why)),
            "{cause}"
        );
    });
}
