//! Slow networks, which take long for long transfers.

mod rig;

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rig::wrapped::{Far, Hooks, Outcome, Wrapped};
use rig::{Rig, SENT, SETTLES, SIGNAL};
use tidegate_fabric::Options;
use tidegate_fabric::wire::{Event, Limits, Op, Posted, Wire as _};
use tidegate_fake::wire::{Faults, MemoryWire, Net};
use tidegate_hal::batch::QUANTUM;
use tidegate_hal::nic::Direction;

/// The bytes of a transfer, and the offsets of its two sides.
const LONG: usize = 16 << 20;
const FROM: usize = 64 << 10;
const TO: usize = FROM + LONG;
/// A peer may be silent for twice this time.
const SILENCE: Duration = Duration::from_millis(250);
/// The time that a MiB takes. In the first network, an operation ends often enough that the peer never seems silent. In
/// the second, one part takes longer than a peer may be silent.
const EACH: Duration = Duration::from_millis(75);
const SLOWER: Duration = Duration::from_millis(250);

/// A connection that carries one operation after the other, of any length.
struct Slow {
    /// The time that a MiB takes.
    each: Duration,
    /// When it will have carried everything that was posted.
    free: Option<Instant>,
    /// When each operation is over, by its cookie.
    over: HashMap<u64, Instant>,
    held: Vec<Event>,
}

// SAFETY: every operation is one of the wire below, and its event comes later.
unsafe impl Hooks for Slow {
    type Wire = MemoryWire;

    fn limits(&self, limits: Limits) -> Limits {
        Limits {
            bytes: LONG,
            ..limits
        }
    }

    unsafe fn post(
        &mut self,
        wire: &mut MemoryWire,
        peer: usize,
        op: Op<'_, Far<Self>>,
        cookie: u64,
    ) -> Outcome<Posted> {
        let bytes = match op {
            Op::Write { bytes, .. } | Op::Read { bytes, .. } => bytes,
            Op::Notify(_) => 8,
        };
        // SAFETY: the caller's promise.
        let posted = unsafe { wire.post(peer, op.handed_on(|remote| &**remote), cookie) };
        if matches!(posted, Ok(Posted::Taken)) {
            let now = Instant::now();
            let begins = self.free.map_or(now, |free| free.max(now));
            let ends = begins + self.each.mul_f64(bytes as f64 / (1 << 20) as f64);
            self.free = Some(ends);
            self.over.insert(cookie, ends);
        }
        posted
    }

    fn poll(&mut self, wire: &mut MemoryWire, events: &mut Vec<Event>) -> Outcome<()> {
        wire.poll(&mut self.held)?;
        let now = Instant::now();
        for event in std::mem::take(&mut self.held) {
            match event {
                Event::Done(cookie) if self.over[&cookie] > now => self.held.push(event),
                event => events.push(event),
            }
        }
        Ok(())
    }

    fn may_sleep(&self) -> bool {
        self.held.is_empty()
    }
}

/// Begins a put or a get of so many bytes over such a network.
fn begun(direction: Direction, bytes: usize, each: Duration) -> Rig {
    let hooks = Slow {
        each,
        free: None,
        over: HashMap::new(),
        held: Vec::new(),
    };
    let wire = Net::new(1, Faults::default()).wire(0);
    let options = Options::default().silence(SILENCE);
    let rig = Rig::sized(Wrapped { hooks, wire }, options, (false, false), TO + LONG);
    let mut long = rig.transfer(&rig.memory, direction, 0);
    long.count = bytes / 8;
    (long.local.base, long.remote.base.offset) = (rig.at(FROM), TO);
    long.remote.flip = 0;
    rig.arm(&[rig.program(vec![long])], 1).unwrap();
    rig.ring();
    rig
}

/// Checks that a slow transfer goes on to its end.
fn goes_on(direction: Direction, bytes: usize, each: Duration) {
    let before = Instant::now();
    let rig = begun(direction, bytes, each);
    assert_eq!(rig.wait(SENT, 1), QUANTUM);
    assert_eq!(rig.wait(SIGNAL, 1), QUANTUM);
    assert!(before.elapsed() > 4 * SILENCE, "it was not slow");
    assert!(rig.nic.quiesce(SETTLES));
    assert!(!rig.has_failed.load(Ordering::SeqCst));
}

/// The end of each part of a transfer shows that it goes on, so the peer does not count as silent.
#[test]
fn a_long_transfer_over_a_slow_network_goes_on() {
    goes_on(Direction::Put, LONG, EACH);
    goes_on(Direction::Get, LONG, EACH);
}

/// A part may take longer than a peer may be silent, because it gets the time that its bytes need.
#[test]
fn each_part_of_a_long_transfer_has_the_time_of_its_bytes() {
    goes_on(Direction::Put, LONG / 2, SLOWER);
    goes_on(Direction::Get, LONG / 2, SLOWER);
}

/// A rank does not leave before the last part has gone out.
#[test]
fn a_rank_that_leaves_waits_for_transfers_that_go_on() {
    let rig = begun(Direction::Put, LONG / 2, SLOWER);
    assert!(rig.nic.quiesce(10 * SETTLES), "it did not go on");
    assert_eq!(rig.word(SENT).load(), QUANTUM);
    assert_eq!(rig.word(SIGNAL).load(), QUANTUM);
}
