//! Long writes by several endpoints. The signal is for all their stripes, whichever comes last, and whichever thread
//! posts them.

#[path = "../../core/src/nic/tests/hosted.rs"]
mod hosted;
mod rig;
#[path = "../../../tests/common/skip.rs"]
mod skip;
#[path = "rig/sleepy.rs"]
mod sleepy;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hosted::By;
use rig::{Rig, SENT, SETTLES, SIGNAL};
use sleepy::{DEEP, Sleepy, Spell};
use tidegate_core::window::{SlotWindow, exchange};
use tidegate_core::{Error, Region, Result, Route, World, WorldOptions, stream};
use tidegate_fabric::wire::Wire;
use tidegate_fabric::wire::libfabric::{Choice, EngineChoice, FabricWire};
use tidegate_fabric::{Fabric, Options};
use tidegate_fake::wire::{Faults, Net};
use tidegate_hal::batch::{POISON, QUANTUM};
use tidegate_hal::nic::{Direction, Transfer};
use tidegate_host::HostStream;

/// The elements of a put that is cut into stripes. The number is a multiple of nothing.
const LONG: usize = 24_011;
/// The offsets of the source and the destination of a rig's puts, for each parity of the firing.
const FROM: usize = 8192;
const FLIP: usize = 8 * LONG;
const TO: usize = FROM + 2 * FLIP;
const BYTES: usize = TO + 2 * FLIP;
const MOST: usize = Options::MOST_RAILS;

fn rails(rails: usize) -> Options {
    Options::default().rails(rails)
}

fn set_up<W: Wire>(wire: W, options: Options) -> Rig {
    Rig::sized(wire, options, (false, true), BYTES)
}

/// A put of elements `from` to `to` of a firing's buffer, in a stage.
fn put(rig: &Rig, from: usize, to: usize, stage: usize) -> Transfer {
    let mut put = rig.transfer(&rig.memory, Direction::Put, 0);
    put.count = to - from;
    (put.local.base, put.local.flip) = (rig.at(FROM + 8 * from), FLIP);
    (put.remote.base.offset, put.remote.flip) = (TO + 8 * from, FLIP);
    put.stage = stage as u32;
    put
}

fn value(firing: u64, index: usize) -> u64 {
    1_000_000 * (firing + 1) + index as u64
}

/// The address of a firing's elements, which lie in the block behind `place`.
fn buffer(rig: &Rig, place: usize, firing: u64) -> *mut u64 {
    let at = rig.at(place + FLIP * (firing % 2) as usize);
    at.0.cast()
}

/// Fills the source of a firing. Nothing that is sent from there is under way.
fn fill(rig: &Rig, firing: u64) {
    for index in 0..LONG {
        // SAFETY: the element lies in the block, aligned; nothing else accesses it now.
        unsafe {
            buffer(rig, FROM, firing)
                .add(index)
                .write(value(firing, index))
        };
    }
}

/// Checks that all data of a firing has come. Its signal has come before.
fn check(rig: &Rig, firing: u64) {
    for index in 0..LONG {
        // SAFETY: as above; its signal has come, and the next but one is not rung for.
        let found = unsafe { buffer(rig, TO, firing).add(index).read() };
        assert_eq!(found, value(firing, index), "{index} of firing {firing}");
    }
}

/// Makes firings, two at a time. When its signal comes, the data of a firing must be there. When *sent* comes, its
/// source must have been read.
fn fire(rig: &Rig, firings: u64) {
    for firing in 0..firings + 2 {
        if firing >= 2 {
            let before = firing - 2;
            assert_eq!(rig.wait(SIGNAL, before + 1) & POISON, 0);
            check(rig, before);
            assert_eq!(rig.wait(SENT, before + 1) & POISON, 0);
        }
        if firing < firings {
            fill(rig, firing);
            rig.ring();
        }
    }
    assert_eq!(rig.word(SIGNAL).load(), firings * QUANTUM);
    assert!(rig.nic.quiesce(SETTLES));
}

