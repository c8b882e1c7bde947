//! Rings in parts: a stage is sent when its part has come, before the rest of the ring. The signal is for all stages.

mod rig;
#[path = "rig/watched.rs"]
mod watched;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rig::{OTHER, SENT, SIGNAL, in_stages, stages};
use tidegate_fabric::Options;
use tidegate_fake::wire::Faults;
use tidegate_hal::batch::{POISON, QUANTUM};
use tidegate_hal::nic::Direction;
use watched::watched;

const LONG: Duration = Duration::from_secs(600);
/// Long enough to notice an operation that must not happen.
const WHILE: Duration = Duration::from_millis(30);

/// This is the purpose of stages: one is at the target before the stream has come to the next.
#[test]
fn a_stage_is_delivered_before_the_rest_of_its_ring_has_come() {
    const STAGES: u64 = 4;
    for polled in [false, true] {
        let (rig, seen) = watched(polled, Options::default(), Faults::default());
        // Each stage sends an element of its own.
        let puts = (0..STAGES).map(|stage| {
            let mut put = rig.transfer(&rig.memory, Direction::Put, 50 + stage as usize);
            put.local.base = put.local.base.byte_add(8 * stage as usize);
            put.stage = stage as u32;
            put
        });
        rig.arm(&[rig.program(puts.collect())], 4).unwrap();
        // Two firings for each buffer.
        for firing in 0..4u64 {
            let at = |stage: u64| 50 + stage as usize + if firing % 2 == 1 { 32 } else { 0 };
            let before: Vec<_> = (0..STAGES).map(|stage| rig.read(at(stage))).collect();
            for stage in 0..STAGES {
                // The data of this stage is written only now.
                rig.write(stage as usize, 1000 * firing + stage + 1);
                rig.ring_part(0, stage, STAGES);
                if stage + 1 == STAGES {
                    break;
                }
                seen.await_done((firing * STAGES + stage + 1) as usize);
                for other in 0..STAGES {
                    let expected = match other <= stage {
                        true => 1000 * firing + other + 1,
                        false => before[other as usize],
                    };
                    assert_eq!(rig.read(at(other)), expected, "{other} at {stage}");
                }
                assert_eq!(rig.word(SIGNAL).load(), firing * QUANTUM);
                assert_eq!(rig.word(SENT).load(), firing * QUANTUM);
            }
            assert_eq!(rig.wait(SIGNAL, firing + 1), (firing + 1) * QUANTUM);
            assert_eq!(rig.wait(SENT, firing + 1), (firing + 1) * QUANTUM);
            assert_eq!(rig.read(at(STAGES - 1)), 1000 * firing + STAGES);
        }
        assert!(rig.nic.quiesce(LONG));
    }
}

/// A stage is not sent before its part comes, however late that is. The last piece waits for the last part, whichever
/// stage it belongs to.
#[test]
fn nothing_is_sent_before_its_part() {
    for polled in [false, true] {
        let (rig, seen) = watched(polled, Options::default(), Faults::default());
        let put = |to, stage| {
            let mut put = rig.transfer(&rig.memory, Direction::Put, to);
            put.stage = stage;
            put
        };
        rig.arm(&[rig.program(vec![put(1, 0), put(2, 1), put(3, 0)])], 1)
            .unwrap();
        std::thread::sleep(WHILE);
        assert_eq!(seen.posted(), 0);
        rig.ring_part(0, 0, 3);
        seen.await_done(1);
        std::thread::sleep(WHILE);
        assert_eq!(seen.posted(), 1);
        rig.ring_part(0, 1, 3);
        seen.await_done(2);
        std::thread::sleep(WHILE);
        // The last piece brings the signal, so it has not been posted.
        assert_eq!((seen.posted(), rig.word(SIGNAL).load()), (2, 0));
        rig.ring_part(0, 2, 3);
        assert_eq!(rig.wait(SIGNAL, 1), QUANTUM);
        assert_eq!(seen.posted(), 3);
        // A program without data waits for its last part, too.
        rig.arm(&[rig.program(Vec::new())], 1).unwrap();
        rig.ring_part(0, 0, 2);
        std::thread::sleep(WHILE);
        assert_eq!(rig.word(SIGNAL).load(), QUANTUM);
        rig.ring_part(0, 1, 2);
        assert_eq!(rig.wait(SIGNAL, 2), 2 * QUANTUM);
    }
}

