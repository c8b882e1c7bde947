//! Strided puts and gets. There are as many operations as the target's side has stretches, and the right data comes.

mod rig;
#[path = "rig/watched.rs"]
mod watched;

use std::sync::atomic::Ordering;

use rig::{OTHER, Rig, SENT, SETTLES, SIGNAL};
use tidegate_fabric::Options;
use tidegate_fake::wire::{Faults, Net};
use tidegate_hal::batch::{POISON, QUANTUM, Shape};
use tidegate_hal::nic::{Direction, Transfer};

fn strided(loops: &[(u32, i32)]) -> Shape {
    let mut dims = [(1, 0); Shape::MAX_DIMS];
    dims[..loops.len()].copy_from_slice(loops);
    let rank = loops.len() as u32;
    Shape::Strided { dims, rank }
}

/// Puts 12 elements to `to` and the places behind it: every other element of 4 rows of 6. Odd firings use the other
/// buffer here and there.
fn put(rig: &Rig, to: usize) -> Transfer {
    let mut put = rig.transfer(&rig.memory, Direction::Put, to);
    put.count = 12;
    put.local.shape = strided(&[(3, 2), (4, 6)]);
    put
}

/// Gets the first 12 elements to the same places: every other element of 4 rows of 6.
fn get(rig: &Rig, to: usize) -> Transfer {
    let mut get = rig.transfer(&rig.memory, Direction::Get, to);
    get.count = 12;
    get.local.shape = strided(&[(3, 2), (4, 6)]);
    get.remote.flip = 0;
    get
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
    // Stretches that are apart at the target are not joined.
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
    rig.arm(&[rig.program(vec![get(&rig, 30)])], 2).unwrap();
    for firing in 1..=2 {
        fire(&rig, firing);
        for at in 0..24 {
            let (row, column) = (at / 6, at % 6);
            let expected = match column % 2 {
                0 => 1000 * firing + 3 * row + column / 2,
                // Elements between those are not changed.
                _ => 0,
            };
            assert_eq!(rig.read(30 + at as usize), expected, "{at}");
        }
        assert_eq!((seen.posted(), seen.reads()), (0, firing as usize));
    }
}

/// The elements of a transfer's local side, for each parity; and where the sides of all transfers lie.
const SIDE: usize = 24;
const THERE: usize = 300;
const GOT: usize = 640;

/// A program of puts and gets, each with elements of its own for each parity of the firing. The last is a get, so the
/// last put must have ended before the signal.
fn mixed(rig: &Rig) -> Vec<Transfer> {
    let mut all = Vec::new();
    for number in 0..3 {
        let mut put = put(rig, THERE + 64 * number);
        put.local.base = put.local.base.byte_add(8 * 2 * SIDE * number);
        put.local.flip = 8 * SIDE;
        all.push(put);
        let mut get = get(rig, GOT + 2 * SIDE * number);
        get.local.flip = 8 * SIDE;
        get.remote.base.offset += 8 * 2 * SIDE * number;
        get.remote.flip = 8 * SIDE;
        all.push(get);
    }
    all
}

/// The value of element `at` of a side in a firing.
fn value(firing: u64, number: usize, at: usize) -> u64 {
    100_000 * firing + 1000 * number as u64 + at as u64
}

fn write_sides(rig: &Rig, firing: u64) {
    // The first is number 0.
    let odd = (firing as usize + 1) % 2;
    for number in 0..3 {
        for at in 0..SIDE {
            rig.write(SIDE * (2 * number + odd) + at, value(firing, number, at));
        }
    }
}

fn check_sides(rig: &Rig, firing: u64) {
    let odd = (firing as usize + 1) % 2;
    for number in 0..3 {
        for at in 0..12 {
            let strided = 6 * (at / 3) + 2 * (at % 3);
            let there = rig.read(THERE + 64 * number + 32 * odd + at);
            assert_eq!(there, value(firing, number, strided), "put {number}, {at}");
            let got = rig.read(GOT + SIDE * (2 * number + odd) + strided);
            assert_eq!(got, value(firing, number, at), "get {number}, {at}");
        }
    }
}

/// The data comes over a wire that is often full, delays operations, and loses their order.
#[test]
fn gathered_data_comes_over_a_bad_wire() {
    const FIRINGS: u64 = 20;
    let faults = Faults {
        full: 500,
        delay: 5,
        ..Faults::default()
    };
    let rig = Rig::new(Net::new(1, faults).wire(0), Options::default(), false);
    rig.arm(&[rig.program(mixed(&rig))], FIRINGS).unwrap();
    for firing in 1..=FIRINGS {
        write_sides(&rig, firing);
        rig.ring();
        assert_eq!(rig.wait(SIGNAL, firing), firing * QUANTUM);
        assert_eq!(rig.wait(SENT, firing), firing * QUANTUM);
        check_sides(&rig, firing);
    }
    assert!(rig.nic.quiesce(SETTLES));
}

/// An operation that fails ends its queue, and both ends hear of it. Firings that were through before have the right
/// data.
#[test]
fn gathered_operations_may_fail() {
    let (mut failed, mut right) = (0, 0);
    for seed in 0..40 {
        let faults = Faults {
            seed,
            full: 100,
            fail: 60,
            delay: 2,
            ..Faults::default()
        };
        let rig = Rig::new(Net::new(1, faults).wire(0), Options::default(), false);
        rig.arm(&[rig.program(mixed(&rig))], 4).unwrap();
        for firing in 1..=4 {
            write_sides(&rig, firing);
            rig.ring();
            if rig.wait(SENT, firing) & POISON != 0 {
                assert!(rig.wait(SIGNAL, 5) & POISON != 0);
                failed += 1;
                break;
            }
            if rig.wait(SIGNAL, firing) & POISON == 0 {
                check_sides(&rig, firing);
                right += 1;
            }
        }
    }
    assert!(failed > 5 && right > 5, "{failed}, {right}");
}