/// How many operations the engine's endpoint and the rails have taken. The rails stand behind the ears.
fn taken(net: &Net, rails: usize) -> Vec<usize> {
    let taken = net.taken(0);
    assert_eq!(taken.len(), 2 * rails, "an ear for each, and the rails");
    assert_eq!(taken[1..=rails], vec![0; rails], "ears send nothing");
    [&taken[..1], &taken[1 + rails..]].concat()
}

#[test]
fn a_signal_comes_when_all_stripes_have() {
    const FIRINGS: u64 = 40;
    for (seed, ways) in (1..=MOST).chain([2, 3, 4]).enumerate() {
        let faults = Faults {
            seed: seed as u64 + 1,
            full: 200,
            delay: 9,
            ..Faults::default()
        };
        let net = Net::new(1, faults);
        let rig = set_up(net.wire(0), rails(ways));
        let program = rig.program(vec![put(&rig, 0, LONG, 0)]);
        rig.arm(&[program], FIRINGS).unwrap();
        fire(&rig, FIRINGS);
        let taken = taken(&net, ways);
        // The engine's endpoint also reads the words of signals.
        assert!(taken[0] >= FIRINGS as usize);
        assert_eq!(taken[1..], vec![FIRINGS as usize; ways - 1]);
    }
}

#[test]
fn short_writes_and_short_stages_go_by_one_endpoint() {
    let net = Net::new(1, Faults::default());
    let rig = set_up(net.wire(0), rails(3));
    let stages = [(0, 4096), (4096, 8192), (8192, 16384)];
    let puts = (0..).zip(stages);
    let puts = puts.map(|(stage, (from, to))| put(&rig, from, to, stage));
    rig.arm(&[rig.program(puts.collect())], 1).unwrap();
    rig.ring();
    assert_eq!(rig.wait(SIGNAL, 1), QUANTUM);
    assert_eq!(taken(&net, 3)[1..], [0, 0]);
}

/// All stripes of all stages are parts of one signal, and the last of them waits for the whole ring.
#[test]
fn long_stages_go_by_all_endpoints() {
    const FIRINGS: u64 = 10;
    let faults = Faults {
        seed: 5,
        delay: 9,
        ..Faults::default()
    };
    let net = Net::new(1, faults);
    let rig = set_up(net.wire(0), rails(2));
    // There are three stages of more than 64 KiB.
    let each = LONG / 2;
    let mut puts = vec![put(&rig, 0, each, 0), put(&rig, each, LONG, 1)];
    puts.push(put(&rig, 0, each, 2));
    rig.arm(&[rig.program(puts)], FIRINGS).unwrap();
    for firing in 0..FIRINGS {
        fill(&rig, firing);
        for part in 0..3 {
            rig.ring_part(0, part, 3);
            if part < 2 {
                // The sleep gives each part a turn of its own.
                std::thread::sleep(Duration::from_millis(1));
                assert_eq!(rig.word(SIGNAL).load(), firing * QUANTUM);
            }
        }
        assert_eq!(rig.wait(SIGNAL, firing + 1), (firing + 1) * QUANTUM);
        check(&rig, firing);
        assert_eq!(rig.wait(SENT, firing + 1), (firing + 1) * QUANTUM);
    }
    assert!(rig.nic.quiesce(SETTLES));
    assert_eq!(taken(&net, 2)[1], 3 * FIRINGS as usize);
}

#[test]
fn over_libfabric() {
    const FIRINGS: u64 = 60;
    for provider in skip::providers() {
        let choice = Choice::at("127.0.0.1").provider(provider);
        let choice = choice.engine(EngineChoice::Software);
        for ways in [2, MOST] {
            let wire = match FabricWire::open(&choice) {
                Ok(wire) => wire,
                Err(error) => {
                    skip::skipped("rails over libfabric", &error.to_string());
                    break;
                }
            };
            let rig = set_up(wire, rails(ways));
            let program = rig.program(vec![put(&rig, 0, LONG, 0)]);
            rig.arm(&[program], FIRINGS).unwrap();
            fire(&rig, FIRINGS);
        }
    }
}

