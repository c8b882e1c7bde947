//! Puts of more pieces than a notice can count. Their signal waits for all pieces, and goes with the last one.

mod rig;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rig::wrapped::{Far, Hooks, Outcome, Wrapped};
use rig::{Rig, SENT, SETTLES, SIGNAL};
use tidegate_fabric::Options;
use tidegate_fabric::wire::{Event, Op, Posted, Wire as _};
use tidegate_fake::wire::{Faults, MemoryWire, Net};
use tidegate_hal::batch::{QUANTUM, Shape};
use tidegate_hal::nic::Direction;

/// The most parts of a signal that a notice can count.
const PARTS: usize = 4097;
/// The offsets of a put's source and destination.
const FROM: usize = 64 << 10;
const MOST: usize = 2 * PARTS + 1;
const TO: usize = FROM + 8 * MOST;

/// The wire in memory. It counts notices, and checks which writes are under way when one is sent.
#[derive(Default)]
struct Counts {
    notices: Arc<AtomicUsize>,
    /// The writes that bring no notice, and are not over yet.
    bare: HashSet<u64>,
}

// SAFETY: every operation is one of the wire below.
unsafe impl Hooks for Counts {
    type Wire = MemoryWire;

    unsafe fn post(
        &mut self,
        wire: &mut MemoryWire,
        peer: usize,
        op: Op<'_, Far<Self>>,
        cookie: u64,
    ) -> Outcome<Posted> {
        let brings = match op {
            Op::Write { notice, .. } => Some(notice.is_some()),
            Op::Read { .. } | Op::Notify(_) => None,
        };
        // SAFETY: the caller's promise.
        let posted = unsafe { wire.post(peer, op.handed_on(|remote| &**remote), cookie) };
        match brings.filter(|_| matches!(posted, Ok(Posted::Taken))) {
            Some(true) => {
                assert!(self.bare.is_empty(), "it is not all there yet");
                self.notices.fetch_add(1, Ordering::SeqCst);
            }
            Some(false) => assert!(self.bare.insert(cookie)),
            None => {}
        }
        posted
    }

    fn poll(&mut self, wire: &mut MemoryWire, events: &mut Vec<Event>) -> Outcome<()> {
        wire.poll(events)?;
        for event in events {
            if let Event::Done(cookie) = event {
                self.bare.remove(cookie);
            }
        }
        Ok(())
    }
}

/// Puts elements to every other place of the target, so that each is a piece. Returns how many notices a firing takes.
fn notices_of(pieces: usize, seed: u64) -> usize {
    // Operations end late, and in any order.
    let faults = Faults {
        seed,
        full: 100,
        delay: 9,
        ..Faults::default()
    };
    let wire = Net::new(1, faults).wire(0);
    let hooks = Counts::default();
    let notices = hooks.notices.clone();
    let wire = Wrapped { hooks, wire };
    let rig = Rig::sized(wire, Options::default(), (false, false), TO + 16 * MOST);
    let at = |place: usize, element: usize| rig.at(place + 8 * element).0.cast::<u64>();
    let mut put = rig.transfer(&rig.memory, Direction::Put, 0);
    put.count = pieces;
    put.local.base = rig.at(FROM);
    (put.remote.base.offset, put.remote.flip) = (TO, 0);
    let mut dims = [(1, 0); Shape::MAX_DIMS];
    dims[0] = (pieces as u32, 2);
    put.remote.shape = Shape::Strided { dims, rank: 1 };
    rig.arm(&[rig.program(vec![put])], 2).unwrap();
    for firing in 1..=2 {
        let value = |element: usize| firing << 32 | element as u64;
        for element in 0..pieces {
            // SAFETY: the element lies in the block, aligned; nothing is under way.
            unsafe { at(FROM, element).write(value(element)) };
        }
        rig.ring();
        assert_eq!(rig.wait(SIGNAL, firing), firing * QUANTUM);
        for element in 0..pieces {
            // SAFETY: as above; the signal has come.
            let found = unsafe { at(TO, 2 * element).read() };
            assert_eq!(found, value(element), "{element} of {pieces}");
        }
        assert_eq!(rig.wait(SENT, firing), firing * QUANTUM);
    }
    assert!(rig.nic.quiesce(SETTLES));
    notices.load(Ordering::SeqCst) / 2
}

#[test]
fn as_many_pieces_as_a_notice_counts() {
    assert_eq!(notices_of(PARTS, 1), PARTS);
}

#[test]
fn one_piece_more() {
    assert_eq!(notices_of(PARTS + 1, 2), 1);
}

#[test]
fn many_pieces_more() {
    assert_eq!(notices_of(MOST, 3), 1);
}
