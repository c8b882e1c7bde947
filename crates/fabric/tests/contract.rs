//! The contract of NICs, tested with the software engine and with the triggered engine over fake cards.

mod rig;

use std::sync::Arc;
use std::time::Duration;

use rig::{Rig, SENT, SETTLES, SIGNAL};
use tidegate_fabric::Options;
use tidegate_fabric::wire::chain::Signals;
use tidegate_fabric::wire::libfabric::{Choice, EngineChoice, FabricWire, OpenError};
use tidegate_fake::wire::{Faults, Net};
use tidegate_fake::{Card, Config};
use tidegate_hal::batch::{POISON, QUANTUM};
use tidegate_hal::nic::{Direction, NicError};

fn on(card: &Card) -> FabricWire {
    FabricWire::open_by(&tidegate_fake::library(), &Choice::at(card.name())).unwrap()
}

/// Runs a test over the software engine and over fake cards. The cards signal by notices or by adds, and the stream or
/// an agent strikes them.
fn each(options: &Options, test: impl Fn(&Rig)) {
    let net = Net::new(1, Faults::default());
    test(&Rig::new(net.wire(0), options.clone(), true));
    for seed in 0..8 {
        let data = seed % 2 == 0;
        let card = Card::new(Config {
            seed,
            data,
            back: seed % 3 == 0,
            cancels: seed % 5 != 4,
            ..Config::default()
        });
        let wire = on(&card);
        let signals = if data { Signals::Notice } else { Signals::Add };
        assert_eq!(wire.triggered(), Some(signals));
        // The streams of GPUs ring no bell, so the engine polls.
        let (strikes, polled) = (seed % 4 < 2, seed > 4);
        let rig = Rig::with(wire, options.clone(), strikes, polled);
        assert_eq!(rig.strike.is_some(), strikes && tidegate_fake::PAGES);
        test(&rig);
        drop(rig);
        assert_eq!(card.complaints(), [""; 0]);
    }
}

rig::contract!(each);

/// A peer that leaves in good order does not change queues: programs that were not rung for are not fired, whatever
/// fires them.
#[test]
fn a_peer_that_leaves_fires_nothing() {
    each(&Options::default(), |rig| {
        rig.arm(&[rig.put(1)], 3).unwrap();
        rig.write(0, 7);
        rig.ring();
        assert_eq!(rig.wait(SIGNAL, 1), QUANTUM);
        assert_eq!(rig.wait(SENT, 1), QUANTUM);
        rig.leaves(0);
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(rig.word(SIGNAL).load(), QUANTUM);
        assert_eq!(rig.word(SENT).load(), QUANTUM);
        assert_eq!(rig.queue().counts(), (3, 1));
    });
}

/// Programs that were rung for fire, and the signals of the others are poisoned. If hardware cannot give works back,
/// their memory is kept.
#[test]
fn a_queue_that_is_dropped_poisons_programs_without_a_ring() {
    for seed in 0..8 {
        let card = Card::new(Config {
            seed,
            data: seed % 2 == 0,
            cancels: seed < 4,
            ..Config::default()
        });
        let mut rig = Rig::new(on(&card), Options::default(), true);
        rig.arm(&[rig.put(1)], 3).unwrap();
        card.hold(true);
        rig.ring();
        assert!(!rig.nic.quiesce(Duration::from_millis(20)));
        rig.queue = None;
        card.hold(false);
        assert_eq!(rig.wait(SIGNAL, 2), QUANTUM | POISON);
        assert_eq!(rig.wait(SENT, 2), QUANTUM | POISON);
        assert!(rig.nic.quiesce(SETTLES));
        let block = rig.block.clone();
        drop(rig);
        assert_eq!(card.complaints(), [""; 0]);
        if seed < 4 {
            // All works are taken back, so everything is closed.
            assert_eq!((card.works().0, Arc::strong_count(&block)), (0, 1));
            assert!(card.open().is_empty(), "{:?}", card.open());
        } else {
            // The works stay with the hardware, and so does the memory that they would read.
            assert!(card.works().0 > 0 && Arc::strong_count(&block) > 1);
        }
    }
}

/// If an endpoint is dropped while operations are under way, the memory that they touch stays until it is known that
/// they are over.
#[test]
fn an_endpoint_that_is_dropped_keeps_the_memory_of_operations() {
    let card = Card::new(Config::default());
    let rig = Rig::new(on(&card), Options::default(), true);
    rig.arm(&[rig.put(1)], 1).unwrap();
    card.hold(true);
    rig.ring();
    let block = rig.block.clone();
    drop(rig);
    assert!(Arc::strong_count(&block) > 1);
    card.hold(false);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(card.complaints(), [""; 0]);
}

