//! Operations may be under way when an endpoint is dropped. The network may read and write their memory as long as it
//! keeps the endpoint open.

mod rig;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rig::wrapped::{Far, Hooks, Outcome, Wrapped};
use rig::{Rig, SENT, until};
use tidegate_fabric::Options;
use tidegate_fabric::wire::libfabric::{Choice, FabricWire};
use tidegate_fabric::wire::{Event, Op, Posted, Wire as _};
use tidegate_fake::wire::{Faults, MemoryWire, Net};
use tidegate_fake::{Card, Config, Kind};
use tidegate_hal::batch::POISON;
use tidegate_hal::nic::{Direction, Keep, NicError};

/// An allocator that notes when the memory at a given address is freed.
struct Watching;

static WATCHED: AtomicUsize = AtomicUsize::new(0);
static FREED: AtomicBool = AtomicBool::new(false);

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        let watched = WATCHED.load(Ordering::SeqCst);
        if (memory.addr()..memory.addr() + layout.size()).contains(&watched) {
            FREED.store(true, Ordering::SeqCst);
        }
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static WATCHING: Watching = Watching;

/// A peer is told of a failure, and the engine looks whether the message has come. It does so by a read into memory of
/// its own. Here, registrations belong to an endpoint, and may be held for longer than the endpoint's owner lives.
#[test]
fn the_target_of_a_read_stays_while_a_registration_keeps_the_endpoint_open() {
    for data in [true, false] {
        let card = Card::new(Config {
            data,
            ..Config::default()
        });
        let library = tidegate_fake::library();
        let wire = FabricWire::open_by(&library, &Choice::at(card.name())).unwrap();
        let rig = Rig::new(wire, Options::default(), false);
        let registration = rig.register();
        rig.arm(&[rig.put(1)], 1).unwrap();
        card.hold(true);
        rig.poison();
        assert_eq!(rig.wait(SENT, 1), POISON);
        until("nobody is told", || card.posted() == 1);
        card.let_through(1);
        until("nobody looks", || !card.reads().is_empty());
        FREED.store(false, Ordering::SeqCst);
        WATCHED.store(card.reads()[0], Ordering::SeqCst);
        drop(rig);
        assert!(card.open().contains(&Kind::Endpoint));
        assert_eq!(card.reads().len(), 1, "it is under way still");
        assert!(!FREED.load(Ordering::SeqCst), "it is still written to");
        drop(registration);
        assert!(FREED.load(Ordering::SeqCst), "nobody writes there any more");
        assert_eq!((card.open(), card.reads()), (vec![], vec![]));
        assert_eq!(card.complaints(), [""; 0]);
    }
}

/// A wire without events, which a test can break. Its network holds the memory that it is told to keep.
#[derive(Default)]
struct Network {
    taken: AtomicUsize,
    is_broken: AtomicBool,
    kept: Mutex<Vec<Keep>>,
}

struct Silent(Arc<Network>);

// SAFETY: every operation is one of the wire below.
unsafe impl Hooks for Silent {
    type Wire = MemoryWire;

    unsafe fn post(
        &mut self,
        wire: &mut MemoryWire,
        peer: usize,
        op: Op<'_, Far<Self>>,
        cookie: u64,
    ) -> Outcome<Posted> {
        self.0.taken.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the caller's promise.
        unsafe { wire.post(peer, op.handed_on(|remote| &**remote), cookie) }
    }

    fn poll(&mut self, _wire: &mut MemoryWire, _events: &mut Vec<Event>) -> Outcome<()> {
        match self.0.is_broken.load(Ordering::SeqCst) {
            true => Err(NicError::BadKey("as was wished".into())),
            false => Ok(()),
        }
    }

    fn keep(&mut self, _wire: &mut MemoryWire, what: Keep) {
        self.0.kept.lock().unwrap().push(what);
    }
}

/// The network keeps the memory of every program that is under way, whether or not somebody still waits for it.
#[test]
fn programs_that_are_under_way_are_left_to_the_network() {
    for (direction, breaks) in [
        (Direction::Put, false),
        (Direction::Put, true),
        (Direction::Get, false),
        (Direction::Get, true),
    ] {
        let network = Arc::new(Network::default());
        let (hooks, wire) = (
            Silent(network.clone()),
            Net::new(1, Faults::default()).wire(0),
        );
        let rig = Rig::new(Wrapped { hooks, wire }, Options::default(), false);
        rig.may_fail.store(true, Ordering::SeqCst);
        let (memory, other) = (Arc::new(()), Arc::new(()));
        let program = |memory: &Arc<()>| {
            let transfer = rig.transfer(&rig.memory, direction, 1);
            let keep: Keep = memory.clone();
            rig.program_keeping(0, vec![transfer], keep).unwrap()
        };
        rig.arm(&[program(&memory), program(&other)], 1).unwrap();
        rig.ring();
        until("nothing is posted", || {
            network.taken.load(Ordering::SeqCst) == 1
        });
        network.is_broken.store(breaks, Ordering::SeqCst);
        until("it is not found out", || {
            !breaks || rig.has_failed.load(Ordering::SeqCst)
        });
        drop(rig);
        let alive = |memory| Arc::strong_count(memory) > 1;
        assert!(alive(&memory), "{direction:?}, {breaks}");
        // Without a ring, a program is not under way. But after the wire has broken, nobody knows any more which
        // programs are.
        assert!(breaks || !alive(&other));
        network.kept.lock().unwrap().clear();
        assert!(!alive(&memory) && !alive(&other));
    }
}