/// If a rail breaks, the wire has broken, whether or not the rail has something to do. Core hears of it, and no wait
/// lasts for ever.
#[test]
fn a_rail_that_breaks_ends_all_queues() {
    for busy in [true, false] {
        let net = Net::new(1, Faults::default());
        let rig = set_up(net.wire(0), rails(2));
        let program = rig.program(vec![put(&rig, 0, LONG, 0)]);
        rig.arm(&[program], 3).unwrap();
        rig.ring();
        assert_eq!(rig.wait(SENT, 1), QUANTUM);
        assert_eq!(rig.wait(SIGNAL, 1), QUANTUM);
        rig.may_fail.store(true, Ordering::SeqCst);
        // The rail stands behind the engine's endpoint and the two ears.
        net.break_twin(0, 3);
        if busy {
            rig.ring();
        }
        assert_eq!(rig.wait(SENT, 2), QUANTUM | POISON);
        assert_eq!(rig.word(SIGNAL).load(), QUANTUM);
        let begun = Instant::now();
        while !rig.has_failed.load(Ordering::SeqCst) {
            assert!(begun.elapsed() < SETTLES, "core does not hear of it");
            std::thread::yield_now();
        }
    }
}

/// A write that the peer does not take fails after a while, whichever endpoint it goes by.
#[test]
fn a_peer_that_takes_nothing_ends_its_queue() {
    let faults = Faults {
        full: 1000,
        ..Faults::default()
    };
    let net = Net::new(1, faults);
    let silence = Duration::from_millis(300);
    let rig = set_up(net.wire(0), rails(3).silence(silence));
    let program = rig.program(vec![put(&rig, 0, LONG, 0)]);
    rig.arm(&[program], 1).unwrap();
    let begun = Instant::now();
    rig.ring();
    assert_eq!(rig.wait(SENT, 1), POISON);
    // After the same time, the peer cannot be told either.
    rig.may_fail.store(true, Ordering::SeqCst);
    assert!(begun.elapsed() >= silence);
    assert_eq!(rig.word(SIGNAL).load(), 0);
}

/// A firing is not over while a rail may still post a part of it. So a rail, too, drops its operations towards a peer
/// that has left.
#[test]
fn operations_that_a_peer_has_not_taken_when_it_leaves_are_dropped() {
    let faults = Faults {
        full: 1000,
        ..Faults::default()
    };
    let net = Net::new(1, faults);
    // This is longer than the test waits.
    let options = rails(3).silence(Duration::from_secs(600));
    let rig = set_up(net.wire(0), options);
    let program = rig.program(vec![put(&rig, 0, LONG, 0)]);
    rig.arm(&[program], 1).unwrap();
    rig.ring();
    // The departure ends only after the engine has looked at the doorbells.
    rig.leaves(0);
    assert_eq!(rig.wait(SENT, 1), QUANTUM);
    assert!(rig.nic.quiesce(Duration::from_secs(10)));
    assert_eq!(taken(&net, 3), [0; 3]);
}

/// The thread of a rail may be asleep, or may have no processor. Then the engine posts the rail's operations.
#[test]
fn the_engine_posts_for_a_rail_that_sleeps() {
    let (net, spell) = (Net::new(1, Faults::default()), Arc::<Spell>::default());
    let rig = set_up(Sleepy::over(net.wire(0), spell.clone()), rails(2));
    let program = rig.program(vec![put(&rig, 0, LONG, 0)]);
    for firing in 1..=3 {
        rig.arm(std::slice::from_ref(&program), 1).unwrap();
        spell.cast();
        let begun = Instant::now();
        // The threads of both ears and of the rail sleep.
        while spell.asleep.load(Ordering::SeqCst) < 3 {
            assert!(begun.elapsed() < DEEP, "they do not sleep");
            std::thread::yield_now();
        }
        rig.ring();
        while taken(&net, 2)[1] < firing {
            assert!(begun.elapsed() < DEEP / 2, "nobody posts it");
            std::thread::yield_now();
        }
        // The engine also sees the end of the operation.
        assert_eq!(rig.wait(SENT, firing as u64), firing as u64 * QUANTUM);
        assert_eq!(spell.asleep.load(Ordering::SeqCst), 3);
        spell.lift();
        assert_eq!(rig.wait(SIGNAL, firing as u64), firing as u64 * QUANTUM);
    }
}

