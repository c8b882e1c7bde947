//! Puts of more pieces than a notice can count: their signal waits for all of them, and goes with the last.

mod rig;

use rig::{Rig, SENT, SETTLES, SIGNAL};
use tidegate_fabric::Options;
use tidegate_fabric::wire::memory::{Faults, Net};
use tidegate_hal::batch::{QUANTUM, Shape};
use tidegate_hal::nic::Direction;

/// The most parts that a notice can say a signal has.
const PARTS: usize = 4097;
/// Where a put comes from, and goes to.
const FROM: usize = 64 << 10;
const MOST: usize = 2 * PARTS + 1;
const TO: usize = FROM + 8 * MOST;

/// Elements of which every other place at the target is one: a piece each.
fn pieces(pieces: usize, seed: u64) {
    // What is posted comes in any order, and late.
    let faults = Faults {
        seed,
        full: 100,
        delay: 9,
        ..Faults::default()
    };
    let wire = Net::new(1, faults).wire(0);
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
            // SAFETY: it lies in the block, aligned; nothing is under way.
            unsafe { at(FROM, element).write(value(element)) };
        }
        rig.ring();
        assert_eq!(rig.wait(SIGNAL, firing), firing * QUANTUM);
        for element in 0..pieces {
            // SAFETY: likewise; the signal has come.
            let found = unsafe { at(TO, 2 * element).read() };
            assert_eq!(found, value(element), "{element} of {pieces}");
        }
        assert_eq!(rig.wait(SENT, firing), firing * QUANTUM);
    }
    assert!(rig.nic.quiesce(SETTLES));
}

#[test]
fn as_many_as_a_notice_counts() {
    pieces(PARTS, 1);
}

#[test]
fn one_more() {
    pieces(PARTS + 1, 2);
}

#[test]
fn many_more() {
    pieces(MOST, 3);
}
