//! Several connections lead to a peer, and the network cuts one of them, while the others go on. A firewall does so
//! when it has forgotten a connection, and drops its packets.

mod rig;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rig::wrapped::{Far, Hooks, Outcome, Wrapped};
use rig::{Rig, SENT, SETTLES, SIGNAL, until};
use tidegate_fabric::Options;
use tidegate_fabric::wire::{Op, Posted, Sleeper, Wire as _};
use tidegate_fake::wire::{Faults, MemoryWire, Net};
use tidegate_hal::batch::{POISON, QUANTUM};
use tidegate_hal::nic::Direction;

/// The elements of a put that goes by both rails, and the offsets of its source and its destination.
const ELEMENTS: usize = 24_000;
const FROM: usize = 8192;
const TO: usize = FROM + 8 * ELEMENTS;
const SILENCE: Duration = Duration::from_millis(250);
const LONG: Duration = Duration::from_secs(600);

/// The state of the rail.
#[derive(Default)]
struct Cut {
    /// Operations that it has taken never end.
    is_cut: AtomicBool,
    /// How many operations it has taken since the cut.
    taken: AtomicUsize,
    /// The longest sleep that its thread has begun since the cut, in microseconds.
    slept: AtomicUsize,
}

/// The sleeper of an endpoint.
struct Sleeps {
    sleeper: Box<dyn Sleeper>,
    sends: Arc<AtomicBool>,
    cut: Arc<Cut>,
}

impl Sleeper for Sleeps {
    fn sleep(&self, limit: Duration) {
        if self.sends.load(Ordering::SeqCst) && self.cut.taken.load(Ordering::SeqCst) > 0 {
            let micros = limit.as_micros() as usize;
            self.cut.slept.fetch_max(micros, Ordering::SeqCst);
        }
        self.sleeper.sleep(limit);
    }

    fn wake(&self) {
        self.sleeper.wake();
    }

    fn hears(&self) -> bool {
        self.sleeper.hears()
    }
}

/// The wire in memory. All its endpoints except for the first can be cut.
struct Cuts {
    is_twin: bool,
    /// Whether it sends, and so is no ear.
    sends: Arc<AtomicBool>,
    cut: Arc<Cut>,
}

// SAFETY: operations are those of the wire, or touch nothing.
unsafe impl Hooks for Cuts {
    type Wire = MemoryWire;

    unsafe fn post(
        &mut self,
        wire: &mut MemoryWire,
        peer: usize,
        op: Op<'_, Far<Self>>,
        cookie: u64,
    ) -> Outcome<Posted> {
        self.sends.store(self.is_twin, Ordering::SeqCst);
        if self.is_twin && self.cut.is_cut.load(Ordering::SeqCst) {
            self.cut.taken.fetch_add(1, Ordering::SeqCst);
            return Ok(Posted::Taken);
        }
        // SAFETY: the caller's promise.
        unsafe { wire.post(peer, op.handed_on(|remote| &**remote), cookie) }
    }

    fn twin(&self) -> Option<Self> {
        Some(Cuts {
            is_twin: true,
            sends: Arc::default(),
            cut: self.cut.clone(),
        })
    }

    fn sleeper(&self, sleeper: Box<dyn Sleeper>) -> Box<dyn Sleeper> {
        Box::new(Sleeps {
            sleeper,
            sends: self.sends.clone(),
            cut: self.cut.clone(),
        })
    }
}

/// An endpoint with two rails, which has sent something by both. Its peer may be silent for twice `silence`.
fn met(silence: Duration) -> (Rig, Arc<Cut>) {
    let cut = Arc::<Cut>::default();
    let hooks = Cuts {
        is_twin: false,
        sends: Arc::default(),
        cut: cut.clone(),
    };
    let wire = Net::new(1, Faults::default()).wire(0);
    let options = Options::default().rails(2).silence(silence);
    let wire = Wrapped { hooks, wire };
    let rig = Rig::sized(wire, options, (false, true), TO + 8 * ELEMENTS);
    let mut put = rig.transfer(&rig.memory, Direction::Put, 0);
    (put.count, put.local.base) = (ELEMENTS, rig.at(FROM));
    (put.remote.base.offset, put.remote.flip) = (TO, 0);
    rig.arm(&[rig.program(vec![put])], 2).unwrap();
    rig.ring();
    assert_eq!(rig.wait(SENT, 1), QUANTUM);
    assert_eq!(rig.wait(SIGNAL, 1), QUANTUM);
    assert!(rig.nic.quiesce(SETTLES));
    (rig, cut)
}