/// A peer that takes one write after the other is not silent, although there is always one that it has not taken yet.
#[test]
fn a_peer_that_takes_little_does_not_fail() {
    let silence = Duration::from_millis(500);
    let spell = Arc::new(Spell {
        slows: Some(Duration::from_millis(20)),
        ..Spell::default()
    });
    let net = Net::new(1, Faults::default());
    let rig = set_up(Sleepy::over(net.wire(0), spell), rails(2).silence(silence));
    let puts = (0..60).map(|_| put(&rig, 0, LONG / 2, 0));
    let program = rig.program(puts.collect());
    rig.arm(&[program], 1).unwrap();
    let begun = Instant::now();
    rig.ring();
    assert_eq!(rig.wait(SENT, 1), QUANTUM);
    assert_eq!(rig.wait(SIGNAL, 1), QUANTUM);
    assert!(begun.elapsed() > 2 * silence);
}

/// A rail gets a limited number of writes at a time. The engine posts the others itself.
#[test]
fn writes_that_a_rail_has_no_room_for_go_by_the_first_endpoint() {
    const PUTS: usize = 80;
    const HANDED: usize = 64;
    let spell = Arc::new(Spell {
        refuses: AtomicBool::new(true),
        ..Spell::default()
    });
    let net = Net::new(1, Faults::default());
    let rig = set_up(Sleepy::over(net.wire(0), spell.clone()), rails(2));
    // Each put has a half for the rail, and one for the engine.
    let puts = (0..PUTS).map(|_| put(&rig, 0, LONG, 0));
    rig.arm(&[rig.program(puts.collect())], 1).unwrap();
    fill(&rig, 0);
    rig.ring();
    let begun = Instant::now();
    while taken(&net, 2)[0] < 2 * PUTS - HANDED {
        assert!(begun.elapsed() < SETTLES, "{:?} were taken", taken(&net, 2));
        std::thread::yield_now();
    }
    assert_eq!((rig.word(SENT).load(), rig.word(SIGNAL).load()), (0, 0));
    spell.refuses.store(false, Ordering::SeqCst);
    assert_eq!(rig.wait(SIGNAL, 1), QUANTUM);
    check(&rig, 0);
    assert_eq!(rig.wait(SENT, 1), QUANTUM);
    assert_eq!(taken(&net, 2)[1], HANDED);
    assert!(rig.nic.quiesce(SETTLES));
}

/// If nothing on the wire ends a sleep, a sleeping thread looks now and then.
#[test]
fn deaf_rails_carry() {
    let (net, spell) = (Net::new(1, Faults::default()), Spell::default());
    let spell = Arc::new(Spell {
        deafens: true,
        ..spell
    });
    let rig = set_up(Sleepy::over(net.wire(0), spell), rails(3));
    let program = rig.program(vec![put(&rig, 0, LONG, 0)]);
    rig.arm(&[program], 20).unwrap();
    for firing in 0..20 {
        fill(&rig, firing);
        // Even firings find the threads awake, and odd firings find them asleep.
        if firing % 2 == 1 {
            std::thread::sleep(Duration::from_millis(10));
        }
        rig.ring();
        assert_eq!(rig.wait(SIGNAL, firing + 1), (firing + 1) * QUANTUM);
        check(&rig, firing);
        assert_eq!(rig.wait(SENT, firing + 1), (firing + 1) * QUANTUM);
    }
    assert_eq!(taken(&net, 3)[1..], [20, 20]);
}

type Mute = By<HostStream, true>;

