//! Strided puts and gets: as many operations as the target's side has stretches, and what comes is what was there.

mod rig;
#[path = "rig/watched.rs"]
mod watched;

use rig::{Rig, SENT, SETTLES, SIGNAL};
use tidegate_fabric::Options;
use tidegate_fabric::wire::memory::{Faults, Net};
use tidegate_hal::batch::{QUANTUM, Shape};
use tidegate_hal::nic::{Direction, Transfer};

fn strided(loops: &[(u32, i32)]) -> Shape {
    let mut dims = [(1, 0); Shape::MAX_DIMS];
    dims[..loops.len()].copy_from_slice(loops);
    let rank = loops.len() as u32;
    Shape::Strided { dims, rank }
}

/// 12 elements, every other one of 4 rows of 6, to places from `to` on; from there in odd firings, too.
fn put(rig: &Rig, to: usize) -> Transfer {
    let mut put = rig.transfer(&rig.memory, Direction::Put, to);
    put.count = 12;
    put.local.shape = strided(&[(3, 2), (4, 6)]);
    put
}

fn expected(firing: u64) -> Vec<u64> {
    let row = |row: u64| [0, 2, 4].map(move |at| 1000 * firing + 6 * row + at);
    (0..4).flat_map(row).collect()
}

/// Writes the elements, rings, and waits.
fn fire(rig: &Rig, firing: u64) {
    for at in 0..24 {
        rig.write(at, 1000 * firing + at as u64);
    }
    rig.ring();
    assert_eq!(rig.wait(SIGNAL, firing), firing * QUANTUM);
    assert_eq!(rig.wait(SENT, firing), firing * QUANTUM);
}

fn found(rig: &Rig, from: usize) -> Vec<u64> {
    (from..from + 12).map(|at| rig.read(at)).collect()
}

#[test]
fn a_strided_put_is_one_operation() {
    let (rig, seen) = watched::watched(false, Options::default(), Faults::default());
    rig.arm(&[rig.program(vec![put(&rig, 30)])], 4).unwrap();
    for firing in 1..=4 {
        fire(&rig, firing);
        // The first is number 0.
        let odd = if firing % 2 == 0 { 32 } else { 0 };
        assert_eq!(found(&rig, 30 + odd), expected(firing));
        assert_eq!(seen.posted(), firing as usize);
    }
    // What is apart there is not put together.
    let mut apart = put(&rig, 30);
    apart.remote.shape = strided(&[(3, 1), (4, 5)]);
    rig.arm(&[rig.program(vec![apart])], 1).unwrap();
    fire(&rig, 5);
    assert_eq!(seen.posted(), 4 + 4);
    let rows: Vec<u64> = (0..4)
        .flat_map(|row| [0, 1, 2].map(|at| rig.read(30 + 5 * row + at)))
        .collect();
    assert_eq!(rows, expected(5));
}

#[test]
fn a_strided_get_is_one_operation() {
    let (rig, seen) = watched::watched(false, Options::default(), Faults::default());
    let mut get = rig.transfer(&rig.memory, Direction::Get, 30);
    get.count = 12;
    get.local.shape = strided(&[(3, 2), (4, 6)]);
    get.remote.flip = 0;
    rig.arm(&[rig.program(vec![get])], 2).unwrap();
    for firing in 1..=2 {
        fire(&rig, firing);
        for at in 0..24 {
            let (row, column) = (at / 6, at % 6);
            let expected = match column % 2 {
                0 => 1000 * firing + 3 * row + column / 2,
                // What lies between is left alone.
                _ => 0,
            };
            assert_eq!(rig.read(30 + at as usize), expected, "{at}");
        }
        assert_eq!((seen.posted(), seen.reads()), (0, firing as usize));
    }
}

/// Programs of several, whose last goes with the signal, over a wire that is often full, and late, and loses order.
#[test]
fn what_is_gathered_comes_over_a_bad_wire() {
    const FIRINGS: u64 = 20;
    let faults = Faults {
        full: 500,
        delay: 5,
        ..Faults::default()
    };
    let rig = Rig::new(Net::new(1, faults).wire(0), Options::default(), false);
    let all = |rig: &Rig| (0..5).map(|piece| put(rig, 30 + 64 * piece)).collect();
    rig.arm(&[rig.program(all(&rig))], FIRINGS).unwrap();
    for firing in 1..=FIRINGS {
        fire(&rig, firing);
        let odd = if firing % 2 == 0 { 32 } else { 0 };
        for piece in 0..5 {
            assert_eq!(
                found(&rig, 30 + 64 * piece + odd),
                expected(firing),
                "{piece}"
            );
        }
    }
    assert!(rig.nic.quiesce(SETTLES));
}