/// Whether core hears that the wire has failed, while `meanwhile` is called again and again. `meanwhile` gets a
/// function that tells whether core has heard so yet.
fn fails(rig: &Rig, mut meanwhile: impl FnMut(&dyn Fn() -> bool)) -> bool {
    let has_failed = || rig.has_failed.load(Ordering::SeqCst);
    let begun = Instant::now();
    while begun.elapsed() < LONG && !has_failed() {
        meanwhile(&has_failed);
        std::thread::sleep(Duration::from_millis(5));
    }
    has_failed()
}

#[test]
fn a_rail_that_is_cut_ends_waits() {
    let (rig, cut) = met(SILENCE);
    rig.may_fail.store(true, Ordering::SeqCst);
    cut.is_cut.store(true, Ordering::SeqCst);
    rig.ring();
    assert!(fails(&rig, |_| {}), "half of it is missing for ever");
    assert_eq!(cut.taken.load(Ordering::SeqCst), 1);
    assert_eq!(rig.word(SIGNAL).load(), QUANTUM);
}

/// Operations that end on the engine's own endpoint are no sign of life of the rail's connection.
#[test]
fn a_rail_that_is_cut_ends_waits_although_others_go_on() {
    let (rig, cut) = met(SILENCE);
    rig.may_fail.store(true, Ordering::SeqCst);
    cut.is_cut.store(true, Ordering::SeqCst);
    let beside = rig.beside();
    rig.ring();
    let mut sent = 0;
    let failed = fails(&rig, |has_failed| {
        let put = rig.transfer(&rig.memory, Direction::Put, 1);
        beside.fires(&rig, rig.program_of(rig::OTHER, vec![put]).unwrap());
        sent += 1;
        let begun = Instant::now();
        // Each firing ends, unless the wire has failed by then.
        while beside.sent() < sent * QUANTUM && !has_failed() {
            assert!(begun.elapsed() < LONG, "the engine's own does not go on");
            std::thread::yield_now();
        }
    });
    assert!(failed, "half of it is missing for ever");
    assert_eq!(cut.taken.load(Ordering::SeqCst), 1);
}

/// The rail has taken a write towards a peer that then leaves. This ends the queue only, and the rail's thread sleeps
/// longer and longer.
#[test]
fn a_rail_that_is_cut_from_a_peer_that_has_left_rests() {
    // The peer must not count as silent before this thread has said that it leaves.
    let (rig, cut) = met(4 * SILENCE);
    cut.is_cut.store(true, Ordering::SeqCst);
    rig.ring();
    until("it takes nothing", || cut.taken.load(Ordering::SeqCst) > 0);
    rig.leaves(0);
    assert_eq!(rig.wait(SENT, 2), QUANTUM | POISON);
    until("it stays awake", || {
        cut.slept.load(Ordering::SeqCst) >= 100_000
    });
    assert!(!rig.has_failed.load(Ordering::SeqCst));
}

/// A rail without operations may be silent for any time.
#[test]
fn a_rail_that_is_not_waited_for_may_be_silent() {
    let (rig, cut) = met(SILENCE);
    cut.is_cut.store(true, Ordering::SeqCst);
    std::thread::sleep(4 * SILENCE);
    cut.is_cut.store(false, Ordering::SeqCst);
    rig.ring();
    assert_eq!(rig.wait(SENT, 2), 2 * QUANTUM);
    assert!(!rig.has_failed.load(Ordering::SeqCst));
}
