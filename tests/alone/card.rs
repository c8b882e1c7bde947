//! The triggered engine over a fake card that has all features of cxi, and all its faults. (The process loads no
//! libfabric: some libraries that it loads take the signals that the card's registers need.)

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tidegate::host::prelude::*;
use tidegate::{Route, WorldOptions};
use tidegate_fabric::wire::Wire as _;
use tidegate_fabric::wire::chain::Signals;
use tidegate_fabric::wire::libfabric::{Choice, FabricWire};
use tidegate_fabric::{Fabric, Options};
use tidegate_fake::{Card, Config};

use crate::common::ring;
use crate::counting::alone;

/// Nothing takes this long, even on a busy machine.
const LONG: Duration = Duration::from_secs(600);
const BUFFERS: [Buffers; 2] = [Buffers::Single, Buffers::Double];

fn world(wire: FabricWire, options: Options) -> WorldOptions {
    WorldOptions::new()
        .nic(Fabric::over(wire, options))
        .route(Route::Nic)
}

/// An endpoint of a card. By default, hardware is chosen.
fn on(card: &Card) -> FabricWire {
    FabricWire::open_by(&tidegate_fake::library(), &Choice::at(card.name())).unwrap()
}

/// Streams that have ended may hold the NIC last.
fn all_is_closed(card: &Card) {
    let begin = Instant::now();
    while card.works().0 > 0 || !card.open().is_empty() {
        let (works, open) = (card.works().0, card.open());
        assert!(
            begin.elapsed() < LONG,
            "{works} works and these objects are left: {open:?}"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn ring_on(config: Config, n: usize, budget: usize, buffers: Buffers) {
    let card = Card::new(config.clone());
    let nic = |_| world(on(&card), Options::default().budget(budget));
    for result in World::local_with(n, nic, |world| ring::run(world, buffers, 8)) {
        result.unwrap_or_else(|error| panic!("{config:?}, {n} ranks, {budget}: {error}"));
    }
    assert_eq!(card.complaints(), [""; 0], "{config:?}");
    let (_, most, ever) = card.works();
    assert!(most <= config.works && ever > 0, "{most} of {ever}");
    all_is_closed(&card);
    if config.pages && config.plain {
        // In each step there is a post and a complete for each neighbour; with two ranks each has one neighbour.
        let steps = (0..8).map(|round| round % 4 + 2).sum::<u64>();
        let neighbours = if n > 2 { 2 } else { 1 };
        assert_eq!(card.strikes(), n as u64 * steps * 2 * neighbours);
    } else if config.pages && tidegate_fake::PAGES {
        assert!(card.strikes() > 0, "streams strike by themselves");
    } else {
        assert_eq!(card.strikes(), 0);
    }
}

/// The card carries out operations in any order, so only counters make the result right.
#[test]
fn rings_over_a_card() {
    let _alone = alone();
    for seed in 0..6 {
        for (data, pages, back) in [
            (true, true, true),
            (false, true, true),
            (true, false, true),
            (false, true, false),
            (true, false, false),
        ] {
            let config = Config {
                seed,
                data,
                pages,
                back,
                ..Config::default()
            };
            let buffers = BUFFERS[seed as usize % 2];
            ring_on(config.clone(), 1 + seed as usize % 3, 4096, buffers);
            ring_on(config, 2, 1, buffers);
        }
    }
}

/// Registers that are memory show the stores, if no two come at the same time. With one buffer, each ring waits for the
/// result of the one before. This is as for streams of GPUs, whose registers are the same here.
#[test]
fn rings_over_a_card_with_registers_of_memory() {
    let _alone = alone();
    for n in 1..=3 {
        for data in [true, false] {
            let config = Config {
                seed: n as u64,
                data,
                plain: true,
                ..Config::default()
            };
            ring_on(config, n, 4096, Buffers::Single);
        }
    }
}

/// An operation that finds no room for a moment is tried again, whatever error the provider returns.
#[test]
fn works_that_find_no_room_are_queued_later() {
    let _alone = alone();
    use tidegate_ffi::fabric::sys::{FI_EAGAIN, FI_ENOSPC};
    for full in [FI_EAGAIN, FI_ENOSPC] {
        for seed in 0..4 {
            let config = Config {
                seed,
                refuses: 500,
                full,
                ..Config::default()
            };
            ring_on(config, 2, 4096, BUFFERS[1]);
        }
    }
}

/// An operation that never finds room is an error that says so, on both ends, and no hang.
#[test]
fn works_that_never_find_room_are_an_error() {
    let _alone = alone();
    let card = Card::new(Config::default());
    let limit = Duration::from_millis(300);
    let nic = |_| world(on(&card), Options::default().silence(limit));
    let ends = World::local_with(2, nic, |world: World| {
        card.crowd(true);
        ring::run(world, Buffers::Single, 4)
    });
    for end in ends {
        let error = end.unwrap_err();
        assert!(
            matches!(
                error,
                Error::Wait(_) | Error::Revoked { .. } | Error::Nic(_)
            ),
            "{error}"
        );
    }
}

/// If stores between the stream and the NIC are lost, that is an error on both ends, and no hang. Here they are lost
/// from some time on, after the peer has answered.
#[test]
fn strikes_that_do_not_arrive_are_an_error() {
    let _alone = alone();
    for plain in [true, false] {
        let card = Card::new(Config {
            plain,
            ..Config::default()
        });
        let nic = |_| {
            world(
                on(&card),
                Options::default().silence(Duration::from_secs(1)),
            )
        };
        let ends = World::local_with(2, nic, |world| {
            ring::run(world.clone(), Buffers::Single, 2).unwrap();
            world.all_gather("heard", Vec::new()).unwrap();
            card.deafen(true);
            ring::run(world, Buffers::Single, 2)
        });
        let lost = plain || tidegate_fake::PAGES;
        for end in ends {
            let failed = matches!(
                end,
                Err(Error::Wait(_) | Error::Revoked { .. } | Error::Nic(_))
            );
            assert!(failed == lost, "{end:?}");
        }
    }
}

/// If the share of the pool is too small for a queue, opening the window reports it.
#[test]
fn a_pool_with_nothing_left_is_a_typed_error() {
    let _alone = alone();
    let config = Config {
        says: 8,
        ..Config::default()
    };
    let card = Card::new(config);
    let nic = |_| {
        let choice = Choice::at(card.name()).sharers(2);
        let wire = FabricWire::open_by(&tidegate_fake::library(), &choice).unwrap();
        world(wire, Options::default())
    };
    for end in World::local_with(2, nic, |world| ring::run(world, Buffers::Single, 1)) {
        let error = end.unwrap_err().to_string();
        assert!(error.contains("deferred works"), "{error}");
    }
}

/// A job whose transfers fail at random: every element that is seen is right, and the job ends.
fn faulty(seed: u64) -> bool {
    let card = Card::new(Config {
        seed,
        data: seed.is_multiple_of(2),
        pages: !seed.is_multiple_of(3),
        back: !seed.is_multiple_of(5),
        cancels: !seed.is_multiple_of(7),
        // One operation in 100 fails, and some of them without an entry in the queue.
        fails: 10,
        counts_failures: seed % 4 == 1,
        silent: seed % 4 == 1,
        ..Config::default()
    });
    let nic = |_| {
        let options = Options::default()
            .budget(1 + seed as usize % 9)
            .silence(Duration::from_millis(200));
        world(on(&card), options)
    };
    let ends = World::local_with(2, nic, |world| {
        ring::run(world, BUFFERS[seed as usize % 2], 6)
    });
    let well = ends.iter().all(Result::is_ok);
    for end in ends {
        match end {
            Ok(()) | Err(Error::Wait(_) | Error::Revoked { .. } | Error::Nic(_)) => {}
            Err(other) => panic!("seed {seed}: {other}"),
        }
    }
    assert_eq!(card.complaints(), [""; 0], "seed {seed}");
    well
}

#[test]
fn transfers_that_fail_end_the_waits_and_signal_nothing() {
    let _alone = alone();
    let right = (0..60).filter(|seed| faulty(*seed)).count();
    println!("{right} of 60 were right");
    // The test shows nothing unless both happen.
    assert!((1..55).contains(&right), "{right}");
}

/// A rank that adds to words looks for adds to its own words; a rank that sends notices does not.
#[test]
fn ranks_that_signal_differently_do_not_meet() {
    let _alone = alone();
    let card = Card::new(Config::default());
    let wire = |signals| {
        let choice = Choice::at(card.name()).signals(signals);
        FabricWire::open_by(&tidegate_fake::library(), &choice).unwrap()
    };
    let (mut one, other) = (wire(Signals::Notice), wire(Signals::Add));
    let refused = one.connect(&[one.address(), other.address()]).unwrap_err();
    assert!(refused.to_string().contains("another way"), "{refused}");
    one.connect(&[one.address()]).unwrap();
}

#[test]
fn an_endpoint_that_is_opened_and_closed_leaves_nothing() {
    let _alone = alone();
    for (data, signals) in [(true, Signals::Notice), (false, Signals::Add)] {
        let card = Card::new(Config {
            data,
            ..Config::default()
        });
        let wire = on(&card);
        assert_eq!(wire.triggered(), Some(signals));
        drop(wire);
        all_is_closed(&card);
    }
}

/// For a processor a NIC's add is two steps. Poison of this rank in between is lost, so this rank poisons again.
#[test]
fn a_poison_that_is_lost_to_an_add_is_not_the_last() {
    let _alone = alone();
    const ROUNDS: u64 = 3;
    const TORN: Duration = Duration::from_millis(60);
    let card = Card::new(Config {
        data: false,
        torn: TORN,
        ..Config::default()
    });
    let ended = AtomicBool::new(false);
    // With one buffer, nothing else is on its way when the last signal is.
    let window = || SlotWindow::<u64>::new("torn").buffers(Buffers::Single);
    let target = |world: &World| -> Result<()> {
        stream!(let s = world.stream()?);
        let mut window = window();
        window.slot_from(1, 0, 4);
        let (mut inbox, _outbox) = window.open(&s)?;
        // This is one more than there will be. It is enqueued before the window is revoked, since after that it would
        // be refused.
        for _ in 0..=ROUNDS {
            inbox = inbox.post(&s)?.wait(&s)?;
        }
        s.synchronize()
    };
    let origin = |world: &World| -> Result<()> {
        stream!(let s = world.stream()?);
        let mut window = window();
        let to = window.slot_to(0, 0);
        let (_inbox, mut outbox) = window.open(&s)?;
        let src = Region::<u64, _>::zeroed(world, 4)?.on(&s)?;
        for _ in 0..ROUNDS {
            let mut epoch = outbox.start();
            epoch.put(&src, to)?;
            outbox = epoch.complete(&s)?;
            s.synchronize()?;
        }
        // The stream has rung for the last time, and its add is on its way. At this moment the window is revoked.
        std::thread::sleep(TORN / 3);
        drop(outbox.start());
        // Nothing else ends the target's wait: this stream does not fail, and this rank does not leave.
        let begin = Instant::now();
        while !ended.load(Ordering::SeqCst) {
            assert!(begin.elapsed() < LONG, "it waits on");
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    };
    let nic = |_| world(on(&card), Options::default());
    let ends = World::local_with(2, nic, |world| match world.rank() {
        0 => {
            let end = target(&world);
            ended.store(true, Ordering::SeqCst);
            end
        }
        _ => origin(&world),
    });
    assert!(ends[0].is_err() && ends[1].is_ok(), "{ends:?}");
}