/// Exchanges `elements` elements between two ranks, several times, and checks all of them.
fn rounds(world: &World<Mute>, elements: usize, limit: Duration) -> Result<()> {
    stream!(let s = world.stream()?);
    let peer = 1 - world.rank();
    let mut window = SlotWindow::<u64>::new("rails").fail_after(limit);
    let from = window.slot_from(peer, 0, elements);
    let to = window.slot_to(peer, 0);
    let (mut inbox, mut outbox) = window.open(&s)?;
    for round in 0..8 {
        let of = |rank: usize, index: usize| 1_000_000 * (8 * rank as u64 + round) + index as u64;
        let sent: Vec<u64> = (0..elements).map(|index| of(world.rank(), index)).collect();
        let src = Region::from_slice(world, &sent)?.on(&s)?;
        let mut access = outbox.start();
        access.put(&src, to)?;
        (inbox, outbox) = exchange(&s, inbox, access)?;
        let came = inbox.read(&s)?;
        for (index, found) in came.slot(from).iter().enumerate() {
            assert_eq!(*found, of(peer, index), "element {index} of round {round}");
        }
    }
    Ok(())
}

#[test]
fn ranks_may_have_different_numbers_of_rails() {
    for ways in [[1, 3], [4, 2], [3, 3]] {
        let net = Net::new(2, Faults::default());
        let options = |rank: usize| {
            let nic = Fabric::over(net.wire(rank), rails(ways[rank]));
            WorldOptions::new().nic(nic).route(Route::Nic)
        };
        let all = World::local_with(2, options, |world: World<Mute>| {
            rounds(&world, LONG, SETTLES)
        });
        all.into_iter().for_each(|ended| ended.unwrap());
        let least = ways.into_iter().min().unwrap();
        for (rank, ways) in ways.into_iter().enumerate() {
            // The order is: the engine's endpoint, the ears, the rails. A rail is used if the other rank has an ear for
            // it.
            let taken = net.taken(rank);
            assert_eq!(taken.len(), 2 * ways);
            let (used, others) = taken[1 + ways..].split_at(least - 1);
            assert!(used.iter().all(|taken| *taken == 8), "{used:?}");
            assert!(others.iter().all(|taken| *taken == 0), "{others:?}");
        }
    }
}

/// Whatever goes wrong on any rail, a rank soon gets the right data or a typed error.
#[test]
fn faults_end() {
    let (right, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    let case = |case: u64| {
        let seed = (case + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let often = |shift: u32| (seed >> shift) as usize % 4;
        let faults = Faults {
            seed,
            full: 100 * often(0) as u32,
            fail: [0, 0, 5, 40][often(2)],
            lose: [0, 0, 5, 40][often(4)],
            die: [0, 0, 2, 20][often(6)],
            delay: 5 * often(8) as u32,
        };
        let harmless = faults.fail + faults.lose + faults.die == 0;
        let limit = Duration::from_millis(if harmless { 20_000 } else { 100 });
        let silence = Duration::from_millis(if harmless { 10_000 } else { 200 });
        let net = Net::new(2, faults);
        let options = |rank: usize| {
            let options = rails(1 + often(10 + 2 * rank as u32)).silence(silence);
            let nic = Fabric::over(net.wire(rank), options);
            WorldOptions::new().nic(nic).route(Route::Nic)
        };
        let all = World::local_with(2, options, |world: World<Mute>| {
            rounds(&world, LONG / 2, limit)
        });
        let mut well = true;
        for ended in all {
            match ended {
                Ok(()) => {}
                Err(Error::Wait(_) | Error::Revoked { .. } | Error::Nic(_)) => well = false,
                Err(other) => panic!("case {case}: not an error to be expected: {other}"),
            }
        }
        assert!(well || !harmless, "case {case} had no fault");
        let ended = if well { &right } else { &failed };
        ended.fetch_add(1, Ordering::Relaxed);
    };
    const CASES: u64 = 120;
    let next = AtomicU64::new(0);
    let cases = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= CASES {
                return;
            }
            case(number);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(cases);
        }
    });
    let [right, failed] = [right, failed].map(AtomicU64::into_inner);
    println!("{CASES} cases: {right} right, {failed} with errors");
    // If either kind were rare, this test would show nothing.
    assert!(right > CASES / 10 && failed > CASES / 10);
}