/// More operations fail than there are buffers, and their queues are gone. Afterwards, all buffers must be free again.
#[test]
fn buffers_of_failed_operations_come_back() {
    const SIZE: usize = 4 << 20;
    const EACH: usize = (256 << 10) / 8;
    let (wire, seen) = watched::watch(Net::new(1, Faults::default()).wire(0));
    let rig = Rig::sized(wire, Options::default(), (false, false), SIZE);
    let strided = |count: usize| {
        let mut put = rig.transfer(&rig.memory, Direction::Put, 300_000);
        (put.count, put.local.shape) = (count, strided(&[(count as u32, 2)]));
        put.remote.flip = 0;
        put
    };
    // Fires a long put, of which four pieces are posted at a time.
    let at_a_time = |rings: u64| {
        let before = seen.posted();
        seen.hold.store(true, Ordering::SeqCst);
        rig.ring();
        seen.await_posts(before + 4, 0);
        seen.hold.store(false, Ordering::SeqCst);
        assert_eq!(rig.wait(SENT, rings), rings * QUANTUM);
    };
    rig.arm(&[rig.program(vec![strided(4 * EACH)])], 2).unwrap();
    at_a_time(1);
    seen.fails_writes.store(true, Ordering::SeqCst);
    for failure in 0..70 {
        let beside = rig.beside();
        // The queue has a signal of its own.
        let other = SIZE - (64 << 10) + 64 * failure;
        let program = rig.program_of(other, vec![strided(EACH)]).unwrap();
        beside.fires(&rig, program);
        while beside.sent() & POISON == 0 {
            std::thread::yield_now();
        }
    }
    seen.fails_writes.store(false, Ordering::SeqCst);
    at_a_time(2);
}

/// The wire breaks, or the endpoint is dropped, while operations use buffers.
#[test]
fn lent_buffers_stay_until_the_wire_is_closed() {
    for breaks in [true, false] {
        let net = Net::new(1, Faults::default());
        let (rig, seen) = watched::over(net.wire(0), false, Options::default());
        seen.hold.store(true, Ordering::SeqCst);
        rig.arm(&[rig.program(mixed(&rig))], 2).unwrap();
        write_sides(&rig, 1);
        rig.ring();
        // The last put waits for the other operations.
        seen.await_posts(2, 3);
        if breaks {
            rig.may_fail.store(true, Ordering::SeqCst);
            net.break_wire(0);
            assert_eq!(rig.wait(SENT, 1) & POISON, POISON);
        }
        drop(rig);
    }
}

/// One queue gathers much more than is copied in one turn, and more than fits into all buffers, over a wire that is
/// often full. A short put of another queue goes on beside it.
#[test]
fn a_long_gathered_put_keeps_no_other_back() {
    const MUCH: usize = 20 << 20;
    // The rows overlap, so the source is smaller than the data that is sent.
    let loops = [(1000, 2), (20, 3), (MUCH as u32 / 8 / 20_000, 5)];
    let count = 20_000 * (MUCH / 8 / 20_000);
    let element = |at: usize| 2 * (at % 1000) + 3 * (at / 1000 % 20) + 5 * (at / 20_000);
    const LOCAL: usize = 4096;
    for polled in [false, true] {
        let faults = Faults {
            full: 300,
            delay: 5,
            ..Faults::default()
        };
        let wire = Net::new(1, faults).wire(0);
        let rig = Rig::sized(wire, Options::default(), (false, polled), MUCH + (1 << 20));
        let other = rig.another();
        let mut much = rig.transfer(&rig.memory, Direction::Put, 2 * LOCAL);
        (much.count, much.local.shape, much.remote.flip) = (count, strided(&loops), 0);
        let little = put(&rig, LOCAL);
        rig.arm(&[rig.program(vec![much])], 2).unwrap();
        let little = rig.program_of(OTHER, vec![little]).unwrap();
        other.arm(&[little].into(), 40).unwrap();
        for firing in 1..=2 {
            for at in 0..LOCAL {
                rig.write(at, 10_000 * firing + at as u64);
            }
            rig.ring();
            // The puts of the other queue go on meanwhile, or after it, and each is right.
            for ring in 1..=20 {
                let ring = 20 * (firing - 1) + ring;
                rig.ring_part(OTHER, 0, 1);
                assert_eq!(rig.wait(SIGNAL + OTHER, ring), ring * QUANTUM);
                let odd = if ring % 2 == 0 { 32 } else { 0 };
                let row = |row: u64| [0, 2, 4].map(move |at| 10_000 * firing + 6 * row + at);
                let expected: Vec<u64> = (0..4).flat_map(row).collect();
                assert_eq!(found(&rig, LOCAL + odd), expected, "{ring}");
            }
            assert_eq!(rig.wait(SENT, firing), firing * QUANTUM);
            assert_eq!(rig.wait(SIGNAL, firing), firing * QUANTUM);
            for at in 0..count {
                let expected = 10_000 * firing + element(at) as u64;
                assert_eq!(rig.read(2 * LOCAL + at), expected, "{at}");
            }
        }
        assert!(rig.nic.quiesce(SETTLES));
    }
}