/// A stream fails between two parts. Transfers that are under way end as usual, and then both ends hear of the failure.
#[test]
fn a_ring_that_breaks_off_ends_its_queue_when_nothing_is_under_way() {
    for polled in [false, true] {
        let (rig, seen) = watched(polled, Options::default(), Faults::default());
        rig.arm(&[rig.put(1), in_stages(&rig, 10, 3)], 1).unwrap();
        rig.write(0, 3);
        rig.ring();
        assert_eq!(rig.wait(SENT, 1), QUANTUM);
        assert_eq!(rig.wait(SIGNAL, 1), QUANTUM);
        seen.hold.store(true, Ordering::SeqCst);
        rig.ring_part(0, 0, 3);
        let begun = Instant::now();
        while seen.posted() < 2 {
            assert!(begun.elapsed() < LONG);
            std::thread::yield_now();
        }
        rig.poison();
        std::thread::sleep(WHILE);
        assert_eq!(rig.word(SENT).load(), QUANTUM);
        assert_eq!(rig.word(SIGNAL).load(), QUANTUM);
        seen.hold.store(false, Ordering::SeqCst);
        assert_eq!(rig.wait(SENT, 2), QUANTUM | POISON);
        assert_eq!(rig.wait(SIGNAL, 2), QUANTUM | POISON);
        // Only the first stage has arrived.
        assert_eq!([10, 11, 12].map(|at| rig.read(at)), [3, 0, 0]);
        assert_eq!(seen.posted(), 2);
        assert!(rig.nic.quiesce(LONG));
        assert_eq!((rig.nic.armed(), rig.queue().counts()), (0, (2, 2)));
    }
}

/// The owner of a queue drops it between two parts, so the rest of the ring never comes.
#[test]
fn a_queue_that_is_dropped_between_parts_ends() {
    for polled in [false, true] {
        let (mut rig, seen) = watched(polled, Options::default(), Faults::default());
        rig.arm(&[in_stages(&rig, 10, 3)], 1).unwrap();
        rig.write(0, 3);
        rig.ring_part(0, 0, 3);
        seen.await_done(1);
        rig.queue = None;
        assert_eq!(rig.wait(SENT, 1), POISON);
        assert_eq!(rig.wait(SIGNAL, 1), POISON);
        assert!(rig.nic.quiesce(LONG));
    }
}

/// If a peer is lost, or a window is revoked, core poisons *sent*. The rest of the ring may never come.
#[test]
fn a_firing_that_nobody_waits_for_is_not_kept_for_its_rest() {
    for polled in [false, true] {
        let (rig, seen) = watched(polled, Options::default(), Faults::default());
        rig.arm(&[in_stages(&rig, 10, 3)], 1).unwrap();
        rig.ring_part(0, 0, 3);
        seen.await_done(1);
        rig.word(SENT).poison();
        if !polled {
            rig.bell().ring();
        }
        assert_eq!(rig.wait(SIGNAL, 1), POISON);
        assert!(rig.nic.quiesce(LONG));
        assert_eq!(rig.nic.armed(), 0);
    }
}

/// A transfer of an early stage fails. The queue does not wait for the rest of the ring, which does no harm when it
/// comes.
#[test]
fn an_early_stage_that_fails_ends_its_queue() {
    for polled in [false, true] {
        let (rig, seen) = watched(polled, Options::default(), Faults::default());
        rig.arm(&[in_stages(&rig, 10, 3)], 2).unwrap();
        seen.fails_writes.store(true, Ordering::SeqCst);
        rig.ring_part(0, 0, 3);
        assert_eq!(rig.wait(SENT, 1), POISON);
        seen.fails_writes.store(false, Ordering::SeqCst);
        for (index, parts) in [(1, 3), (2, 3), (0, 3)] {
            rig.ring_part(0, index, parts);
        }
        std::thread::sleep(WHILE);
        assert_eq!(rig.word(SENT).load(), POISON);
        assert_eq!(rig.wait(SIGNAL, 1), POISON);
        assert_eq!([10, 11, 12].map(|at| rig.read(at)), [0; 3]);
    }
}

