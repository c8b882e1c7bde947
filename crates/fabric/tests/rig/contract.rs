//! The contract of NICs: a test for each rule, with any endpoint that is its own peer.

use std::time::Duration;

use tidegate_hal::batch::{POISON, QUANTUM};
use tidegate_hal::nic::{Direction, NicError, Prepared, Transfer};

use super::{FLIP, Rig, SENT, SETTLES, SIGNAL};

pub(crate) fn a_ring_fires_the_next_program_and_its_number_chooses_the_buffer(rig: &Rig) {
    rig.arm(&[rig.put(1), rig.put(2)], 2).unwrap();
    // Elements 1 and 2 take turns, and so do the buffers: 1 is always written to the even one, and 2 to the odd one.
    for firing in 1..=4 {
        rig.write(0, firing);
        rig.ring();
        assert_eq!(rig.wait(SIGNAL, firing), firing * QUANTUM);
        assert_eq!(rig.wait(SENT, firing), firing * QUANTUM);
    }
    let odd = FLIP / 8;
    assert_eq!((rig.read(1), rig.read(2 + odd)), (3, 4));
    assert_eq!((rig.read(1 + odd), rig.read(2)), (0, 0));
    // A get reads the peer's memory, and writes this end's.
    let get = rig.transfer(&rig.memory, Direction::Get, 5);
    rig.arm(&[rig.program(vec![get])], 1).unwrap();
    rig.ring();
    assert_eq!(rig.wait(SENT, 5), 5 * QUANTUM);
    assert_eq!(rig.read(5), 4);
}

/// Rings run ahead of all data, for programs with any number of pieces. Each signal finds the data of its own firing.
pub(crate) fn rings_that_run_ahead_signal_in_order(rig: &Rig) {
    const FIRINGS: u64 = 24;
    rig.write(0, 7);
    for firing in 0..FIRINGS as usize {
        // A program has 0 to 3 pieces, each with a place of its own.
        let pieces = (0..firing % 4).map(|piece| {
            let mut put = rig.transfer(&rig.memory, Direction::Put, 100 + 4 * firing + piece);
            put.remote.flip = 0;
            put
        });
        rig.arm(&[rig.program(pieces.collect())], 1).unwrap();
    }
    for _ in 0..FIRINGS {
        rig.ring();
    }
    let mut seen = 0;
    while seen < FIRINGS {
        seen = rig.wait(SIGNAL, seen + 1) / QUANTUM;
        for firing in 0..seen as usize {
            for piece in 0..firing % 4 {
                let found = rig.read(100 + 4 * firing + piece);
                assert_eq!(
                    found, 7,
                    "piece {piece} of firing {firing} at signal {seen}"
                );
            }
        }
    }
    assert_eq!(rig.wait(SENT, FIRINGS), FIRINGS * QUANTUM);
    assert!(rig.nic.quiesce(SETTLES));
}

pub(crate) fn a_doorbell_that_is_poisoned_ends_the_waits_on_both_ends(rig: &Rig) {
    let put = rig.put(1);
    rig.write(0, 9);
    rig.arm(std::slice::from_ref(&put), 3).unwrap();
    rig.ring();
    rig.poison();
    // Programs that were rung for fire, and counts that have come are not taken back.
    assert_eq!(rig.wait(SENT, 3), QUANTUM | POISON);
    assert_eq!(rig.wait(SIGNAL, 3), QUANTUM | POISON);
    assert_eq!(rig.read(1), 9);
    let refused = rig.arm(&[put], 1);
    assert!(matches!(refused, Err(NicError::GivenUp)));
    assert!(rig.nic.quiesce(SETTLES));
}

pub(crate) fn a_transfer_that_fails_signals_nothing(rig: &Rig) {
    let programs = [rig.put(5), rig.fails(1), rig.put(4)];
    rig.arm(&programs, 1).unwrap();
    rig.write(0, 5);
    for _ in 0..3 {
        rig.ring();
    }
    assert_eq!(rig.wait(SENT, 3), QUANTUM | POISON);
    assert_eq!(rig.wait(SIGNAL, 3), QUANTUM | POISON);
    // Nothing comes later.
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(rig.word(SIGNAL).load(), QUANTUM | POISON);
    assert_eq!(rig.word(SENT).load(), QUANTUM | POISON);
    assert!(rig.nic.quiesce(SETTLES));
}

pub(crate) fn a_program_without_a_slot_waits_for_one_and_is_fired(rig: &Rig) {
    let put = [rig.put(1)];
    assert_eq!((rig.nic.budget(), rig.nic.armed()), (2, 0));
    rig.arm(&put, 5).unwrap();
    assert_eq!((rig.nic.armed(), rig.queue().counts()), (5, (5, 0)));
    for _ in 0..5 {
        rig.ring();
    }
    assert_eq!(rig.wait(SIGNAL, 5), 5 * QUANTUM);
    assert_eq!(rig.wait(SENT, 5), 5 * QUANTUM);
    // The slot was free before the sent word said so.
    assert_eq!((rig.nic.armed(), rig.queue().counts()), (0, (5, 5)));
}

