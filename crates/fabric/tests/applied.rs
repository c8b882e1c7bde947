//! When an update is applied: behind the ring, before the signal and the sent word, and once.

mod rig;

use std::time::Duration;

use rig::{Rig, SENT, SETTLES, SIGNAL};
use tidegate_fabric::Options;
use tidegate_fake::wire::{Faults, Net};
use tidegate_hal::batch::{Action, Op, POISON, QUANTUM, Scalar};
use tidegate_hal::nic::{Direction, NicError, Prepared, Transfer};

fn rig(budget: usize, delay: u32) -> Rig {
    let faults = Faults {
        delay,
        full: if delay > 0 { 200 } else { 0 },
        ..Faults::default()
    };
    let net = Net::new(1, faults);
    Rig::new(net.wire(0), Options::default().budget(budget), false)
}

/// Adds element 0 to element `to`. The old value goes to the element `old`, if there is one.
fn add(rig: &Rig, to: usize, old: Option<usize>) -> Transfer {
    let mut add = rig.transfer(&rig.memory, Direction::Put, to);
    add.remote.flip = 0;
    let (op, scalar, atomic) = (Op::Sum, Scalar::U64, true);
    add.action = match old {
        None => Action::Accumulate { op, scalar, atomic },
        Some(old) => Action::FetchOp {
            op,
            scalar,
            result: add.local.base.byte_add(8 * old),
            atomic,
        },
    };
    add
}

fn adds(rig: &Rig, to: usize, old: Option<usize>) -> Prepared {
    rig.program(vec![add(rig, to, old)])
}

/// Looks for so many signals, nearly without a pause.
fn signalled(rig: &Rig, times: u64) {
    let mut looks = 0u32;
    while rig.word(SIGNAL).load() < times * QUANTUM {
        looks += 1;
        match looks % 4096 {
            0 => std::thread::yield_now(),
            _ => std::hint::spin_loop(),
        }
    }
}

/// A thread looks without a pause, so that it would see a signal or an answer that comes too early.
#[test]
fn signal_and_sent_come_behind_the_update() {
    const TIMES: u64 = 300;
    let rig = rig(2, 0);
    rig.write(0, 1);
    rig.arm(&[adds(&rig, 1, Some(2))], TIMES).unwrap();
    for time in 1..=TIMES {
        rig.ring();
        signalled(&rig, time);
        assert_eq!(rig.read(1), time, "the signal came first");
        rig.wait(SENT, time);
        assert_eq!(rig.read(2), time - 1, "the old value came later");
    }
    assert!(rig.nic.quiesce(SETTLES));
}

/// The same, for an update that takes a while. Its last element shows whether it is over.
#[test]
fn the_signal_of_a_long_update_comes_behind_all_of_it() {
    const BYTES: usize = 2048;
    let rig = rig(2, 0);
    (0..BYTES / 8).for_each(|at| rig.write(at, 0x0101_0101_0101_0101));
    let mut long = add(&rig, BYTES / 8, None);
    let (op, scalar, atomic) = (Op::Sum, Scalar::U8, true);
    long.action = Action::Accumulate { op, scalar, atomic };
    (long.size, long.count) = (1, BYTES);
    rig.arm(&[rig.program(vec![long])], 200).unwrap();
    for time in 1..=200 {
        rig.ring();
        signalled(&rig, time);
        let last = rig.read(2 * BYTES / 8 - 1);
        assert_eq!(last, time * 0x0101_0101_0101_0101);
    }
}

/// Rings run ahead of the updates, with puts and programs without any in between. All signals come, in order.
#[test]
fn programs_of_all_kinds_follow_each_other() {
    for (budget, delay) in [(1, 0), (1, 20), (64, 20)] {
        let rig = rig(budget, delay);
        rig.write(0, 3);
        let mut put = rig.transfer(&rig.memory, Direction::Put, 9);
        put.remote.flip = 0;
        let mixed = vec![add(&rig, 1, None), put.clone(), add(&rig, 1, Some(2))];
        let programs = [
            adds(&rig, 1, None),
            rig.program(vec![put]),
            rig.program(Vec::new()),
            rig.program(mixed),
        ];
        rig.arm(&programs, 20).unwrap();
        (0..80).for_each(|_| rig.ring());
        rig.wait(SIGNAL, 80);
        assert_eq!(rig.wait(SENT, 80), 80 * QUANTUM);
        assert_eq!((rig.read(1), rig.read(2), rig.read(9)), (180, 177, 3));
        assert_eq!(rig.word(SIGNAL).load(), 80 * QUANTUM);
        assert!(rig.nic.quiesce(SETTLES));
    }
}

#[test]
fn what_was_rung_for_is_applied_and_nothing_else() {
    let rig = rig(4, 20);
    rig.write(0, 5);
    let add = adds(&rig, 1, None);
    rig.arm(std::slice::from_ref(&add), 3).unwrap();
    rig.ring();
    rig.poison();
    assert_eq!(rig.wait(SENT, 3), QUANTUM | POISON);
    assert_eq!(rig.wait(SIGNAL, 3), QUANTUM | POISON);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(rig.read(1), 5);
    assert!(matches!(rig.arm(&[add], 1), Err(NicError::GivenUp)));
    assert!(rig.nic.quiesce(SETTLES));
}

/// A program fails before its updates were asked for. Nothing is applied, neither of it nor of later ones.
#[test]
fn a_program_that_fails_applies_nothing_more() {
    let rig = rig(4, 0);
    rig.write(0, 7);
    let mut fails = rig.transfer(&rig.wrong, Direction::Put, 4);
    fails.remote.flip = 0;
    let mixed = rig.program(vec![add(&rig, 1, None), fails]);
    rig.arm(&[adds(&rig, 1, None), mixed, adds(&rig, 1, None)], 1)
        .unwrap();
    (0..3).for_each(|_| rig.ring());
    assert_eq!(rig.wait(SENT, 3), QUANTUM | POISON);
    assert_eq!(rig.wait(SIGNAL, 3), QUANTUM | POISON);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(rig.read(1), 7);
}

/// The peer leaves, or is lost, before it has answered.
#[test]
fn a_peer_that_is_gone_answers_nothing() {
    let rig = rig(4, 0);
    rig.write(0, 1);
    rig.leaves(0);
    rig.arm(&[adds(&rig, 1, None), adds(&rig, 1, Some(2))], 1)
        .unwrap();
    // Nobody there waits for an accumulate. But old values will not come.
    rig.ring();
    assert_eq!(rig.wait(SENT, 1), QUANTUM);
    rig.ring();
    assert_eq!(rig.wait(SENT, 2), QUANTUM | POISON);
    assert_eq!(rig.read(1), 0);
}

#[test]
fn what_cannot_be_asked_for_is_refused() {
    let rig = rig(4, 0);
    let refused = |change: &dyn Fn(&mut Transfer)| {
        let mut add = add(&rig, 1, None);
        change(&mut add);
        let refused = rig.try_program(vec![add]).err();
        assert!(matches!(refused, Some(NicError::Unsupported { .. })));
    };
    refused(&|add| add.remote.flip = 64);
    refused(&|add| add.local.flip = 64);
    refused(&|add| add.stage = 1);
    refused(&|add| add.remote.base = Rig::place(&rig.wrong, 0));
}