/// If another queue has the only trigger slot, a part waits for the slot, and not for the rest of its ring.
#[test]
fn parts_may_come_before_a_trigger_slot_is_free() {
    for polled in [false, true] {
        let options = Options::default().budget(1);
        let (rig, seen) = watched(polled, options, Faults::default());
        let other = rig.another();
        let staged = rig.program_of(OTHER, stages(&rig, 10, 3)).unwrap();
        other.arm(&[staged].into(), 1).unwrap();
        rig.arm(&[rig.put(1)], 1).unwrap();
        rig.write(0, 5);
        seen.hold.store(true, Ordering::SeqCst);
        rig.ring();
        let begun = Instant::now();
        while seen.posted() < 1 {
            assert!(begun.elapsed() < LONG);
            std::thread::yield_now();
        }
        rig.ring_part(OTHER, 0, 3);
        rig.ring_part(OTHER, 1, 3);
        std::thread::sleep(WHILE);
        assert_eq!(seen.posted(), 1);
        seen.hold.store(false, Ordering::SeqCst);
        // The put of the first queue, and both stages.
        seen.await_done(3);
        assert_eq!([1, 10, 11, 12].map(|at| rig.read(at)), [5, 5, 5, 0]);
        assert_eq!(rig.word(SENT + OTHER).load(), 0);
        rig.ring_part(OTHER, 2, 3);
        assert_eq!(rig.wait(SENT + OTHER, 1), QUANTUM);
        assert_eq!(rig.wait(SIGNAL + OTHER, 1), QUANTUM);
        assert_eq!(rig.read(12), 5);
        assert!(rig.nic.quiesce(LONG));
    }
}

/// Rings run ahead, some in parts and some whole, on a wire that delays and refuses operations. Each signal finds the
/// data of its own firing.
#[test]
fn rings_in_parts_that_run_ahead_signal_in_order() {
    const FIRINGS: usize = 24;
    for seed in 0..12 {
        let faults = Faults {
            seed,
            full: 300,
            delay: 10,
            ..Faults::default()
        };
        let (rig, _) = watched(seed % 2 == 0, Options::default().budget(2), faults);
        rig.write(0, 7);
        let count = |firing: usize| 1 + (firing * 7 + seed as usize) % 4;
        for firing in 0..FIRINGS {
            rig.arm(&[in_stages(&rig, 100 + 4 * firing, count(firing))], 1)
                .unwrap();
        }
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for firing in 0..FIRINGS {
                    // A stream gets no further ahead than its exposures allow.
                    rig.wait(SIGNAL, firing.saturating_sub(2) as u64);
                    // Some rings are whole, whatever the program is.
                    let parts = if firing % 5 == 4 { 1 } else { count(firing) } as u64;
                    for part in 0..parts {
                        rig.ring_part(0, part, parts);
                        if (firing + part as usize).is_multiple_of(3) {
                            std::thread::sleep(Duration::from_micros(200));
                        }
                    }
                }
            });
            let mut seen = 0;
            while seen < FIRINGS {
                seen = (rig.wait(SIGNAL, seen as u64 + 1) / QUANTUM) as usize;
                for firing in 0..seen {
                    for stage in 0..count(firing) {
                        let found = rig.read(100 + 4 * firing + stage);
                        assert_eq!(found, 7, "stage {stage} of {firing} at signal {seen}");
                    }
                }
            }
        });
        assert_eq!(rig.wait(SENT, FIRINGS as u64), FIRINGS as u64 * QUANTUM);
        assert!(rig.nic.quiesce(LONG));
    }
}

/// However much one queue sends, others find room on the wire.
#[test]
fn a_long_put_leaves_room_for_others() {
    // The wire takes fewer operations at a time.
    const PIECES: usize = 300;
    for polled in [false, true] {
        let (rig, seen) = watched(polled, Options::default(), Faults::default());
        let other = rig.another();
        let puts = (0..PIECES).map(|piece| {
            // The targets are not next to each other, so each put is an operation.
            let mut put = rig.transfer(&rig.memory, Direction::Put, 100 + 2 * piece);
            put.remote.flip = 0;
            put
        });
        rig.arm(&[rig.program(puts.collect())], 1).unwrap();
        let put = rig.transfer(&rig.memory, Direction::Put, 1);
        let short = rig.program_of(OTHER, vec![put]).unwrap();
        other.arm(&[short].into(), 1).unwrap();
        rig.write(0, 5);
        seen.hold.store(true, Ordering::SeqCst);
        rig.ring();
        let begun = Instant::now();
        while seen.posted() < 128 {
            assert!(begun.elapsed() < LONG);
            std::thread::yield_now();
        }
        std::thread::sleep(WHILE);
        assert_eq!(seen.posted(), 128);
        rig.ring_part(OTHER, 0, 1);
        while seen.posted() < 129 {
            assert!(begun.elapsed() < LONG, "it finds no room");
            std::thread::yield_now();
        }
        seen.hold.store(false, Ordering::SeqCst);
        assert_eq!(rig.wait(SIGNAL, 1), QUANTUM);
        assert_eq!(rig.wait(SIGNAL + OTHER, 1), QUANTUM);
        assert_eq!(
            [1, 100, 100 + 2 * (PIECES - 1)].map(|at| rig.read(at)),
            [5; 3]
        );
        assert!(rig.nic.quiesce(LONG));
    }
}