/// More programs are armed than hardware holds at a time. The rest follow when firings are through.
pub(crate) fn many_are_armed_at_a_time(rig: &Rig) {
    rig.arm(&[rig.put(1), rig.put(2), rig.put(3)], 100).unwrap();
    for _ in 0..300 {
        rig.ring();
    }
    assert_eq!(rig.wait(SENT, 300), 300 * QUANTUM);
    assert_eq!(rig.wait(SIGNAL, 300), 300 * QUANTUM);
}

/// So many puts of element 0, each in a stage of its own, to `to` and the places behind it.
pub(crate) fn stages(rig: &Rig, to: usize, stages: usize) -> Vec<Transfer> {
    let puts = (0..stages).map(|stage| {
        let mut put = rig.transfer(&rig.memory, Direction::Put, to + stage);
        (put.remote.flip, put.stage) = (0, stage as u32);
        put
    });
    puts.collect()
}

pub(crate) fn in_stages(rig: &Rig, to: usize, count: usize) -> Prepared {
    rig.program(stages(rig, to, count))
}

/// An engine may ignore the parts of a ring until all of them have come.
pub(crate) fn a_ring_in_parts_is_one_ring(rig: &Rig) {
    rig.arm(
        &[in_stages(rig, 10, 3), rig.put(1), in_stages(rig, 20, 2)],
        2,
    )
    .unwrap();
    let mut seen = 0;
    for turn in 0..2 {
        rig.write(0, 100 + turn);
        for parts in [3, 1, 2] {
            for part in 0..parts {
                // Nothing is signalled before the last part.
                assert_eq!(rig.word(SIGNAL).load(), seen * QUANTUM);
                assert_eq!(rig.word(SENT).load(), seen * QUANTUM);
                rig.ring_part(0, part, parts);
            }
            seen += 1;
            assert_eq!(rig.wait(SIGNAL, seen), seen * QUANTUM);
            assert_eq!(rig.wait(SENT, seen), seen * QUANTUM);
        }
        for place in [10, 11, 12, 20, 21] {
            assert_eq!(rig.read(place), 100 + turn, "{place}");
        }
    }
    assert!(rig.nic.quiesce(SETTLES));
}

/// Programs that were rung for fire. If a ring breaks off, some of its stages may have been sent, but no signal.
pub(crate) fn a_doorbell_that_is_poisoned_between_parts_ends_the_waits(rig: &Rig) {
    rig.arm(&[rig.put(1), in_stages(rig, 10, 3)], 2).unwrap();
    rig.write(0, 9);
    rig.ring();
    rig.ring_part(0, 0, 3);
    rig.ring_part(0, 1, 3);
    rig.poison();
    assert_eq!(rig.wait(SENT, 2), QUANTUM | POISON);
    assert_eq!(rig.wait(SIGNAL, 2), QUANTUM | POISON);
    assert_eq!((rig.read(1), rig.read(12)), (9, 0));
    assert!([0, 9].contains(&rig.read(10)) && [0, 9].contains(&rig.read(11)));
    assert!(matches!(rig.arm(&[rig.put(1)], 1), Err(NicError::GivenUp)));
    assert!(rig.nic.quiesce(SETTLES));
}

/// Makes all tests of the contract. `each` calls a test with endpoints that have the given options.
macro_rules! contract {
    ($each:ident) => {
        #[test]
        fn a_ring_fires_the_next_program_and_its_number_chooses_the_buffer() {
            $each(
                &Options::default(),
                rig::a_ring_fires_the_next_program_and_its_number_chooses_the_buffer,
            );
        }
        #[test]
        fn rings_that_run_ahead_signal_in_order() {
            $each(
                &Options::default(),
                rig::rings_that_run_ahead_signal_in_order,
            );
        }
        #[test]
        fn a_doorbell_that_is_poisoned_ends_the_waits_on_both_ends() {
            $each(
                &Options::default(),
                rig::a_doorbell_that_is_poisoned_ends_the_waits_on_both_ends,
            );
        }
        #[test]
        fn a_transfer_that_fails_signals_nothing() {
            $each(
                &Options::default(),
                rig::a_transfer_that_fails_signals_nothing,
            );
        }
        #[test]
        fn a_program_without_a_slot_waits_for_one_and_is_fired() {
            $each(
                &Options::default().budget(2),
                rig::a_program_without_a_slot_waits_for_one_and_is_fired,
            );
        }
        #[test]
        fn a_ring_in_parts_is_one_ring() {
            $each(&Options::default(), rig::a_ring_in_parts_is_one_ring);
        }
        #[test]
        fn a_doorbell_that_is_poisoned_between_parts_ends_the_waits() {
            $each(
                &Options::default(),
                rig::a_doorbell_that_is_poisoned_between_parts_ends_the_waits,
            );
        }
        #[test]
        fn many_are_armed_at_a_time() {
            $each(&Options::default(), rig::many_are_armed_at_a_time);
        }
    };
}
pub(crate) use contract;
