//! The node of a peer has lost its power, so that operations towards it never end. The other peers are well.

mod rig;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rig::wrapped::{Far, Hooks, Outcome, Wrapped};
use rig::{Rig, until};
use tidegate_fabric::Options;
use tidegate_fabric::wire::{Event, Limits, Op, Posted, Wire as _};
use tidegate_fake::wire::{Faults, MemoryWire, Net};
use tidegate_hal::batch::{POISON, QUANTUM};
use tidegate_hal::nic::{Direction, News};

/// The peer that is lost. The rig is rank 0, and its own peer.
const LOST: usize = 1;
const SILENCE: Duration = Duration::from_millis(400);

/// The operations towards the lost peer, by their cookies.
#[derive(Default)]
struct Swallowed {
    all: Mutex<Vec<u64>>,
    /// They end after all.
    end: AtomicBool,
}

impl Swallowed {
    fn count(&self) -> usize {
        self.all.lock().unwrap().len()
    }
}

/// The wire in memory, with room for `depth` operations. A twin has room for one.
struct Swallows {
    swallowed: Arc<Swallowed>,
    depth: usize,
    /// How many operations it has taken that are not over.
    under_way: usize,
}

// SAFETY: operations are those of the wire, or touch nothing.
unsafe impl Hooks for Swallows {
    type Wire = MemoryWire;

    fn limits(&self, limits: Limits) -> Limits {
        let depth = self.depth;
        Limits { depth, ..limits }
    }

    unsafe fn post(
        &mut self,
        wire: &mut MemoryWire,
        peer: usize,
        op: Op<'_, Far<Self>>,
        cookie: u64,
    ) -> Outcome<Posted> {
        if self.under_way == self.depth {
            return Ok(Posted::Full);
        }
        if peer == LOST {
            self.swallowed.all.lock().unwrap().push(cookie);
            self.under_way += 1;
            return Ok(Posted::Taken);
        }
        // SAFETY: the caller's promise.
        let posted = unsafe { wire.post(peer, op.handed_on(|remote| &**remote), cookie) }?;
        self.under_way += usize::from(matches!(posted, Posted::Taken));
        Ok(posted)
    }

    fn poll(&mut self, wire: &mut MemoryWire, events: &mut Vec<Event>) -> Outcome<()> {
        let before = events.len();
        wire.poll(events)?;
        if self.swallowed.end.load(Ordering::SeqCst) {
            let all = std::mem::take(&mut *self.swallowed.all.lock().unwrap());
            events.extend(all.into_iter().map(Event::Done));
        }
        let is_end = |event: &&Event| matches!(event, Event::Done(_) | Event::Failed(..));
        self.under_way -= events[before..].iter().filter(is_end).count();
        Ok(())
    }

    fn twin(&self) -> Option<Self> {
        Some(Swallows {
            swallowed: self.swallowed.clone(),
            depth: 1,
            under_way: 0,
        })
    }
}

fn wire(depth: usize) -> (Wrapped<Swallows>, Arc<Swallowed>) {
    let swallowed = Arc::<Swallowed>::default();
    let hooks = Swallows {
        swallowed: swallowed.clone(),
        depth,
        under_way: 0,
    };
    let wire = Net::new(1, Faults::default()).wire(0);
    (Wrapped { hooks, wire }, swallowed)
}

fn rig(options: Options, depth: usize) -> (Rig, Arc<Swallowed>) {
    let (wire, swallowed) = wire(depth);
    (Rig::new(wire, options.silence(SILENCE), false), swallowed)
}

/// Whether `is_so` after some times the silence.
fn comes(is_so: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while !is_so() && begun.elapsed() < 75 * SILENCE {
        std::thread::yield_now();
    }
    is_so()
}

