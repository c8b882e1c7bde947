//! Networks that take long for what is long.

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

/// Bytes of a put; where it comes from, and where it goes.
const LONG: usize = 16 << 20;
const FROM: usize = 64 << 10;
const TO: usize = FROM + LONG;
/// What a peer may be silent for is twice this.
const SILENCE: Duration = Duration::from_millis(250);
/// What a MiB takes, if many of an operation's take less than a peer may be silent for, or one of them more.
const EACH: Duration = Duration::from_millis(75);
const SLOWER: Duration = Duration::from_millis(250);

/// A connection that carries one operation after the other, of any length.
struct Slow {
    /// What a MiB takes.
    each: Duration,
    /// When it will have carried all that was posted.
    free: Option<Instant>,
    /// When which operation is over, by its cookie.
    over: HashMap<u64, Instant>,
    held: Vec<Event>,
}

// SAFETY: operations are the wire's, and their events come later.
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

/// Over such a network, a put or a get of so many bytes, which has begun.
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

/// It goes on.
fn goes_on(direction: Direction, bytes: usize, each: Duration) {
    let before = Instant::now();
    let rig = begun(direction, bytes, each);
    assert_eq!(rig.wait(SENT, 1), QUANTUM);
    assert_eq!(rig.wait(SIGNAL, 1), QUANTUM);
    assert!(before.elapsed() > 4 * SILENCE, "it was not slow");
    assert!(rig.nic.quiesce(SETTLES));
    assert!(!rig.has_failed.load(Ordering::SeqCst));
}

/// Whoever is told by the end of each part of it that it goes on does not take its peer for silent.
#[test]
fn a_long_transfer_over_a_slow_network_goes_on() {
    goes_on(Direction::Put, LONG, EACH);
    goes_on(Direction::Get, LONG, EACH);
}

/// Nor where each part takes longer than a peer may be silent for, since so many bytes may.
#[test]
fn each_part_of_a_long_transfer_has_the_time_of_its_bytes() {
    goes_on(Direction::Put, LONG / 2, SLOWER);
    goes_on(Direction::Get, LONG / 2, SLOWER);
}

/// Nor does a rank leave before the last of it has gone out.
#[test]
fn who_leaves_waits_for_what_goes_on() {
    let rig = begun(Direction::Put, LONG / 2, SLOWER);
    assert!(rig.nic.quiesce(10 * SETTLES), "it did not go on");
    assert_eq!(rig.word(SENT).load(), QUANTUM);
    assert_eq!(rig.word(SIGNAL).load(), QUANTUM);
}
