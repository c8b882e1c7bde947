//! The contract of NICs without bells: an agent polls the doorbells. If the wire can have two endpoints, peers write to
//! one of their own.

mod rig;
#[path = "rig/watched.rs"]
mod watched;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rig::{Rig, SENT, SETTLES, SIGNAL};
use tidegate_fabric::Options;
use tidegate_fabric::wire::libfabric::{Choice, EngineChoice, FabricWire};
use tidegate_fake::wire::{Faults, Net};
use tidegate_hal::batch::{POISON, QUANTUM};
use watched::watched;

#[path = "../../../tests/common/skip.rs"]
mod skip;

fn each(options: &Options, test: impl Fn(&Rig)) {
    let net = Net::new(1, Faults::default());
    test(&Rig::polled(net.wire(0), options.clone()));
    for provider in skip::providers() {
        let choice = Choice::at("127.0.0.1")
            .provider(provider)
            .engine(EngineChoice::Software);
        match FabricWire::open(&choice) {
            Ok(wire) => {
                let rig = Rig::polled(wire, options.clone());
                test(&rig);
                // Some tests end while something still arrives, and some providers do not bear that.
                assert!(rig.nic.quiesce(SETTLES));
            }
            Err(error) => skip::skipped("the contract of polled endpoints", &error.to_string()),
        }
    }
}

rig::contract!(each);

/// Some providers report a write as complete although the peer has refused it. Then its signal does not come, and the
/// engine finds that out by a read of the word.
#[test]
fn a_refused_write_that_was_reported_complete_ends_its_queue() {
    let silence = Duration::from_secs(1);
    each(&Options::default().silence(silence), |rig| {
        rig.write(0, 5);
        rig.arm(&[rig.put(1), rig.refused(2), rig.put(3)], 1)
            .unwrap();
        rig.ring();
        assert_eq!(rig.wait(SIGNAL, 1), QUANTUM);
        let begun = Instant::now();
        // The signal of the third does not count as that of the second.
        rig.ring();
        rig.ring();
        // This end may have counted it as through, or not.
        let sent = loop {
            let sent = rig.word(SENT).load();
            if sent & POISON != 0 {
                break sent & !POISON;
            }
            assert!(begun.elapsed() < 20 * silence, "nobody finds it out");
            std::thread::sleep(Duration::from_millis(1));
        };
        assert!((1..=3).contains(&(sent / QUANTUM)), "{sent:#x}");
        assert_eq!(rig.wait(SIGNAL, 2), QUANTUM | POISON);
        assert_eq!((rig.read(1), rig.read(2)), (5, 0));
        assert!(rig.nic.quiesce(SETTLES));
    });
}

/// Each refused read costs a connection, so there must be few. (On a machine that takes longer than a second, there are
/// fewer.)
#[test]
fn a_queue_that_has_failed_asks_a_few_times_whether_its_signals_have_come() {
    let (rig, seen) = watched(true, Options::default(), Faults::default());
    seen.refuses_looks.store(true, Ordering::SeqCst);
    rig.arm(&[rig.put(1), rig.fails(2)], 1).unwrap();
    // The two rings are one add: a tick between them would ask, too.
    rig.ring_twice();
    assert_eq!(rig.wait(SENT, 2), QUANTUM | POISON);
    assert_eq!(rig.wait(SIGNAL, 2), QUANTUM | POISON);
    assert!(rig.nic.quiesce(SETTLES));
    assert!((2..=5).contains(&seen.looks()), "{}", seen.looks());
}

/// Refused reads do not make it lose a signal.
#[test]
fn a_queue_that_has_not_failed_asks_until_it_is_answered() {
    let (rig, seen) = watched(true, Options::default(), Faults::default());
    seen.refuses_looks.store(true, Ordering::SeqCst);
    rig.arm(&[rig.put(1)], 2).unwrap();
    rig.ring();
    assert_eq!(rig.wait(SENT, 1), QUANTUM);
    seen.await_looks(12);
    seen.refuses_looks.store(false, Ordering::SeqCst);
    assert!(rig.nic.quiesce(SETTLES));
    rig.ring();
    assert_eq!(rig.wait(SENT, 2), 2 * QUANTUM);
    assert_eq!(rig.wait(SIGNAL, 2), 2 * QUANTUM);
    assert!(rig.nic.quiesce(SETTLES));
}

/// After a put its signal is in doubt, and the listener sleeps until the next tick. Here there are no ticks.
#[test]
fn a_program_that_is_armed_ends_the_sleep_of_a_listener_in_doubt() {
    let (rig, seen) = watched(true, Options::default(), Faults::default());
    seen.sleeps_on.store(true, Ordering::SeqCst);
    for puts in 1..=20 {
        rig.arm(&[rig.put(1)], 1).unwrap();
        rig.ring();
        let begun = Instant::now();
        while rig.word(SENT).load() < puts * QUANTUM {
            assert!(
                begun.elapsed() < SETTLES,
                "nobody looks at the doorbell of put {puts}"
            );
            std::thread::yield_now();
        }
        rig.wait(SIGNAL, puts);
        seen.await_sleep();
    }
    seen.sleeps_on.store(false, Ordering::SeqCst);
}