/// A put that is in progress when the peer is lost holds its trigger slot only until it counts as endless.
#[test]
fn an_operation_that_never_ends_gives_its_slot_back() {
    let (rig, swallowed) = rig(Options::default().budget(1), 64);
    let (lost, well) = (rig.beside_towards(LOST), rig.beside());
    let kept = Arc::new(());
    let put = rig.transfer(&rig.memory, Direction::Put, 1);
    let program = rig.program_keeping(0, vec![put], kept.clone()).unwrap();
    lost.queue.arm(&[program.clone()].into(), 2).unwrap();
    lost.fires(&rig, program);
    until("nothing is posted", || swallowed.count() == 1);
    rig.nic.hear(LOST, News::Lost);
    well.fires(&rig, rig.put(2));
    assert!(comes(|| well.sent() == QUANTUM), "it gets no slot");
    assert_eq!((lost.sent(), lost.queue.counts()), (POISON, (3, 3)));
    assert!(comes(|| rig.nic.armed() == 0));
    // The memory of the operation stays until it ends, which is too late for the queue.
    assert_eq!(Arc::strong_count(&kept), 2);
    swallowed.end.store(true, Ordering::SeqCst);
    until("it is kept for ever", || Arc::strong_count(&kept) == 1);
    well.fires(&rig, rig.put(2));
    until("it does not go on", || well.sent() == 2 * QUANTUM);
    assert_eq!((lost.sent(), rig.nic.armed()), (POISON, 0));
}

/// Operations towards the lost peer take all the room of the wire for ever. So nothing goes to other peers any more,
/// and that ends their waits.
#[test]
fn operations_that_never_end_leave_no_wait_without_end() {
    let (rig, swallowed) = rig(Options::default(), 4);
    rig.may_fail.store(true, Ordering::SeqCst);
    let lost = [0; 2].map(|_| rig.beside_towards(LOST));
    let well = rig.beside();
    for queue in &lost {
        let puts = [1, 2, 3].map(|to| rig.transfer(&rig.memory, Direction::Put, to));
        queue.fires(&rig, rig.program(puts.into()));
    }
    until("there is room", || swallowed.count() == 4);
    rig.nic.hear(LOST, News::Lost);
    well.fires(&rig, rig.put(4));
    assert!(comes(|| well.sent() != 0), "it waits without end");
    assert_eq!(well.sent(), POISON);
    // The peer is there, and cannot be told of this.
    assert!(comes(|| rig.has_failed.load(Ordering::SeqCst)));
}

/// The same holds for a rail. Only writes that need the rail fail, and the peer is told by the other endpoint.
#[test]
fn operations_of_a_rail_that_never_end_leave_no_wait_without_end() {
    const ELEMENTS: usize = 24_000;
    const FROM: usize = 8192;
    const TO: usize = FROM + 8 * ELEMENTS;
    let (wire, swallowed) = wire(64);
    let options = Options::default().rails(2).silence(SILENCE);
    let rig = Rig::sized(wire, options, (false, true), TO + 8 * ELEMENTS);
    let (lost, well) = (rig.beside_towards(LOST), rig.beside());
    let long = || {
        let mut put = rig.transfer(&rig.memory, Direction::Put, 0);
        (put.count, put.local.base) = (ELEMENTS, rig.at(FROM));
        (put.remote.base.offset, put.remote.flip) = (TO, 0);
        rig.program(vec![put])
    };
    // A peer that has answered is not silent just because a rail takes nothing.
    well.fires(&rig, rig.put(1));
    until("it is not sent", || well.sent() == QUANTUM);
    assert!(rig.nic.quiesce(rig::SETTLES));
    lost.fires(&rig, long());
    until("the rail has room", || swallowed.count() == 2);
    rig.nic.hear(LOST, News::Lost);
    well.fires(&rig, long());
    assert!(comes(|| well.sent() != QUANTUM), "it waits without end");
    assert_eq!(well.sent(), QUANTUM | POISON);
    assert!(!rig.has_failed.load(Ordering::SeqCst));
}
