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

/// The wire in memory, with room for `depth` operations.
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
}

fn rig(options: Options, depth: usize) -> (Rig, Arc<Swallowed>) {
    let swallowed = Arc::<Swallowed>::default();
    let hooks = Swallows {
        swallowed: swallowed.clone(),
        depth,
        under_way: 0,
    };
    let wire = Net::new(1, Faults::default()).wire(0);
    let rig = Rig::new(Wrapped { hooks, wire }, options.silence(SILENCE), false);
    (rig, swallowed)
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