/// A program with more pieces than a queue has works is refused when it is prepared.
#[test]
fn a_program_that_never_fits_is_refused() {
    let card = Card::new(Config {
        says: 40,
        ..Config::default()
    });
    let rig = Rig::new(on(&card), Options::default(), true);
    let many = (0..40).map(|at| rig.transfer(&rig.memory, Direction::Put, at));
    let refused = rig.try_program(many.collect());
    assert!(matches!(refused, Err(NicError::Unsupported { .. })));
}

/// The end of a firing is seen even if the next firing cannot begin. That one may wait long for works that other queues
/// hold.
#[test]
fn a_firing_that_finds_no_works_keeps_no_other_back() {
    for data in [true, false] {
        let card = Card::new(Config {
            data,
            ..Config::default()
        });
        // Long enough that the waiting firing is not given up.
        let options = Options::default().silence(Duration::from_secs(3600));
        let rig = Rig::new(on(&card), options, true);
        rig.arm(&[rig.put(1)], 1).unwrap();
        card.crowd(true);
        let many = (2..5).map(|at| rig.transfer(&rig.memory, Direction::Put, at));
        rig.arm(&[rig.program(many.collect())], 1).unwrap();
        rig.ring();
        rig.ring();
        assert_eq!(rig.wait(SENT, 1), QUANTUM);
        card.crowd(false);
        assert_eq!(rig.wait(SENT, 2), 2 * QUANTUM);
        assert_eq!(rig.wait(SIGNAL, 2), 2 * QUANTUM);
        drop(rig);
        assert_eq!(card.complaints(), [""; 0]);
    }
}

/// If hardware refuses a program for good when it is armed, the queue ends, even if nobody rings any more.
#[test]
fn a_program_that_is_refused_when_it_is_armed_ends_the_queue() {
    let card = Card::new(Config {
        full: tidegate_ffi::fabric::sys::FI_EIO,
        ..Config::default()
    });
    let rig = Rig::new(on(&card), Options::default(), true);
    let put = [rig.put(1)];
    rig.arm(&put, 1).unwrap();
    rig.ring();
    assert_eq!(rig.wait(SENT, 1), QUANTUM);
    // By then, the thread that polls has gone to sleep.
    std::thread::sleep(Duration::from_millis(200));
    card.crowd(true);
    rig.arm(&put, 1).unwrap();
    assert_eq!(rig.wait(SENT, 2), QUANTUM | POISON);
    assert!(matches!(rig.arm(&put, 1), Err(NicError::GivenUp)));
}

/// A failure that is reported twice is one failure.
#[test]
fn a_failure_may_be_reported_twice() {
    for seed in 0..8 {
        let card = Card::new(Config {
            seed,
            data: seed % 2 == 0,
            twice: true,
            ..Config::default()
        });
        let rig = Rig::new(on(&card), Options::default(), seed < 4);
        rig::a_transfer_that_fails_signals_nothing(&rig);
        drop(rig);
        assert_eq!(card.complaints(), [""; 0]);
    }
}

/// Counters with a low limit begin anew, again and again.
#[test]
fn counters_begin_anew_before_their_limit() {
    for seed in 0..8 {
        let card = Card::new(Config {
            seed,
            data: seed % 2 == 0,
            back: seed % 4 < 2,
            ..Config::default()
        });
        let choice = Choice::at(card.name()).counts(3 + seed);
        let wire = FabricWire::open_by(&tidegate_fake::library(), &choice).unwrap();
        let rig = Rig::new(wire, Options::default(), false);
        if seed < 4 {
            rig::many_are_armed_at_a_time(&rig);
        } else {
            rig::rings_that_run_ahead_signal_in_order(&rig);
        }
        drop(rig);
        assert_eq!(card.complaints(), [""; 0]);
    }
}

/// The hardware is there, and fails when signals are tried. If the program leaves the engine open, threads start the
/// transfers.
#[test]
fn hardware_that_fails_leaves_the_work_to_threads() {
    let card = |free| {
        Card::new(Config {
            fails: 1000,
            free,
            ..Config::default()
        })
    };
    let (only_hardware, both) = (card(false), card(true));
    let open = |card: &Card, engine| {
        let choice = Choice::at(card.name()).engine(engine);
        FabricWire::open_by(&tidegate_fake::library(), &choice)
    };
    let wire = open(&both, EngineChoice::Auto).unwrap();
    assert_eq!(wire.triggered(), None);
    drop(wire);
    // Where threads cannot do it either, the error is that of the hardware.
    for (card, engine) in [
        (&only_hardware, EngineChoice::Auto),
        (&both, EngineChoice::Triggered),
    ] {
        let error = open(card, engine).map(|wire| wire.label()).unwrap_err();
        let of_hardware = matches!(error, OpenError::NotTriggered { .. });
        assert!(of_hardware, "{engine:?}: {error}");
    }
}
